"""A sweep's report: phase diagrams over its axes, curves with intervals, and every cell's numbers."""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attnlab.experiments.experiment import Goal
from attnlab.experiments.sections import goal_section
from attnlab.experiments.sweeps.axes import Axis, shown
from attnlab.experiments.sweeps.outcome import CellOutcome, Outcome

__all__ = ["make_document"]

_LEAST_SPAN = 0.1  # of the shades of a map, as a share of its greatest value
_MOST_CURVES = 8  # that can be told apart
_WIDE = 10  # an axis whose last value is so many times its first is drawn with a logarithmic scale
_MOST_ROWS = 1_000  # of a table in the page; the CSV holds all

Pick = Callable[[CellOutcome], float | None]


def make_document(
    experiment: str,
    outcome: Outcome,
    fixed: Mapping[str, Any],
    facts: Mapping[str, str],
    goals: Sequence[Goal] = (),
) -> dict[str, Any]:
    """Lay out what was found.

    Args:
        experiment: its name.
        outcome: of all cells trained so far.
        fixed: the settings that no axis changes.
        facts: how it was computed, to be shown on top.
        goals: what is learned in the cells, each task once.
    """
    grid = outcome.grid
    solved = sum(member.solved_at is not None for member in outcome.members)
    cells = f"{len(grid.cells):,} cells of {len(grid.seeds):,} {'seed' if len(grid.seeds) == 1 else 'seeds'}"
    refused = sum(cell.config is None for cell in grid.cells)
    if refused:
        cells += f", {refused:,} of which could not be made (values that do not go together)"
    sections = [
        goal_section(goals) if goals else None,
        _phase_diagram(outcome),
        _curves(outcome),
        _other_figures(outcome, goals),
        _table(outcome),
        _blanks(outcome),
        _faults(outcome),
        _again(experiment, outcome, fixed),
        _settings(fixed),
    ]
    return {
        "title": f"{experiment}: {' × '.join(axis.name for axis in grid.axes)}",
        "subtitle": f"{cells}: {solved:,} of {len(outcome.members):,} models learned to do the task",
        "facts": [[name, value] for name, value in facts.items()],
        "sections": [section for section in sections if section is not None],
    }


def _phase_diagram(outcome: Outcome) -> dict[str, Any] | None:
    axes = outcome.grid.axes
    if len(axes) < 2:
        return None
    return {
        "kind": "maps",
        "title": "Where it can be learned",
        "caption": f"{_success_words(outcome)} Rows: {_named(axes[0])}. Columns: {_named(axes[1])}. "
        "Every cell's interval stands in the table.",
        "choices": _choices(
            outcome, {"share of seeds that learn it": lambda cell: cell.success.value}, ends=(0.0, 1.0)
        ),
        "figure": "success",
    }


def _curves(outcome: Outcome) -> dict[str, Any] | None:
    """Draw success along one axis, a curve for each value of the other; where neither has numbers, as bars."""
    axes = outcome.grid.axes
    along, others = _along(axes)
    if along is None:
        return None
    series: list[dict[str, Any]] = []
    for rest in itertools.product(*(other.values for other in others)):
        fixed = dict(zip([other.name for other in others], rest, strict=True))
        cells = [_at(outcome, {**fixed, along.name: value}) for value in along.values]
        intervals = [(None, None, None) if cell is None else tuple(cell.success) for cell in cells]
        share, low, high = (list(column) for column in zip(*intervals, strict=True))
        if all(cell is None for cell in cells) and series:
            continue  # values that do not go together, whatever the axis
        name = ", ".join(f"{name} {shown(value)}" for name, value in fixed.items()) or "success rate"
        series.append({"name": name, "share": share, "low": low, "high": high})
    words = {
        "title": "Success rate, with intervals",
        "caption": f"{_success_words(outcome)} Along: {_named(along)}. "
        f"{'Bands' if along.is_numeric else 'Whiskers'} are 95 % intervals (Wilson).",
        "y_label": "share of seeds that learn it",
    }
    if not along.is_numeric:
        return {
            "kind": "bars",
            **words,
            "groups": along.words(),
            "series": [{"values": each.pop("share"), **each} for each in series],
            "figure": "success-rate",
        }
    low, high = along.values[0], along.values[-1]
    return {
        "kind": "lines",
        **words,
        "x_label": along.name,
        "from_zero": True,
        "series": [{"x": list(along.values), "y": each.pop("share"), **each} for each in series],
        "x_log": min(along.values) > 0 and max(low, high) >= _WIDE * min(low, high),
        "figure": "success-rate",
    }


