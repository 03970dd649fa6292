"""Figures of traces: the choice at each step with its probability, and the heads' weights."""

import textwrap
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from attnlab.draw.attention.names import fonts, name_axis, token_words
from attnlab.draw.attention.shades import draw_shades, state_scale
from attnlab.draw.colors import STRONG
from attnlab.draw.pictures.look import INK, MUTED, PAPER, new_figure, safe_text
from attnlab.draw.sections import Traces
from attnlab.errors import WrongUsage, type_words
from attnlab.look.heads import head_at
from attnlab.look.trace import HeadTrace, Step, Trace

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MAX_CANDIDATES = 12
_MAX_HEADS = 16
_MAX_TOKENS = 24  # of the input and of the choices, in the title
_MAX_COLUMNS = 4
_HEAD_INCHES = 2.5
_MAP_INCHES = 1.5  # of the longer side of a head's map
_LETTER = 0.092  # width of a letter of the title in inches


def draw_trace(trace: Any, *, heads: Sequence[tuple[str, int]] | None = None) -> "Figure":
    """Draw one generation: probabilities of the candidates at each step, and the heads' weights.

    Choices are framed. If there are many candidates, the chosen and the likeliest are shown; the
    figure says how many are left out.

    Args:
        trace: the result of `attnlab.look.trace`.
        heads: the (site, head) to draw; None for all, at most sixteen.

    Returns:
        the figure of matplotlib.

    Raises:
        WrongUsage: not a trace, no such head, or more than can be shown.
        CouldNotRun: matplotlib is missing.
    """
    if not isinstance(trace, Trace):
        hint = "a recording is drawn with draw_heads or write_view."
        if isinstance(trace, Sequence) and trace and isinstance(trace[0], Trace):
            hint = "there is one trace for each prompt: draw_trace(traces[0])."
        raise WrongUsage(
            f"draw_trace draws the result of attnlab.look.trace; got {type_words(trace)}: {hint}"
        )
    shown_heads = _chosen_heads(trace.attention, heads)
    across = min(_MAX_COLUMNS, max(2, len(shown_heads)))
    down = -(-len(shown_heads) // across)
    step_inches = 0.5 + 0.3 * max(1, len(trace.steps))
    width = max(6.4, 2.25 * across)
    lines = _title_lines(trace, int(width / _LETTER))
    figure = new_figure(width, 0.5 + 0.2 * len(lines) + step_inches + _HEAD_INCHES * down)
    figure.suptitle(
        "\n".join(lines), fontsize=11, x=0.01, ha="left", color=INK, fontfamily=fonts() or None
    )
    grid = figure.add_gridspec(
        1 + down, across, height_ratios=[step_inches, *[_HEAD_INCHES] * down]
    )
    _draw_steps(figure, figure.add_subplot(grid[0, :]), trace, step_inches)
    for index, head in enumerate(shown_heads):
        axes = figure.add_subplot(grid[1 + index // across, index % across])
        _draw_head(figure, axes, head, trace.tokens, is_last=index == len(shown_heads) - 1)
    return figure


def trace_figure(section: Traces) -> "Figure":
    """Draw the trace whose input is `figure_input`, or the first, with its first heads."""
    wanted = list(section.figure_input or ())
    matching = [trace for trace in section.traces if list(trace.input) == wanted]
    trace = (matching or section.traces)[0]
    heads = [(head.site, head.head) for head in trace.attention[:_MAX_HEADS]]
    return draw_trace(trace, heads=heads)


def _chosen_heads(
    attention: Sequence[HeadTrace], heads: Sequence[tuple[str, int]] | None
) -> Sequence[HeadTrace]:
    if heads is None:
        if len(attention) > _MAX_HEADS:
            first = attention[0]
            raise WrongUsage(
                f"the trace has {len(attention)} heads and a figure shows at most {_MAX_HEADS}; "
                f"choose some, such as heads=[({first.site!r}, {first.head})]."
            )
        return attention
    known = {(head.site, head.head): head for head in attention}
    chosen = []
    for place in heads:
        site, number = place
        if (site, number) not in known:
            listed = ", ".join(map(str, known)) or "none"
            raise WrongUsage(f"the trace has no head {place}; it has {listed}.")
        chosen.append(known[site, number])
    return chosen


def _title_lines(trace: Trace, letters: int) -> list[str]:
    """Return the input and the choices, on one line or each on one or two of its own."""
    parts = [_first_tokens(trace.input)]
    if trace.steps:
        parts.append(f"→  {_first_tokens(trace.choices)}")
    line = "  ".join(parts)
    if len(line) <= letters:
        return [line]
    lines = []
    for part in parts:
        lines += textwrap.wrap(part, letters, max_lines=2, placeholder=" …")
    return lines


def _first_tokens(tokens: Sequence[str]) -> str:
    words = list(map(token_words, tokens[:_MAX_TOKENS]))
    if len(tokens) > _MAX_TOKENS:
        words.append("…")
    return " ".join(words)


def _draw_steps(figure: "Figure", axes: Any, trace: Trace, inches: float) -> None:
    """Draw a row for each step and a column for each candidate, with the choice framed."""
    steps = trace.steps
    if not steps:
        axes.set_axis_off()
        axes.text(0, 0.5, "No token was chosen.", color=MUTED, fontsize=9)
        return
    names, num_left_out = _candidates(steps)
    table = np.full((len(steps), len(names)), np.nan)
    for i, step in enumerate(steps):
        chances = dict(zip(step.candidates, step.probabilities, strict=True))
        table[i] = _floats(map(chances.get, names))
    picture = draw_shades(axes, table, scale="linear", high=1.0, aspect="auto")
    for i, step in enumerate(steps):
        _frame_choice(axes, names.index(step.choice), i, table)
    rows = [f"{i}.  after {_before(trace, step)}" for i, step in enumerate(steps, 1)]
    axes.set_yticks(range(len(steps)), rows, fontfamily=fonts() or None)
    axes.set_xticks(range(len(names)), _short(names, 10), fontfamily=fonts() or None)
    axes.tick_params(length=0, labelcolor=INK, labelsize=8)
    title = "Candidates at each step, the choice framed"
    if num_left_out:
        title += f"; {num_left_out:,} less likely ones left out"
    axes.set_title(title, fontsize=9.5, loc="left", color=INK)
    state_scale(figure, axes, picture, "probability", inches=inches)


def _before(trace: Trace, step: Step) -> str:
    if step.position is not None:
        return token_words(trace.tokens[step.position], 10)
    if step.place is None:
        return "all"
    return f"all, at {step.place}"


def _candidates(steps: Sequence[Step]) -> tuple[list[str], int]:
    """Return the chosen and likeliest candidates in their first order, and how many are left."""
    most: dict[str, float] = {}
    for step in steps:
        for name, chance in zip(step.candidates, step.probabilities, strict=True):
            most[name] = max(most.get(name, 0.0), chance or 0.0)
    chosen = {step.choice for step in steps}
    for name in chosen:
        most.setdefault(name, 0.0)
    ranking = sorted(most, key=lambda name: (name not in chosen, -most[name]))
    kept = set(ranking[: max(_MAX_CANDIDATES, len(chosen))])
    return [name for name in most if name in kept], len(most) - len(kept)


def _frame_choice(axes: Any, column: int, row: int, table: Any) -> None:
    """Frame the choice of a step, and write its probability if it is known."""
    from matplotlib.patches import Rectangle

    corner, chance = (column - 0.47, row - 0.45), table[row, column]
    axes.add_patch(Rectangle(corner, 0.94, 0.9, fill=False, edgecolor=INK, linewidth=1.8))
    if np.isfinite(chance):
        color = PAPER if chance > STRONG else INK
        place = {"ha": "center", "va": "center"}
        axes.text(column, row, f"{chance:.3f}", fontsize=7.5, color=color, **place)


def _draw_head(
    figure: "Figure", axes: Any, head: HeadTrace, tokens: Sequence[str], *, is_last: bool
) -> None:
    """Draw the weights of one head; keys beyond the end of a row are masked."""
    rows, keys = head.rows, head.key_tokens
    if not keys:
        keys = tuple(tokens[: max(map(len, rows), default=0)])
    num_keys = len(keys)
    table = np.full((max(1, len(rows)), max(1, num_keys)), np.nan)
    for i, row in enumerate(rows):
        table[i, : len(row)] = _floats(row)
    picture = draw_shades(axes, table, scale="linear", high=1.0)
    cell = _MAP_INCHES / max(table.shape)
    name_axis(axes.yaxis, tokens[: len(rows)], cell)
    name_axis(axes.xaxis, keys, cell)
    title = safe_text(f"head {head_at(head.site, head.head)}", 34)
    axes.set_title(title, fontsize=8, loc="left", color=INK)
    if is_last:
        state_scale(figure, axes, picture, "weight", inches=_HEAD_INCHES - 0.8)


def _floats(values: Iterable[float | None]) -> Any:
    """Return an array, NaN for None."""
    return np.array(list(values), np.float64)


def _short(names: Sequence[str], most: int) -> list[str]:
    return [token_words(name, most) for name in names]
