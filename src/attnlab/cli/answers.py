"""Answers in the terminal: step by step, before and after an edit, and where heads attend."""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from attnlab.cli.terminal import one_line, output

if TYPE_CHECKING:
    from attnlab.edits.forks import Fork
    from attnlab.look.trace import HeadTrace, Step, Trace

__all__ = ["show_fork", "show_trace", "show_weights"]

_MAX_CANDIDATES = 6  # with their probabilities
_MAX_HEADS = 16  # shown one by one
_MAX_TOKENS = 16  # shown for more heads than that
_MAX_WORDS = 60  # of a text that is written out
_FIRST_WORDS = 8  # kept at the beginning of a longer one
_BEST_HEADS = 4  # named for each token
_WEIGHT_WIDTH = 5  # letters of a weight with its block
_BLOCKS = " ▁▂▃▄▅▆▇█"
_LEAST = 0.2  # attention weight on a token for a head to be named


def show_trace(trace: "Trace") -> None:
    """Print each step of a trace: probabilities of the candidates, the choice, heads' weights."""
    console = output()
    for number, step in enumerate(trace.steps, 1):
        known = trace.input if step.position is None else trace.tokens[: step.position + 1]
        head = Text(f"step {number} of {len(trace.steps)}  ", style="dim")
        choice = Text(f" → {one_line(step.choice)}", style="bold green")
        console.print(Text.assemble(head, _brief(known), choice, _verdict([step])))
        for candidate, probability in _shown(step):
            is_choice = candidate == step.choice
            bar = "█" * round(probability * 24)
            style = "bold green" if is_choice else "dim"
            console.print(Text(f"  p({one_line(candidate)}) {probability:.4f} {bar}", style=style))
        _show_heads(trace, known, step.position if step.place is None else step.place)
        console.print()
    if not trace.steps:
        _show_heads(trace, trace.tokens, None)
        console.print(Text("it reads the input and chooses no token", style="dim"))
        return
    answer = one_line(" ".join(step.choice for step in trace.steps))
    console.print(Text(f"{_brief(trace.input)} → {answer}", style="bold") + _verdict(trace.steps))
    if trace.note:
        console.print(Text(trace.note, style="dim"))


def _shown(step: "Step") -> list[tuple[str, float]]:
    """Return the candidates to print: all, or the likeliest, the choice and the right one."""
    pairs = list(zip(step.candidates, step.probabilities, strict=True))
    if len(pairs) <= 2 * _MAX_CANDIDATES:
        return pairs
    shown = sorted(pairs, key=lambda pair: -pair[1])[:_MAX_CANDIDATES]
    for pair in pairs:
        if pair[0] in (step.choice, step.expected) and pair not in shown:
            shown.append(pair)
    return shown


def _show_heads(trace: "Trace", known: Sequence[str], place: int | None) -> None:
    """Print where heads attend at one step, or on average: each head, or a summary by token.

    Cross-attention comes first: an answer is fetched from there.
    """
    console = output()
    if not trace.attention:
        console.print(Text("  too many weights to print; attnlab look shows them", style="dim"))
    own = [each for each in trace.attention if each.key_tokens is None]
    cross = [each for each in trace.attention if each.key_tokens is not None]
    for heads, names in ((cross, (cross[0].key_tokens or ()) if cross else ()), (own, known)):
        tokens = [one_line(name) for name in names]
        if len(heads) > _MAX_HEADS:
            console.print(_tokens_table(heads, tokens, place))
        elif heads:
            for table in _weights_tables(heads, tokens, place, console.width):
                console.print(table)


