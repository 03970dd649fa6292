"""What the terminal shows of one input: an answer step by step, two answers beside each other, where heads look."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from attnlab.cli.terminal import one_line, output

if TYPE_CHECKING:
    from attnlab.look.trace import HeadTrace, Step, Trace
    from attnlab.operate.forking import Fork

__all__ = ["show_fork", "show_trace", "show_weights"]

_MOST_CANDIDATES = 6  # whose probabilities are shown beside each other
_MOST_HEADS = 16  # that are shown one by one
_MOST_TOKENS = 16  # that are shown where heads are many
_MOST_WORDS, _FIRST_WORDS = 60, 8  # of a text that is written out; of a longer one, at its beginning
_BEST_HEADS = 4  # named for each token
_WEIGHT = 5  # letters of a weight, with its block
_BLOCKS = " ▁▂▃▄▅▆▇█"
_MUCH = 0.2  # of its weight that a head must give a token to be named


def show_trace(trace: "Trace") -> None:
    """Print each step of a trace: candidates with their probabilities, the choice, each head's weights."""
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
        console.print(Text("it reads, and chooses nothing", style="dim"))
        return
    answer = one_line(" ".join(step.choice for step in trace.steps))
    console.print(Text(f"{_brief(trace.input)} → {answer}", style="bold") + _verdict(trace.steps))
    if trace.note:
        console.print(Text(trace.note, style="dim"))


def _shown(step: "Step") -> list[tuple[str, float]]:
    """The candidates that are printed: all, or of many the likeliest, the choice and the right one."""
    pairs = list(zip(step.candidates, step.probabilities, strict=True))
    if len(pairs) <= 2 * _MOST_CANDIDATES:
        return pairs
    likeliest = sorted(pairs, key=lambda pair: -pair[1])[:_MOST_CANDIDATES]
    return likeliest + [pair for pair in pairs if pair[0] in (step.choice, step.expected) and pair not in likeliest]


def _show_heads(trace: "Trace", known: Sequence[str], place: int | None) -> None:
    """Print where heads look at one step, or on average: each by itself, or of many what each token gets.

    Cross-attention comes first: it is where an answer is fetched from.
    """
    console = output()
    if not trace.attention:
        console.print(Text("  too many weights to write out; attnlab look shows them", style="dim"))
    own = [each for each in trace.attention if each.key_tokens is None]
    cross = [each for each in trace.attention if each.key_tokens is not None]
    for heads, names in ((cross, (cross[0].key_tokens or ()) if cross else ()), (own, known)):
        tokens = [one_line(name) for name in names]
        if len(heads) > _MOST_HEADS:
            console.print(_tokens_table(heads, tokens, place))
        elif heads:
            for table in _weights_tables(heads, tokens, place, console.width):
                console.print(table)


def _tokens_table(heads: "Sequence[HeadTrace]", tokens: Sequence[str], place: int | None) -> Table:
    """Make a row for each token: the mean of what many heads give it, and which of them give it most of theirs."""
    rows = [_mean_row(each.rows) if place is None else each.rows[place] for each in heads]
    names = [_name(each) for each in heads]
    table = _plain_table("  where they look" if place is not None else "  where they look, on average")
    table.add_column(f"mean of {len(heads)} heads", justify="right")
    table.add_column("most of all", overflow="fold")
    means = [sum(column) / len(rows) for column in zip(*rows, strict=True)]
    order = sorted(range(len(means)), key=lambda key: -means[key])[:_MOST_TOKENS]
    for key in sorted(order):
        best = sorted(range(len(rows)), key=lambda head: -rows[head][key])[:_BEST_HEADS]
        told = ", ".join(f"{names[head]} ({rows[head][key]:.2f})" for head in best if rows[head][key] >= _MUCH)
        table.add_row(Text(f"  {tokens[key]}"), _shaded(means[key]), Text(told))
    if len(means) > len(order):
        table.caption = f"the {len(order)} of {len(means)} tokens that are looked at most"
    return table


def _name(head: "HeadTrace") -> str:
    from attnlab.look.heads import head_at

    return one_line(head_at(head.site, head.head))


def _brief(tokens: Sequence[str]) -> str:
    """Write tokens beside each other; of many the first and the last."""
    shown = (
        tokens if len(tokens) <= _MOST_WORDS else [*tokens[:_FIRST_WORDS], "…", *tokens[_FIRST_WORDS - _MOST_WORDS :]]
    )
    return one_line(" ".join(shown))


def _verdict(steps: "Sequence[Step]") -> Text:
    """Say what is wrong, in words, where the right choices are known."""
    if not any(step.is_wrong for step in steps):
        return Text()
    right = one_line(" ".join(step.expected or "?" for step in steps))
    return Text(f"   wrong: {right} is right", style="bold red")


