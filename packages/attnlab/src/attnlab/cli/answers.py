"""Answers in the terminal: step by step, before and after an edit, and where heads attend."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from attnlab.cli.site_facts import HeadMeans, ValueFacts, WeightFacts
from attnlab.cli.terminal import (
    make_table,
    marked_line,
    matrix_widths,
    output,
    say,
    say_indented,
    show_matrix,
)
from attnlab.errors import typed

if TYPE_CHECKING:
    from attnlab.edits.forks import Fork
    from attnlab.look.trace import HeadTrace, Step, Trace

_MAX_CANDIDATES = 6  # with their probabilities
_MAX_HEADS = 16  # shown one by one
_MAX_TOKENS = 16  # shown for more heads than that
_MAX_WORDS = 60  # of a text that is written out
_FIRST_WORDS = 8  # kept at the beginning of a longer one
_BEST_HEADS = 4  # named for each token
_SINK = "Resting on the first token is common (an attention sink), and no fault of the model."
_BLOCKS = " ▁▂▃▄▅▆▇█"
_LETTERS = {"first": "f", "last": "l", "previous": "p", "self": "s", "next": "n"}
_LAYER = re.compile(r"(?:^|\.)layers\.(\d+)\.")
_LEAST = 0.2  # attention weight on a token for a head to be named


def show_trace(trace: "Trace") -> None:
    """Print each step of a trace: probabilities of the candidates, the choice, heads' weights."""
    console = output()
    for number, step in enumerate(trace.steps, 1):
        known, place = trace.input, step.place
        if step.position is not None:
            known = trace.tokens[: step.position + 1]
        if place is None:
            place = step.position
        head = (f"step {number} of {len(trace.steps)}  ", "dim")
        choice = (f" → {marked_line(step.choice)}", "bold green")
        console.print(Text.assemble(head, _brief(known), choice, _verdict([step])))
        for candidate, probability in _shown(step):
            bar = "█" * round(probability * 24)
            style = "bold green" if candidate == step.choice else "dim"
            console.print(
                Text(f"  p({marked_line(candidate)}) {probability:.4f} {bar}", style=style)
            )
        _show_heads(trace, known, place)
        console.print()
    if not trace.steps:
        _show_heads(trace, trace.tokens, None)
        console.print(Text("it reads the input and chooses no token", style="dim"))
        return
    answer = f"{_brief(trace.input)} → {_answer(trace)}"
    console.print(Text(answer, style="bold") + _verdict(trace.steps))
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
    """Print where heads attend at one step, or on average.

    Cross-attention comes first: an answer is fetched from there.
    """
    if not trace.attention:
        words = "  too many weights to print; attnlab look shows them"
        output().print(Text(words, style="dim"))
    for is_self in (False, True):
        heads = [head for head in trace.attention if (head.key_tokens is None) is is_self]
        if heads:
            _show_attention(heads, heads[0].key_tokens or known, place)


def _show_attention(heads: "Sequence[HeadTrace]", keys: Sequence[str], place: int | None) -> None:
    """Print the weights of each head, or of many heads a summary by token."""
    from attnlab.look.heads import head_at

    tokens = list(map(marked_line, keys))
    names = [marked_line(head_at(head.site, head.head)) for head in heads]
    if place is None:
        over, weights_title = "heads and all queries", "  average weight on"
        rows = [_mean_row(head.rows) for head in heads]
    else:
        over, weights_title = "heads", "  weight on"
        rows = [list(head.rows[place]) for head in heads]
    if len(heads) > _MAX_HEADS:
        output().print(_tokens_table(over, tokens, names, rows))
    else:
        _show_weights_of(weights_title, tokens, names, _shaded_rows(rows))


