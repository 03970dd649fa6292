"""A sweep's report: phase diagrams over its axes, success curves, and every cell's numbers."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from attnlab.configs import Fields
from attnlab.display import plural
from attnlab.draw import sections as draw
from attnlab.experiments.experiment import ProblemDescription
from attnlab.experiments.sections import filled, problem_section
from attnlab.experiments.sweeps.axes import Axis, typed_fields, typed_value
from attnlab.experiments.sweeps.outcome import CellOutcome, SweepOutcome
from attnlab.experiments.sweeps.plan import Plan

TALLIED = ["solved", "share", "low", "high", "first step", "loss"]
"""The columns of `tallied`."""

_MAX_ROWS = 1_000  # of a table in the page; the CSV holds all
_MOST_CURVES = 8  # that can be told apart
_WIDE = 10  # an axis whose largest value is so many times its smallest has a logarithmic scale
_SHARE = "share of seeds that solve the problem"


def make_content(plan: Plan, outcome: SweepOutcome, facts: Mapping[str, str]) -> draw.ReportContent:
    """Make the report's content.

    Args:
        plan: of the sweep.
        outcome: of all cells trained so far.
        facts: how it was computed, shown at the top.
    """
    axes, seeds = outcome.axes, len(outcome.seeds)
    solved = sum(member.solved_at is not None for member in outcome.members)
    impossible = [[cell.name, cell.refusal] for cell in outcome.refused]
    cells = f"{len(outcome.grid):,} cells of {seeds:,} {plural(seeds, 'seed')}"
    if impossible:
        cells += f", {len(impossible):,} of which are impossible (their values cannot be combined)"
    problems = plan.problems(outcome.grid)
    sections: list[draw.Section | None] = [problem_section(problems)]
    if len(axes) > 1:
        sections.append(_diagram(outcome))
    sections.append(_curves(outcome))
    sections += [
        _cells(outcome, problems),
        listed("Impossible cells", "Their values cannot be combined.", ["cell", "why"], impossible),
        _diverged(outcome),
        _again(plan, outcome),
        listed(
            "Settings of all cells",
            "Those that were set; the others have the defaults.",
            ["setting", "value"],
            setting_rows(plan.fixed),
        ),
    ]
    return draw.ReportContent(
        title=f"{plan.experiment}: {' × '.join(axis.name for axis in axes)}",
        subtitle=f"{cells}: {solved:,} of {len(outcome.members):,} models solved the problem",
        facts=list(facts.items()),
        sections=filled(sections),
    )


def _diverged(outcome: SweepOutcome) -> draw.Table:
    """List the models that diverged: cell, seed, what happened."""
    rows: list[list[draw.Scalar]] = []
    for member in outcome.members:
        if member.fault:
            rows.append([outcome.grid[member.cell].name, member.seed, member.fault])
    caption = "Their loss or gradient was no longer finite."
    return listed("Models that diverged", caption, ["cell", "seed", "what happened"], rows)


def listed(title: str, caption: str, columns: list[str], rows: Sequence[list[Any]]) -> draw.Table:
    """Make a table of the first rows."""
    if len(rows) > _MAX_ROWS:
        caption += f" The first {_MAX_ROWS:,} are shown."
    return draw.Table(title=title, caption=caption, columns=columns, rows=rows[:_MAX_ROWS])


def setting_rows(fixed: Fields) -> list[list[str]]:
    """Return a row for each setting that no axis changes."""
    return [[name, typed_value(value)] for name, value in fixed.items()]


def tallied(cell: CellOutcome) -> list[draw.Scalar]:
    """Return the cells of a table that say how many models solved the problem, and when."""
    return [f"{cell.solved}/{cell.seeds}", *cell.share, cell.solved_at, cell.loss]


def run_command(plan: Plan, cell: CellOutcome, seeds: int, first: int) -> str:
    """Return the command that trains the models of a setting."""
    settings = typed_fields({**cell.fields, **plan.fixed})
    return f"`attnlab run {plan.experiment} --seeds {seeds} --seed {first} --set {settings}`"


def _success_words(outcome: SweepOutcome) -> str:
    return (
        f"The share of {len(outcome.seeds):,} seeds that solved the problem at an evaluation; a "
        "model that diverged did not."
    )


def _diagram(outcome: SweepOutcome) -> draw.Maps:
    """Map the success over the first two axes, for each combination of the others."""
    rows, columns, *others = outcome.axes
    cells, choices = _array(outcome), []
    for place in np.ndindex(cells.shape[2:]):
        shares = []
        for line in cells[:, :, *place]:
            shares.append([cell.share.value if cell.seeds else None for cell in line])
        titles = (rows.name, columns.name)
        drawn = draw.Heatmap.of_weights(_SHARE, shares, rows.labels(), columns.labels(), titles)
        choices.append(
            draw.MapChoice(label=typed_fields(_values(others, place)), note="", maps=[drawn])
        )
    return draw.Maps(
        title="Where it can be learned",
        caption=f"{_success_words(outcome)} Rows: {_named(rows)}. Columns: {_named(columns)}. "
        "Every cell's interval is in the table.",
        figure="success",
        choices=choices,
    )


def _curves(outcome: SweepOutcome) -> draw.Bars | draw.Lines | None:
    """Draw success along one axis, a curve for each value of the others."""
    along = _along(outcome.axes)
    if along is None:
        return None
    intervals = "Bands" if along.is_numeric else "Whiskers"
    words: dict[str, Any] = {
        "title": "Success rate, with intervals",
        "caption": f"{_success_words(outcome)} Along: {_named(along)}. {intervals} are 95 % "
        "intervals (Wilson).",
        "y_label": _SHARE,
        "figure": "success-rate",
    }
    series = _success_series(outcome, along)
    if not along.is_numeric:
        return draw.Bars(**words, groups=along.labels(), series=series)
    low, high = min(along.values), max(along.values)
    x, lines = list(along.values), []
    for bars in series:
        curve = draw.Series(name=bars.name, x=x, y=bars.values, low=bars.low, high=bars.high)
        lines.append(curve)
    return draw.Lines(
        **words,
        x_label=along.name,
        from_zero=True,
        series=lines,
        x_log=low > 0 and high >= _WIDE * low,
    )


def _along(axes: Sequence[Axis]) -> Axis | None:
    """Choose the axis that curves run along: the last numeric one, else the last.

    Return None if there are too many curves along every axis.
    """
    num_cells = math.prod(len(axis.values) for axis in axes)
    last_first = list(reversed(axes))
    for along in sorted(last_first, key=lambda axis: not axis.is_numeric):
        if num_cells // len(along.values) <= _MOST_CURVES:
            return along
    return None


def _success_series(outcome: SweepOutcome, along: Axis) -> list[draw.BarSeries]:
    """Return the success along one axis, for each value of the others."""
    others = [axis for axis in outcome.axes if axis is not along]
    cells = np.moveaxis(_array(outcome), outcome.axes.index(along), -1)
    series: list[draw.BarSeries] = []
    for place in np.ndindex(cells.shape[:-1]):
        line = list(cells[place])
        if series and not any(cell.seeds for cell in line):
            continue  # impossible values
        name = typed_fields(_values(others, place))
        shares = [cell.success or (None, None, None) for cell in line]
        series.append(draw.BarSeries.of_intervals(name or "success rate", shares))
    return series


def _array(outcome: SweepOutcome) -> Any:
    """Return the outcome of each cell in an array with a dimension for each axis."""
    shape = [len(axis.values) for axis in outcome.axes]
    return np.array(outcome.cells, dtype=object).reshape(shape)


def _values(axes: Sequence[Axis], place: Sequence[int]) -> Fields:
    return {axis.name: axis.values[index] for axis, index in zip(axes, place, strict=True)}


def _cells(outcome: SweepOutcome, problems: Sequence[ProblemDescription]) -> draw.Table:
    axes = outcome.axes
    rows = []
    for cell in outcome.trained:
        fields = dict(cell.fields)
        for axis in axes:
            if not axis.is_numeric:
                fields[axis.name] = typed_value(fields[axis.name])
        figures = map(cell.figures.get, outcome.figures)
        rows.append([*fields.values(), *tallied(cell), *figures, cell.broken])
    caption = (
        "The share of seeds that solved the problem, with its 95 % interval (Wilson), and medians "
        "of the other figures. The first step is blank where half of the seeds or more never "
        "solved the problem. Every model is in table.csv."
    )
    meanings: dict[str, str] = {}
    for problem in problems:
        meanings |= dict(problem.meanings)
    for name, text in meanings.items():
        if name in outcome.figures:
            caption += f" {_plain(name)}: {text}"
    return listed(
        "Cells",
        caption,
        [*(axis.name for axis in axes), *TALLIED, *map(_plain, outcome.figures), "diverged"],
        rows,
    )


def _again(plan: Plan, outcome: SweepOutcome) -> draw.Text | None:
    """Give the command that trains the models of a cell again."""
    if not outcome.trained:
        return None
    # The cell nearest to one half is the one worth looking into.
    cell = min(outcome.trained, key=lambda cell: abs(cell.share.value - 0.5))
    command = run_command(plan, cell, len(plan.seeds), plan.seeds[0])
    return draw.Text(
        title="Look into a cell",
        text="A sweep keeps numbers, not weights. This trains the models of a cell again, with "
        f"their heads, curves and traces:\n{command}",
    )


def _named(axis: Axis) -> str:
    return f"{axis.name} ({axis.comment.split(';')[0]})"


def _plain(name: str) -> str:
    return name.replace("_", " ")