def _along(axes: Sequence[Axis]) -> tuple[Axis | None, list[Axis]]:
    """Choose the axis that curves run along: the last with numbers, else the last; none where curves are too many."""
    last_first = list(reversed(axes))
    for along in sorted(last_first, key=lambda axis: not axis.is_numeric):
        others = [axis for axis in axes if axis is not along]
        if math.prod(len(axis.values) for axis in others) <= _MOST_CURVES:
            return along, others
    return None, []


def _other_figures(outcome: Outcome, goals: Sequence[Goal]) -> dict[str, Any] | None:
    axes = outcome.grid.axes
    picks: dict[str, Pick] = {
        "step at which it was first able": lambda cell: cell.solved_at,
        f"training {_loss_words(goals)} at the end": lambda cell: cell.loss,
    }
    picks |= {_plain(name): _figure(name) for name in outcome.figures}
    if len(axes) < 2:
        return None
    return {
        "kind": "maps",
        "title": "What else was measured",
        "caption": " ".join(
            [
                "Medians over each cell's seeds, of the weights kept. The step is blank where half of the seeds or "
                "more never could do the task.",
                *(f"{_plain(name)}: {text}" for name, text in _meanings(goals).items() if name in outcome.figures),
            ]
        ),
        "choices": _choices(outcome, picks),
        "figure": "figures",
    }


def _loss_words(goals: Sequence[Goal]) -> str:
    names = list(dict.fromkeys(goal.loss for goal in goals))
    return names[0] if len(names) == 1 else "loss"


def _meanings(goals: Sequence[Goal]) -> dict[str, str]:
    return {name: text for goal in goals for name, text in goal.meanings}


def _figure(name: str) -> Pick:
    return lambda cell: cell.figures.get(name)


def _choices(
    outcome: Outcome, picks: Mapping[str, Pick], ends: tuple[float, float] | None = None
) -> list[dict[str, Any]]:
    """Make maps over the first two axes, for each combination of the others; `ends` are those of the shades."""
    rows, columns, *others = outcome.grid.axes
    choices = []
    for rest in itertools.product(*(other.values for other in others)):
        fixed = dict(zip([other.name for other in others], rest, strict=True))
        maps = []
        for title, pick in picks.items():
            values = [
                [
                    None if cell is None else pick(cell)
                    for column in columns.values
                    for cell in [_at(outcome, {rows.name: row, columns.name: column, **fixed})]
                ]
                for row in rows.values
            ]
            low, high = ends or _range([value for line in values for value in line if value is not None])
            maps.append(
                {
                    "title": title,
                    "rows": values,
                    "row_labels": rows.words(),
                    "column_labels": columns.words(),
                    "row_title": rows.name,
                    "column_title": columns.name,
                    "low": low,
                    "high": high,
                }
            )
        choices.append({"label": " ".join(f"{n}={shown(v)}" for n, v in fixed.items()), "note": "", "maps": maps})
    return choices


def _range(values: Sequence[float]) -> tuple[float, float]:
    """Choose where shades begin and end: at round numbers around the values, or, where some are below 0, around 0."""
    least, most = min(values, default=0.0), max(values, default=0.0)
    if least < 0:
        end = _rounded(max(-least, most), math.ceil, max(-least, most))
        return -end, end
    span = max(most - least, _LEAST_SPAN * most) or 1.0  # values that are all but alike look alike
    middle = (least + most) / 2
    end = 1.0 if most <= 1 else math.inf  # shares end at 1
    most = min(end, max(most, middle + span / 2))
    least = max(0.0, min(least, most - span))
    low, high = _rounded(least, math.floor, span), _rounded(most, math.ceil, span)
    return (low, high) if low < high else (0.0, high or 1.0)


def _rounded(value: float, towards: Callable[[float], int], span: float) -> float:
    """Round to a tenth of the power of ten that a span has."""
    unit = 10.0 ** (math.floor(math.log10(span)) - 1)
    return float(f"{towards(value / unit) * unit:.10g}")