def _tokens_table(heads: "Sequence[HeadTrace]", tokens: Sequence[str], place: int | None) -> Table:
    """Make a row for each token: its mean weight over heads, and the heads with most weight."""
    rows = [_mean_row(each.rows) if place is None else each.rows[place] for each in heads]
    names = [_name(each) for each in heads]
    table = _plain_table("  token" if place is not None else "  token (average over queries)")
    table.add_column(f"mean weight of {len(heads)} heads", justify="right")
    table.add_column("largest weights", overflow="fold")
    means = [sum(column) / len(rows) for column in zip(*rows, strict=True)]
    order = sorted(range(len(means)), key=lambda key: -means[key])[:_MAX_TOKENS]
    for key in sorted(order):
        best = sorted(range(len(rows)), key=lambda head: -rows[head][key])[:_BEST_HEADS]
        best_heads = ", ".join(
            f"{names[head]} ({rows[head][key]:.2f})" for head in best if rows[head][key] >= _LEAST
        )
        table.add_row(Text(f"  {tokens[key]}"), _shaded(means[key]), Text(best_heads))
    if len(means) > len(order):
        table.caption = f"the {len(order)} of {len(means)} tokens with most weight"
    return table


def _name(head: "HeadTrace") -> str:
    from attnlab.look.heads import head_at

    return one_line(head_at(head.site, head.head))


def _brief(tokens: Sequence[str]) -> str:
    """Join tokens with blanks; leave out the middle of a long text."""
    if len(tokens) > _MAX_WORDS:
        tokens = [*tokens[:_FIRST_WORDS], "…", *tokens[_FIRST_WORDS - _MAX_WORDS :]]
    return one_line(" ".join(tokens))


def _verdict(steps: "Sequence[Step]") -> Text:
    """Return the right answer in words if a step is wrong; else an empty text."""
    if not any(step.is_wrong for step in steps):
        return Text()
    right = one_line(" ".join(step.expected or "?" for step in steps))
    return Text(f"   wrong: {right} is right", style="bold red")


def _weights_tables(
    heads: "Sequence[HeadTrace]", tokens: Sequence[str], position: int | None, room: int
) -> Iterator[Table | Text]:
    """Make a table with a row for each head, or transposed tables if the tokens do not fit."""
    rows = [_mean_row(each.rows) if position is None else each.rows[position] for each in heads]
    names = [_name(each) for each in heads]
    title = "  weight on" if position is not None else "  average weight on"
    if _fits(tokens, max(len(title), *(len(name) + 2 for name in names)), room):
        table = _plain_table(title)
        width = max(map(len, tokens), default=0) + 2
        for token in tokens:
            table.add_column(token, justify="right", min_width=min(width, 5), no_wrap=True)
        for name, row in zip(names, rows, strict=True):
            table.add_row(Text(f"  {name}"), *map(_shaded, row))
        yield table
        return
    yield Text(f"{title} (columns: heads)", style="dim")
    wide = min(2 + max(map(cell_len, tokens)), room // 2)
    most = max(1, (room - wide) // (2 + max(_WEIGHT_WIDTH, *map(len, names))))
    for first in range(0, len(names), most):
        table = _plain_table("")
        for name in names[first : first + most]:
            table.add_column(name, justify="right", no_wrap=True)
        columns = zip(*rows[first : first + most], strict=True)
        for token, weights in zip(tokens, columns, strict=True):
            table.add_row(Text(f"  {token}"), *map(_shaded, weights))
        yield table


def _plain_table(title: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1), show_header=True, header_style="dim")
    table.add_column(title)
    return table


def _fits(tokens: Sequence[str], first: int, room: int) -> bool:
    """Is there room for a column for each token beside the first column?"""
    return first + sum(2 + max(cell_len(token), _WEIGHT_WIDTH) for token in tokens) <= room


def _mean_row(rows: Sequence[Sequence[float]]) -> list[float]:
    return [sum(column) / len(rows) for column in zip(*rows, strict=True)]


def show_fork(fork: "Fork", edits: Sequence[str]) -> None:
    """Print the answers before and after the edits, where they differ, and the certificate."""
    console = output()
    for each in edits:
        console.print(Text(each, style="bold"))
    question = _brief(fork.before.input)
    if not fork.before.steps:
        console.print(Text(f"{question}: no token is chosen; change of the output:", style="bold"))
        console.print(Text(str(fork.certificate), style="dim"))
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2), header_style="dim")
    for column in ("step", "before", "after", "change"):
        table.add_column(column, overflow="fold")
    pairs = zip_longest(fork.before.steps, fork.after.steps)
    for number, (before, after) in enumerate(pairs, 1):
        is_same = before is not None and after is not None and before.choice == after.choice
        edited = Text(_choice(after), style="" if is_same else "bold red")
        table.add_row(str(number), _choice(before), edited, _changes(before, after))
    console.print(table)
    unedited, edited_answer = (
        one_line(" ".join(step.choice for step in each.steps)) for each in (fork.before, fork.after)
    )
    parting = "the same answer"
    if fork.parted_at is not None:
        parting = f"they part at step {fork.parted_at}"
    summary = f"{question} → {unedited}   edited → {edited_answer}   ({parting})"
    console.print(Text(summary, style="bold"))
    if fork.before.note:
        console.print(Text(fork.before.note, style="dim"))
    console.print(Text(str(fork.certificate), style="dim"))


