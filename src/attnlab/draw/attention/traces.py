"""A trace as a figure: the tokens, what was chosen at each step and how surely, and where every head looked."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from attnlab.draw.attention.names import fonts, token_words
from attnlab.draw.attention.shading import draw_shades, state_scale
from attnlab.draw.pictures.look import INK, MUTED, PAPER, new_figure, shown
from attnlab.errors import WrongUsage
from attnlab.look.heads import head_at

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["draw_trace"]

_MOST_CANDIDATES = 12
_MOST_HEADS = 16
_ACROSS = 4
_HEAD_INCHES = 2.5
_LETTER = 0.092  # inches of a letter of the sentence at the top


def draw_trace(trace: Any, *, heads: Sequence[tuple[str, int]] | None = None) -> "Figure":
    """Draw one generation: steps by candidates with the choice framed, and below it the weights of the heads.

    Of many candidates those are shown that were chosen, or were likely, at some step; the figure says how many are not.

    Args:
        trace: what `attnlab.look.trace` gives, or its mapping.
        heads: the (site, head) to draw; None for all, at most sixteen.

    Raises:
        WrongUsage: not a trace, no such head, or more than can be shown.
        CouldNotRun: matplotlib is missing.
    """
    told = _told(trace)
    shown_heads = _chosen_heads(told["attention"], heads)
    steps = told["steps"]
    across = min(_ACROSS, max(2, len(shown_heads)))
    down = -(-len(shown_heads) // across)
    step_inches = 0.5 + 0.3 * max(1, len(steps))
    width = max(6.4, 2.25 * across)
    lines = _sentence(told, int(width / _LETTER))
    figure = new_figure(width, 0.5 + 0.2 * len(lines) + step_inches + _HEAD_INCHES * down)
    figure.suptitle("\n".join(lines), fontsize=11, x=0.01, ha="left", color=INK, fontfamily=fonts() or None)
    grid = figure.add_gridspec(1 + down, across, height_ratios=[step_inches, *[_HEAD_INCHES] * down])
    _draw_steps(figure, figure.add_subplot(grid[0, :]), told, step_inches)
    for index, head in enumerate(shown_heads):
        axes = figure.add_subplot(grid[1 + index // across, index % across])
        _draw_head(figure, axes, head, told["tokens"], is_last=index == len(shown_heads) - 1)
    return figure


def _told(trace: Any) -> Mapping[str, Any]:
    if isinstance(trace, Mapping) and {"input", "tokens", "steps", "attention"} <= set(trace):
        return trace
    if hasattr(trace, "to_mapping") and hasattr(trace, "steps"):
        told: Mapping[str, Any] = trace.to_mapping()
        return told
    kind = type(trace).__name__
    many = isinstance(trace, Sequence) and bool(trace) and hasattr(trace[0], "to_mapping")
    hint = (
        "there is one trace for each prompt: draw_trace(traces[0])."
        if many
        else "a recording is drawn with draw_heads or write_view."
    )
    raise WrongUsage(f"draw_trace draws a trace, as attnlab.look.trace gives, or its mapping; got a {kind}: {hint}")


def _chosen_heads(
    attention: Sequence[Mapping[str, Any]], heads: Sequence[tuple[str, int]] | None
) -> list[Mapping[str, Any]]:
    if heads is None:
        if len(attention) > _MOST_HEADS:
            raise WrongUsage(
                f"the trace has {len(attention)} heads, of which a figure shows {_MOST_HEADS}; say which, such as "
                f"heads=[({attention[0]['site']!r}, {attention[0]['head']})]."
            )
        return list(attention)
    known = {(head["site"], head["head"]): head for head in attention}
    missing = [each for each in heads if tuple(each) not in known]
    if missing:
        raise WrongUsage(f"the trace has no head {missing[0]}; it has {', '.join(map(str, known)) or 'none'}.")
    return [known[site, head] for site, head in heads]


def _sentence(told: Mapping[str, Any], letters: int) -> list[str]:
    """The input and what was chosen, on one line where they find room, else each on one or two of its own."""
    most = 24
    given = [token_words(token) for token in told["input"]]
    picks = [token_words(step["choice"]) for step in told["steps"]]
    told_words = [" ".join(words[:most] + ["…"] * (len(words) > most)) for words in (given, picks)]
    parts = [told_words[0], f"→  {told_words[1]}"] if picks else told_words[:1]
    line = "  ".join(parts)
    if len(line) <= letters:
        return [line]
    return [line for part in parts for line in textwrap.wrap(part, letters, max_lines=2, placeholder=" …")]


def _draw_steps(figure: "Figure", axes: Any, told: Mapping[str, Any], inches: float) -> None:
    """Steps are rows, candidates are columns; the choice is framed and its probability written out."""
    steps = told["steps"]
    if not steps:
        axes.set_axis_off()
        axes.text(0, 0.5, "No token was chosen.", color=MUTED, fontsize=9)
        return
    names, num_left_out = _candidates(steps)
    table = np.full((len(steps), len(names)), np.nan)
    for i, step in enumerate(steps):
        chances = dict(zip(step["candidates"], step["probabilities"], strict=True))
        table[i] = [np.nan if chances.get(name) is None else chances[name] for name in names]
    picture = draw_shades(axes, table, scale="linear", high=1.0, aspect="auto")
    for i, step in enumerate(steps):
        j = names.index(step["choice"])
        axes.add_patch(_frame(j, i))
        if np.isfinite(table[i, j]):
            colour = PAPER if table[i, j] > 0.52 else INK
            axes.text(j, i, f"{table[i, j]:.3f}", ha="center", va="center", fontsize=7.5, color=colour)
    rows = [f"{i + 1}.  after {_before(told, step)}" for i, step in enumerate(steps)]
    axes.set_yticks(range(len(steps)), rows, fontfamily=fonts() or None)
    axes.set_xticks(range(len(names)), [token_words(name, 10) for name in names], fontfamily=fonts() or None)
    axes.tick_params(length=0, labelcolor=INK, labelsize=8)
    rest = f"; {num_left_out:,} less likely ones left out" if num_left_out else ""
    axes.set_title(f"Candidates at each step, the choice framed{rest}", fontsize=9.5, loc="left", color=INK)
    state_scale(figure, axes, picture, "probability", inches=inches)


def _before(told: Mapping[str, Any], step: Mapping[str, Any]) -> str:
    place = step["position"]
    if place is None:
        return "all" if step.get("place") is None else f"all, at {step['place']}"
    return token_words(told["tokens"][place], 10)


def _candidates(steps: Sequence[Mapping[str, Any]]) -> tuple[list[str], int]:
    """Those that were chosen come first, then the likeliest; all in the order of the first step that has them."""
    most: dict[str, float] = {}
    for step in steps:
        for name, chance in zip(step["candidates"], step["probabilities"], strict=True):
            most[name] = max(most.get(name, 0.0), chance or 0.0)
    chosen = {step["choice"] for step in steps}
    for name in chosen:
        most.setdefault(name, 0.0)
    ranking = sorted(most, key=lambda name: (name not in chosen, -most[name]))
    kept = set(ranking[: max(_MOST_CANDIDATES, len(chosen))])
    return [name for name in most if name in kept], len(most) - len(kept)


def _frame(column: int, row: int) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((column - 0.47, row - 0.45), 0.94, 0.9, fill=False, edgecolor=INK, linewidth=1.8)


def _draw_head(figure: "Figure", axes: Any, head: Mapping[str, Any], tokens: Sequence[str], *, is_last: bool) -> None:
    """Weights of one head; keys beyond the end of a row could not be seen."""
    rows = head["rows"]
    keys = head.get("key_tokens") or tokens
    num_keys = len(keys) if head.get("key_tokens") else max(map(len, rows), default=0)
    table = np.full((max(1, len(rows)), max(1, num_keys)), np.nan)
    for i, row in enumerate(rows):
        table[i, : len(row)] = [np.nan if weight is None else weight for weight in row]
    picture = draw_shades(axes, table, scale="linear", high=1.0)
    for axis, names in ((axes.yaxis, tokens[: len(rows)]), (axes.xaxis, keys[:num_keys])):
        stride = max(1, -(-len(names) // 12))
        axis.set_ticks(
            range(0, len(names), stride),
            [token_words(name, 8) for name in names[::stride]],
            fontfamily=fonts() or None,
        )
        axis.set_tick_params(length=0, labelcolor=INK, labelsize=7)
        if stride > 1:
            axis.set_label_text(f"every {stride} named", color=MUTED, fontsize=7)
    if max((len(token_words(name, 8)) for name in keys[:num_keys]), default=0) > 2:
        axes.xaxis.set_tick_params(rotation=90)
    axes.set_title(shown(f"head {head_at(head['site'], head['head'])}", 34), fontsize=8, loc="left", color=INK)
    if is_last:
        state_scale(figure, axes, picture, "weight", inches=_HEAD_INCHES - 0.8)