def _table(outcome: Outcome) -> dict[str, Any]:
    axes = outcome.grid.axes
    rows = [
        [
            *(shown(value) if not axis.is_numeric else value for axis, value in zip(axes, _values(cell), strict=True)),
            f"{cell.solved}/{len(cell.members)}",
            cell.success.value,
            cell.success.low,
            cell.success.high,
            cell.solved_at,
            cell.loss,
            *(cell.figures.get(name) for name in outcome.figures),
            cell.broken,
        ]
        for cell in outcome.cells
        if cell is not None
    ]
    left_out = f" The first {_MOST_ROWS:,} cells are shown; table.csv holds all." if len(rows) > _MOST_ROWS else ""
    return {
        "kind": "table",
        "title": "Cells",
        "caption": "The share of seeds that learned to do the task, with its 95 % interval (Wilson); medians of the "
        f"rest. Every single model stands in table.csv.{left_out}",
        "columns": [
            *(axis.name for axis in axes),
            "learned",
            "share",
            "low",
            "high",
            "first step",
            "loss",
            *map(_plain, outcome.figures),
            "broken",
        ],
        "rows": rows[:_MOST_ROWS],
    }


def _blanks(outcome: Outcome) -> dict[str, Any] | None:
    """Say which cells make no sense."""
    rows = [[cell.name, cell.refusal] for cell in outcome.grid.cells if cell.config is None]
    if not rows:
        return None
    return {
        "kind": "table",
        "title": "Cells that stay blank",
        "caption": "These values do not go together.",
        "columns": ["cell", "why"],
        "rows": rows[:_MOST_ROWS],
    }


def _faults(outcome: Outcome) -> dict[str, Any] | None:
    """Say which models broke."""
    rows = [[outcome.grid.cells[m.cell].name, m.seed, m.fault] for m in outcome.members if m.fault]
    if not rows:
        return None
    return {
        "kind": "table",
        "title": "Models that broke",
        "caption": "Their loss or gradient was no longer finite.",
        "columns": ["cell", "seed", "what happened"],
        "rows": rows[:_MOST_ROWS],
    }


def _again(experiment: str, outcome: Outcome, fixed: Mapping[str, Any]) -> dict[str, Any] | None:
    """Say how the models of a cell can be looked at."""
    cells = [cell for cell in outcome.cells if cell is not None]
    if not cells:
        return None
    # The cell that is hardest to call is the one worth looking into.
    cell = min(cells, key=lambda each: abs(each.success.value - 0.5))
    seeds = outcome.grid.seeds
    settings = " ".join([cell.cell.name, *(f"{name}={shown(value)}" for name, value in fixed.items())])
    return {
        "kind": "text",
        "title": "Look into a cell",
        "text": "A sweep keeps numbers, not weights. The same models are made again, with their heads, curves and "
        f"traces, by naming a cell's settings, such as:\n`attnlab run {experiment} --seeds {len(seeds)} "
        f"--seed {seeds[0]} --set {settings}`",
    }


def _settings(fixed: Mapping[str, Any]) -> dict[str, Any] | None:
    if not fixed:
        return None
    return {
        "kind": "table",
        "title": "Settings of all cells",
        "caption": "Those that were set; the others are the experiment's own.",
        "columns": ["setting", "value"],
        "rows": [[name, shown(value)] for name, value in fixed.items()],
    }


def _at(outcome: Outcome, fields: Mapping[str, Any]) -> CellOutcome | None:
    """Return the cell with these values."""
    place = 0
    for axis in outcome.grid.axes:
        place = place * len(axis.values) + axis.values.index(fields[axis.name])
    return outcome.cells[place]


def _values(cell: CellOutcome) -> list[Any]:
    return list(cell.cell.fields.values())


def _success_words(outcome: Outcome) -> str:
    return (
        f"Of {len(outcome.grid.seeds):,} seeds, the share that could do the task when judged. A model that broke "
        "counts as one that could not."
    )


def _named(axis: Axis) -> str:
    return f"{axis.name} ({axis.comment.split(';')[0]})"


def _plain(name: str) -> str:
    return name.replace("_", " ")