def show_weights(site: str, facts: Mapping[str, Any]) -> None:
    """Print the facts of each head of a site, and a row for each query if the keys fit."""
    from attnlab.look.heads import head_at

    console = output()
    keys = [one_line(token) for token in facts["key_tokens"]]
    queries = [one_line(token) for token in facts["query_tokens"]]
    first_width = max(7, *(cell_len(token) + 2 for token in queries))
    has_room = _fits(keys, first_width, console.width)
    for head in facts["heads"]:
        figures = (
            f"entropy {head['entropy']:.3f} nats, largest weight {head['largest_weight']:.3f} "
            "(means over queries)"
        )
        name = Text(one_line(f"head {head_at(site, head['head'])}"), style="bold")
        console.print(name + Text(f"  {figures}", style="dim"))
        table = _plain_table("  query")
        if has_room:
            for key in keys:
                table.add_column(key, justify="right", min_width=4, no_wrap=True)
            for token, row in zip(queries, head["rows"], strict=True):
                table.add_row(Text(f"  {token}"), *map(_shaded, row))
        else:
            table.add_column("largest weight on", min_width=4, no_wrap=True)
            for token, row, key in zip(queries, head["rows"], head["looks_most_at"], strict=True):
                largest = max((weight for weight in row if weight is not None), default=None)
                words = "nothing" if largest is None else f"{one_line(key)} ({largest:.2f})"
                table.add_row(Text(f"  {token}"), Text(words))
        console.print(table)


def _choice(step: "Step | None") -> str:
    if step is None:
        return "ended"
    words = step.choice
    if step.choice in step.candidates:
        probability = step.probabilities[step.candidates.index(step.choice)]
        words = f"{step.choice} ({probability:.3f})"
    return one_line(f"{words}, wrong" if step.is_wrong else words)


def _changes(before: "Step | None", after: "Step | None") -> str:
    """Return the probabilities that changed most, in words."""
    if before is None or after is None:
        return ""
    edited = dict(zip(after.candidates, after.probabilities, strict=True))
    changes = []
    for name, probability in zip(before.candidates, before.probabilities, strict=True):
        change = edited.get(name, probability) - probability
        if abs(change) >= 5e-4:
            changes.append((change, name, probability))
    changes.sort(key=lambda each: -abs(each[0]))
    shown = ", ".join(
        f"p({name}) {was:.3f} → {was + change:.3f}"
        for change, name, was in changes[:_MAX_CANDIDATES]
    )
    return one_line(shown) or "nothing"


def _shaded(weight: float | None) -> Text:
    """Write a weight beside a block of that height; None, a masked weight, as a dot.

    Heights can be told apart on any background and without colors; shades cannot.
    """
    if weight is None:
        return Text("·", style="dim")
    block = _BLOCKS[min(8, math.ceil(8 * weight - 0.5))]
    number = Text(f"{weight:.2f}", style="dim" if weight < 0.05 else "")
    return number + Text(block, style="bright_blue")