def _tokens_table(
    over: str, tokens: Sequence[str], names: Sequence[str], rows: Sequence[Sequence[float]]
) -> Table:
    """Make a row for each token: its mean weight over heads, and the heads with most weight."""
    table = make_table("  token", is_plain=True)
    table.add_column("mean weight", justify="right", no_wrap=True)
    table.add_column("heads with the largest", overflow="fold")
    means = _mean_row(rows)
    order = sorted(range(len(means)), key=lambda key: -means[key])[:_MAX_TOKENS]
    for key in sorted(order):
        best = sorted(range(len(rows)), key=lambda head: -rows[head][key])[:_BEST_HEADS]
        best_heads = []
        for head in best:
            if rows[head][key] >= _LEAST:
                best_heads.append(f"{names[head]} ({rows[head][key]:.2f})")
        named = Text(", ".join(best_heads))
        table.add_row(Text(f"  {tokens[key]}"), _shaded(means[key]), named)
    table.caption = f"means over {len(rows)} {over}"
    if len(means) > len(order):
        table.caption += f"; the {len(order)} of {len(means)} tokens with most weight"
    return table


def _brief(tokens: Sequence[str]) -> str:
    """Join tokens with blanks; leave out the middle of a long text."""
    if len(tokens) > _MAX_WORDS:
        tokens = [*tokens[:_FIRST_WORDS], "…", *tokens[_FIRST_WORDS - _MAX_WORDS :]]
    return marked_line(" ".join(tokens))


def _answer(trace: "Trace") -> str:
    return marked_line(" ".join(trace.choices))


def _verdict(steps: "Sequence[Step]") -> Text:
    """Return the right answer in words if a step is wrong; else an empty text."""
    if not any(step.is_wrong for step in steps):
        return Text()
    right = marked_line(" ".join(step.expected or "?" for step in steps))
    return Text(f"   wrong: {right} is right", style="bold red")


def _show_weights_of(
    title: str, tokens: Sequence[str], names: Sequence[str], cells: Sequence[Sequence[Text]]
) -> None:
    """Print a row for each head, or a column for each where the tokens do not fit."""
    if sum(matrix_widths(title, tokens, names, cells)) <= output().width:
        show_matrix(title, tokens, names, cells)
        return
    output().print(Text(f"{title} (columns: heads)", style="dim"))
    show_matrix("", names, tokens, list(map(list, zip(*cells, strict=True))))


def _mean_row(rows: Sequence[Sequence[float]]) -> list[float]:
    return [sum(column) / len(rows) for column in zip(*rows, strict=True)]


def show_fork(fork: "Fork", edits: Sequence[str]) -> None:
    """Print the answers before and after the edits, where they differ, and the certificate."""
    console = output()
    for edit in edits:
        console.print(Text(edit, style="bold"))
    question = _brief(fork.before.input)
    if not fork.before.steps:
        console.print(Text(f"{question}: no token is chosen; the output changes so:", style="bold"))
        say_indented(str(fork.certificate))
        return
    table = make_table("step", "before", "after", "change", is_plain=True)
    pairs = zip_longest(fork.before.steps, fork.after.steps)
    for (number, was, now, changes), (before, after) in zip(fork_rows(fork), pairs, strict=True):
        is_same = before and after and before.choice == after.choice
        table.add_row(number, was, Text(now, style="" if is_same else "bold red"), changes)
    console.print(table)
    parting = "the same answer"
    if fork.diverged_at is not None:
        parting = f"they part at step {fork.diverged_at}"
    answers = f"{_answer(fork.before)}   edited → {_answer(fork.after)}   ({parting})"
    console.print(Text(f"{question} → {answers}", style="bold"))
    if fork.before.note:
        console.print(Text(fork.before.note, style="dim"))
    say_indented(str(fork.certificate))


def fork_rows(fork: "Fork") -> list[tuple[str, str, str, str]]:
    """Return a row for each step: number, choice before, choice after, changed probabilities."""
    rows = []
    pairs = zip_longest(fork.before.steps, fork.after.steps)
    for number, (before, after) in enumerate(pairs, 1):
        rows.append((str(number), _choice(before), _choice(after), _changes(before, after)))
    return rows


def show_weights(site: str, facts: WeightFacts) -> None:
    """Print the facts of each head of a site, and a row for each query if the keys fit."""
    from attnlab.look.heads import head_at

    console = output()
    keys = list(map(marked_line, facts.key_tokens))
    queries = list(map(marked_line, facts.query_tokens))
    for head in facts.heads:
        figures = (
            f"entropy {head.entropy:.3f} nats, largest weight {head.largest_weight:.3f} "
            "(means over queries)"
        )
        name = Text(marked_line(f"head {head_at(site, head.head)}"), style="bold")
        console.print(name + Text(f"  {figures}", style="dim"))
        title, columns, cells = "  query", keys, _shaded_rows(head.rows or ())
        if sum(matrix_widths(title, columns, queries, cells)) > output().width:
            columns, cells = ["largest weight on"], _largest_cells(head)
        show_matrix(title, columns, queries, cells)
        console.print()


