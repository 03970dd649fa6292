"""What the terminal shows of one input: an answer step by step, two answers beside each other, where heads look."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from attnlab.cli.terminal import output

if TYPE_CHECKING:
    from attnlab.look.trace import HeadTrace, Step, Trace
    from attnlab.operate.forking import Fork

__all__ = ["show_fork", "show_trace", "show_weights"]

_MOST_COLUMNS = 12  # tokens that a table of weights can hold side by side
_MOST_CANDIDATES = 6  # whose probabilities are shown beside each other


def show_trace(trace: "Trace") -> None:
    """Print each step of a trace: candidates with their probabilities, the choice, each head's weights."""
    console = output()
    for number, step in enumerate(trace.steps, 1):
        known = trace.input if step.position is None else trace.tokens[: step.position + 1]
        head = Text(f"step {number} of {len(trace.steps)}  ", style="dim")
        console.print(head + Text(" ".join(known)) + Text(f" → {step.choice}", style="bold green"))
        for candidate, probability in zip(step.candidates, step.probabilities, strict=True):
            is_choice = candidate == step.choice
            bar = "█" * round(probability * 24)
            style = "bold green" if is_choice else "dim"
            console.print(Text(f"  p({candidate}) {probability:.4f} {bar}", style=style))
        own = [each for each in trace.attention if each.key_tokens is None]
        cross = [each for each in trace.attention if each.key_tokens is not None]
        for heads, tokens in ((own, known), (cross, cross[0].key_tokens if cross else ())):
            if heads:
                assert tokens is not None
                console.print(_weights_table(heads, tokens, step.position if step.place is None else step.place))
        console.print()
    answer = " ".join(step.choice for step in trace.steps)
    console.print(Text(f"{' '.join(trace.input)} → {answer}", style="bold"))


def _weights_table(heads: "Sequence[HeadTrace]", tokens: Sequence[str], position: int | None) -> Table:
    """Make a row for each head; a long input is written downwards instead, with a column for each head."""
    rows = [_mean_row(each.rows) if position is None else each.rows[position] for each in heads]
    names = [each.site.removesuffix(".weights").removesuffix(".attention") + f" head {each.head}" for each in heads]
    table = Table(box=None, pad_edge=False, padding=(0, 1), show_header=True, header_style="dim")
    table.add_column("  where it looks" if position is not None else "  where its positions look, on average")
    if len(tokens) <= _MOST_COLUMNS:
        width = max(map(len, tokens), default=0) + 2
        for token in tokens:
            table.add_column(token, justify="right", min_width=min(width, 5), no_wrap=True)
        for name, row in zip(names, rows, strict=True):
            table.add_row(Text(f"  {name}"), *map(_shaded, row))
    else:
        for name in names:
            table.add_column(name.removeprefix("layers.").replace(" head ", "."), justify="right", no_wrap=True)
        for token, weights in zip(tokens, zip(*rows, strict=True), strict=True):
            table.add_row(Text(f"  {token}"), *map(_shaded, weights))
    return table


def _mean_row(rows: Sequence[Sequence[float]]) -> list[float]:
    return [sum(column) / len(rows) for column in zip(*rows, strict=True)]


def show_fork(fork: "Fork", edits: Sequence[str]) -> None:
    """Print two answers beside each other, what parted them, and the certificate."""
    console = output()
    for each in edits:
        console.print(Text(each, style="bold"))
    table = Table(box=None, pad_edge=False, padding=(0, 2), header_style="dim")
    for column in ("step", "before", "after", "what changed"):
        table.add_column(column, overflow="fold")
    for number in range(max(len(fork.before.steps), len(fork.after.steps))):
        before, after = (each.steps[number] if number < len(each.steps) else None for each in (fork.before, fork.after))
        style = "bold red" if before is None or after is None or before.choice != after.choice else ""
        table.add_row(str(number), _choice(before), Text(_choice(after), style=style), _changes(before, after))
    console.print(table)
    words = [" ".join(step.choice for step in each.steps) for each in (fork.before, fork.after)]
    parted = "the same answer" if fork.parted_at is None else f"they part at step {fork.parted_at}"
    console.print(Text(f"{' '.join(fork.before.input)} → {words[0]}   edited → {words[1]}   ({parted})", style="bold"))
    console.print(Text(str(fork.certificate), style="dim"))


def show_weights(site: str, facts: Mapping[str, Any]) -> None:
    """Print where each head of a site looks: its figures, then a row for each query, if there is room for the keys."""
    console = output()
    keys = facts["key_tokens"]
    for head in facts["heads"]:
        figures = (
            f"entropy {head['entropy']:.3f} nats, largest weight {head['largest_weight']:.3f} (means over queries)"
        )
        console.print(Text(f"{site} head {head['head']}", style="bold") + Text(f"  {figures}", style="dim"))
        table = Table(box=None, pad_edge=False, padding=(0, 1), header_style="dim")
        table.add_column("  query")
        is_wide = len(keys) > _MOST_COLUMNS
        for name in ["looks most at"] if is_wide else keys:
            table.add_column(name, justify="left" if is_wide else "right", min_width=4, no_wrap=True)
        for token, row, favourite in zip(facts["query_tokens"], head["rows"], head["looks_most_at"], strict=True):
            most = max((weight for weight in row if weight is not None), default=None)
            told = "nothing" if most is None else f"{favourite} ({most:.2f})"
            table.add_row(Text(f"  {token}"), *((Text(told),) if is_wide else map(_shaded, row)))
        console.print(table)


def _choice(step: "Step | None") -> str:
    if step is None:
        return "ended"
    probability = step.probabilities[step.candidates.index(step.choice)] if step.choice in step.candidates else None
    return step.choice if probability is None else f"{step.choice} ({probability:.3f})"


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
    return (
        ", ".join(f"p({name}) {was:.3f} → {was + change:.3f}" for change, name, was in told[:_MOST_CANDIDATES])
        or "nothing"
    )


def _shaded(weight: float | None) -> Text:
    """Write a weight on a background as blue as it is great; None is what may not be looked at."""
    if weight is None:
        return Text("·", style="dim")
    red, green, blue = (round(255 + (end - 255) * weight) for end in (59, 91, 219))
    ink = "white" if weight > 0.5 else "black"
    return Text(f"{weight:.2f}", style=f"{ink} on rgb({red},{green},{blue})")