def _weights_tables(
    heads: "Sequence[HeadTrace]", tokens: Sequence[str], position: int | None, room: int
) -> Iterator[Table | Text]:
    """Make a row for each head; what does not fit is written downwards, in as many tables as the heads need."""
    rows = [_mean_row(each.rows) if position is None else each.rows[position] for each in heads]
    names = [_name(each) for each in heads]
    title = "  where it looks" if position is not None else "  where its positions look, on average"
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
    most = max(1, (room - wide) // (2 + max(_WEIGHT, *map(len, names))))
    for first in range(0, len(names), most):
        table = _plain_table("")
        for name in names[first : first + most]:
            table.add_column(name, justify="right", no_wrap=True)
        for token, weights in zip(tokens, zip(*rows[first : first + most], strict=True), strict=True):
            table.add_row(Text(f"  {token}"), *map(_shaded, weights))
        yield table


def _plain_table(title: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1), show_header=True, header_style="dim")
    table.add_column(title)
    return table


def _fits(tokens: Sequence[str], first: int, room: int) -> bool:
    """Say whether a column for each token, of a blank and the width of its name, stands beside the first column."""
    return first + sum(2 + max(cell_len(token), _WEIGHT) for token in tokens) <= room


def _mean_row(rows: Sequence[Sequence[float]]) -> list[float]:
    return [sum(column) / len(rows) for column in zip(*rows, strict=True)]


def show_fork(fork: "Fork", edits: Sequence[str]) -> None:
    """Print two answers beside each other, what parted them, and the certificate."""
    console = output()
    for each in edits:
        console.print(Text(each, style="bold"))
    if not fork.before.steps:
        console.print(Text(f"{_brief(fork.before.input)}: it chooses nothing; how its output changed:", style="bold"))
        console.print(Text(str(fork.certificate), style="dim"))
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2), header_style="dim")
    for column in ("step", "before", "after", "what changed"):
        table.add_column(column, overflow="fold")
    for number in range(max(len(fork.before.steps), len(fork.after.steps))):
        before, after = (each.steps[number] if number < len(each.steps) else None for each in (fork.before, fork.after))
        style = "bold red" if before is None or after is None or before.choice != after.choice else ""
        row = (_choice(before), Text(_choice(after), style=style), _changes(before, after))
        table.add_row(str(number + 1), *row)
    console.print(table)
    words = [one_line(" ".join(step.choice for step in each.steps)) for each in (fork.before, fork.after)]
    parted = "the same answer" if fork.parted_at is None else f"they part at step {fork.parted_at}"
    console.print(Text(f"{_brief(fork.before.input)} → {words[0]}   edited → {words[1]}   ({parted})", style="bold"))
    if fork.before.note:
        console.print(Text(fork.before.note, style="dim"))
    console.print(Text(str(fork.certificate), style="dim"))


def show_weights(site: str, facts: Mapping[str, Any]) -> None:
    """Print where each head of a site looks: its figures, then a row for each query, if there is room for the keys."""
    from attnlab.look.heads import head_at

    console = output()
    keys, queries = ([one_line(token) for token in facts[side]] for side in ("key_tokens", "query_tokens"))
    for head in facts["heads"]:
        figures = (
            f"entropy {head['entropy']:.3f} nats, largest weight {head['largest_weight']:.3f} (means over queries)"
        )
        console.print(
            Text(one_line(f"head {head_at(site, head['head'])}"), style="bold") + Text(f"  {figures}", style="dim")
        )
        table = _plain_table("  query")
        is_wide = not _fits(keys, max(7, *(cell_len(token) + 2 for token in queries)), console.width)
        for name in ["looks most at"] if is_wide else keys:
            table.add_column(name, justify="left" if is_wide else "right", min_width=4, no_wrap=True)
        for token, row, favourite in zip(queries, head["rows"], head["looks_most_at"], strict=True):
            most = max((weight for weight in row if weight is not None), default=None)
            told = "nothing" if most is None else f"{one_line(favourite)} ({most:.2f})"
            table.add_row(Text(f"  {token}"), *((Text(told),) if is_wide else map(_shaded, row)))
        console.print(table)


def _choice(step: "Step | None") -> str:
    if step is None:
        return "ended"
    probability = step.probabilities[step.candidates.index(step.choice)] if step.choice in step.candidates else None
    words = step.choice if probability is None else f"{step.choice} ({probability:.3f})"
    return one_line(f"{words}, wrong" if step.is_wrong else words)


def _changes(before: "Step | None", after: "Step | None") -> str:
    """The probabilities that changed most."""
    if before is None or after is None:
        return ""
    then = dict(zip(after.candidates, after.probabilities, strict=True))
    changes = [
        (then[name] - probability, name, probability)
        for name, probability in zip(before.candidates, before.probabilities, strict=True)
        if name in then
    ]
    told = sorted((each for each in changes if abs(each[0]) >= 5e-4), key=lambda each: -abs(each[0]))
    shown = ", ".join(f"p({name}) {was:.3f} → {was + change:.3f}" for change, name, was in told[:_MOST_CANDIDATES])
    return one_line(shown) or "nothing"


def _shaded(weight: float | None) -> Text:
    """Write a weight beside a block as tall as it is great; None is what may not be looked at.

    Height is seen on any ground, with sixteen colours and with none; shades are not.
    """
    if weight is None:
        return Text("·", style="dim")
    block = _BLOCKS[min(8, math.ceil(8 * weight - 0.5))]
    return Text(f"{weight:.2f}", style="dim" if weight < 0.05 else "") + Text(block, style="bright_blue")