def _largest_cells(head: HeadMeans) -> list[list[Text]]:
    """Return a cell for each query: the key with most weight, or none if all are masked."""
    cells = []
    for row, key in zip(head.rows or (), head.looks_most_at, strict=True):
        largest = max((weight for weight in row if weight is not None), default=None)
        words = "nothing"
        if largest is not None:
            words = f"{marked_line(key)} ({largest:.2f})"
        cells.append([Text(words)])
    return cells


def _choice(step: "Step | None") -> str:
    if step is None:
        return "ended"
    words = step.choice
    if step.choice in step.candidates:
        probability = step.probabilities[step.candidates.index(step.choice)]
        words = f"{step.choice} ({probability:.3f})"
    if step.is_wrong:
        words += ", wrong"
    return marked_line(words)


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
    changes.sort(key=lambda change: -abs(change[0]))
    shown = []
    for change, name, was in changes[:_MAX_CANDIDATES]:
        shown.append(f"p({name}) {was:.3f} → {was + change:.3f}")
    return marked_line(", ".join(shown)) or "nothing"


def _shaded_rows(rows: Iterable[Sequence[float | None]]) -> list[list[Text]]:
    return [list(map(_shaded, row)) for row in rows]


def _shaded(weight: float | None) -> Text:
    """Write a weight beside a block of that height; None, a masked weight, as a dot.

    Heights can be told apart on any background and without colors; shades cannot.
    """
    if weight is None:
        return Text("·", style="dim")
    block = _BLOCKS[min(8, math.ceil(8 * weight - 0.5))]
    number = Text(f"{weight:.2f}", style="dim" if weight < 0.05 else "")
    return number + Text(block, style="bright_blue")


def show_overview(run: str, text: str, facts: Mapping[str, WeightFacts | ValueFacts]) -> None:
    """Print a table for each kind of attention: a row for each layer, a cell for each head."""
    from attnlab.look.heads import head_at

    groups: dict[str, dict[str, list[Text]]] = {}
    named = set()
    for site, site_facts in facts.items():
        assert isinstance(site_facts, WeightFacts)
        kind = _LAYER.sub(lambda match: match[0].replace(match[1], "*"), site)
        groups.setdefault(kind, {})[_layer_of(site)] = list(map(_cell, site_facts.heads))
        named |= {head.mostly for head in site_facts.heads}
    for kind, layers in groups.items():
        output().print(Text(kind, style="bold"))
        num_heads = max(map(len, layers.values()))
        for row in layers.values():
            row += [Text()] * (num_heads - len(row))
        show_matrix(
            "  layer", list(map(str, range(num_heads))), list(layers), list(layers.values())
        )
    words = ", ".join(f"{letter} {place}" for place, letter in _LETTERS.items() if place in named)
    legend = "~7: as spread as a uniform weight on 7 tokens; means over queries"
    if words:
        legend = f"f67: 67 % of a head's weight on one token ({words} token); {legend}"
    output().print(Text(legend, style="dim"))
    if "first" in named:
        output().print(Text(_SINK, style="dim"))
    example = head_at(next(iter(facts)), 0)
    say(f"one of them: attnlab look {typed(run)} {typed(text)} --head '{example}'", is_quiet=True)


def _cell(head: HeadMeans) -> Text:
    if head.mostly is None:
        return Text(f"~{math.exp(head.entropy):.0f}", style="dim")
    share = head.places[head.mostly]
    percent = min(round(100 * share), 99)
    return Text(f"{_LETTERS[head.mostly]}{percent:02d}", style="bold" if share >= 0.6 else "")


def _layer_of(site: str) -> str:
    match = _LAYER.search(site)
    if match:
        return match[1]
    return site.removesuffix(".weights") or "0"
