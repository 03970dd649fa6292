"""A sweep's report: phase diagrams over its axes, success curves, and every cell's numbers."""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from attnlab.configs import Fields
from attnlab.draw.sections import (
    Bars,
    BarSeries,
    Heatmap,
    Lines,
    MapChoice,
    Maps,
    ReportContent,
    Scalar,
    Series,
    Table,
    Text,
)
from attnlab.experiments.experiment import ProblemDescription
from attnlab.experiments.sections import filled, problem_section
from attnlab.experiments.sweeps.axes import Axis, shown
from attnlab.experiments.sweeps.outcome import CellOutcome, Outcome

_LEAST_SPAN = 0.1  # of the shades of a map, as a share of its greatest value
_MOST_CURVES = 8  # that can be told apart
_WIDE = 10  # an axis whose largest value is so many times its smallest has a logarithmic scale
_MOST_ROWS = 1_000  # of a table in the page; the CSV holds all

_SHARE = "share of seeds that solve the problem"

Pick = Callable[[CellOutcome], float | None]


def make_content(
    experiment: str,
    outcome: Outcome,
    fixed: Fields,
    facts: Mapping[str, str],
    problems: Sequence[ProblemDescription] = (),
) -> ReportContent:
    """Make the report's content.

    Args:
        experiment: its name.
        outcome: of all cells trained so far.
        fixed: the settings that no axis changes.
        facts: how it was computed, shown at the top.
        problems: those of the cells, each once.
    """
    grid = outcome.grid
    solved = sum(member.solved_at is not None for member in outcome.members)
    seeds = "1 seed" if len(grid.seeds) == 1 else f"{len(grid.seeds):,} seeds"
    cells = f"{len(grid.cells):,} cells of {seeds}"
    refused = sum(cell.config is None for cell in grid.cells)
    if refused:
        cells += f", {refused:,} of which are impossible (their values cannot be combined)"
    sections = [
        problem_section(problems) if problems else None,
        _phase_diagram(outcome),
        _curves(outcome),
        _other_figures(outcome, problems),
        _table(outcome),
        _blanks(outcome),
        _faults(outcome),
        _again(experiment, outcome, fixed),
        _settings(fixed),
    ]
    return ReportContent(
        title=f"{experiment}: {' × '.join(axis.name for axis in grid.axes)}",
        subtitle=f"{cells}: {solved:,} of {len(outcome.members):,} models solved the problem",
        facts=list(facts.items()),
        sections=filled(sections),
    )


def _phase_diagram(outcome: Outcome) -> Maps | None:
    axes = outcome.grid.axes
    if len(axes) < 2:
        return None
    return Maps(
        title="Where it can be learned",
        caption=f"{_success_words(outcome)} Rows: {_named(axes[0])}. Columns: "
        f"{_named(axes[1])}. Every cell's interval is in the table.",
        choices=_choices(
            outcome,
            {_SHARE: lambda cell: cell.success.value},
            ends=(0.0, 1.0),
        ),
        figure="success",
    )


def _curves(outcome: Outcome) -> Bars | Lines | None:
    """Draw success along one axis, a curve for each value of the others."""
    along, others = _along(outcome.grid.axes)
    if along is None:
        return None
    series = _success_series(outcome, along, others)
    title, figure = "Success rate, with intervals", "success-rate"
    caption = f"{_success_words(outcome)} Along: {_named(along)}."
    if not along.is_numeric:
        return Bars(
            title=title,
            caption=f"{caption} Whiskers are 95 % intervals (Wilson).",
            y_label=_SHARE,
            groups=along.words(),
            series=series,
            figure=figure,
        )
    low, high = min(along.values), max(along.values)
    x = list(along.values)
    return Lines(
        title=title,
        caption=f"{caption} Bands are 95 % intervals (Wilson).",
        x_label=along.name,
        y_label=_SHARE,
        from_zero=True,
        series=[
            Series(name=each.name, x=x, y=each.values, low=each.low, high=each.high)
            for each in series
        ],
        x_log=low > 0 and high >= _WIDE * low,
        figure=figure,
    )


def _success_series(outcome: Outcome, along: Axis, others: Sequence[Axis]) -> list[BarSeries]:
    """Return the success along one axis, for each value of the others."""
    series: list[BarSeries] = []
    for fixed in _combinations(others):
        cells = [_at(outcome, {**fixed, along.name: value}) for value in along.values]
        if all(cell is None for cell in cells) and series:
            continue  # impossible values
        name = ", ".join(f"{name} {shown(value)}" for name, value in fixed.items())
        shares = [(None, None, None) if cell is None else cell.success for cell in cells]
        series.append(BarSeries.of_intervals(name or "success rate", shares))
    return series


def _combinations(axes: Sequence[Axis]) -> Iterator[dict[str, Any]]:
    """Yield every combination of the axes' values, by name."""
    names = [axis.name for axis in axes]
    for values in itertools.product(*(axis.values for axis in axes)):
        yield dict(zip(names, values, strict=True))


def _along(axes: Sequence[Axis]) -> tuple[Axis | None, list[Axis]]:
    """Choose the axis that curves run along: the last numeric one, else the last.

    Return None if there are too many curves along every axis.
    """
    last_first = list(reversed(axes))
    for along in sorted(last_first, key=lambda axis: not axis.is_numeric):
        others = [axis for axis in axes if axis is not along]
        if math.prod(len(axis.values) for axis in others) <= _MOST_CURVES:
            return along, others
    return None, []


def _other_figures(outcome: Outcome, problems: Sequence[ProblemDescription]) -> Maps | None:
    axes = outcome.grid.axes
    picks: dict[str, Pick] = {
        "step at which it was first solved": lambda cell: cell.solved_at,
        f"training {_loss_words(problems)} at the end": lambda cell: cell.loss,
    }
    picks |= {_plain(name): _figure(name) for name in outcome.figures}
    if len(axes) < 2:
        return None
    sentences = [
        "Medians over each cell's seeds, of the best weights. The step is blank where half of the "
        "seeds or more never solved the problem."
    ]
    for name, text in _meanings(problems).items():
        if name in outcome.figures:
            sentences.append(f"{_plain(name)}: {text}")
    return Maps(
        title="What else was measured",
        caption=" ".join(sentences),
        choices=_choices(outcome, picks),
        figure="figures",
    )


def _loss_words(problems: Sequence[ProblemDescription]) -> str:
    names = list(dict.fromkeys(problem.loss for problem in problems))
    return names[0] if len(names) == 1 else "loss"


def _meanings(problems: Sequence[ProblemDescription]) -> dict[str, str]:
    return {name: text for problem in problems for name, text in problem.meanings}


def _figure(name: str) -> Pick:
    return lambda cell: cell.figures.get(name)


def _choices(
    outcome: Outcome, picks: Mapping[str, Pick], ends: tuple[float, float] | None = None
) -> list[MapChoice]:
    """Make maps over the first two axes, for each combination of the others."""
    rows, columns, *others = outcome.grid.axes
    choices = []
    for fixed in _combinations(others):
        cells = [
            [
                _at(outcome, {rows.name: row, columns.name: column, **fixed})
                for column in columns.values
            ]
            for row in rows.values
        ]
        maps = []
        for title, pick in picks.items():
            values = [[None if cell is None else pick(cell) for cell in line] for line in cells]
            known = [value for line in values for value in line if value is not None]
            low, high = ends or _range(known)
            maps.append(
                Heatmap(
                    title=title,
                    rows=values,
                    row_labels=rows.words(),
                    column_labels=columns.words(),
                    row_title=rows.name,
                    column_title=columns.name,
                    low=low,
                    high=high,
                )
            )
        choices.append(
            MapChoice(
                label=" ".join(f"{n}={shown(v)}" for n, v in fixed.items()),
                note="",
                maps=maps,
            )
        )
    return choices


def _range(values: Sequence[float]) -> tuple[float, float]:
    """Choose the ends of the shades: round numbers around the values, or symmetric around 0.

    They are symmetric if a value is below 0.
    """
    least, most = min(values, default=0.0), max(values, default=0.0)
    if least < 0:
        end = _rounded(max(-least, most), math.ceil, max(-least, most))
        return -end, end
    span = max(most - least, _LEAST_SPAN * most) or 1.0  # almost equal values get equal shades
    middle = (least + most) / 2
    end = 1.0 if most <= 1 else math.inf  # shares end at 1
    most = min(end, max(most, middle + span / 2))
    least = max(0.0, min(least, most - span))
    low, high = _rounded(least, math.floor, span), _rounded(most, math.ceil, span)
    return (low, high) if low < high else (0.0, high or 1.0)


def _rounded(value: float, towards: Callable[[float], int], span: float) -> float:
    """Round to a tenth of the span's power of ten."""
    unit = 10.0 ** (math.floor(math.log10(span)) - 1)
    return float(f"{towards(value / unit) * unit:.10g}")


def _table(outcome: Outcome) -> Table:
    axes = outcome.grid.axes
    rows = []
    for cell in outcome.cells:
        if cell is None:
            continue
        values = zip(axes, cell.cell.fields.values(), strict=True)
        rows.append(
            [
                *(value if axis.is_numeric else shown(value) for axis, value in values),
                f"{cell.solved}/{len(cell.members)}",
                *cell.success,
                cell.solved_at,
                cell.loss,
                *(cell.figures.get(name) for name in outcome.figures),
                cell.broken,
            ]
        )
    caption = (
        "The share of seeds that solved the problem, with its 95 % interval (Wilson), and medians "
        "of the other figures. Every model is in table.csv."
    )
    if len(rows) > _MOST_ROWS:
        caption += f" The first {_MOST_ROWS:,} cells are shown; table.csv holds all."
    return Table(
        title="Cells",
        caption=caption,
        columns=[
            *(axis.name for axis in axes),
            "solved",
            "share",
            "low",
            "high",
            "first step",
            "loss",
            *map(_plain, outcome.figures),
            "diverged",
        ],
        rows=rows[:_MOST_ROWS],
    )


def _blanks(outcome: Outcome) -> Table:
    """List the impossible cells."""
    rows = [[cell.name, cell.refusal] for cell in outcome.grid.cells if cell.config is None]
    return Table(
        title="Impossible cells",
        caption="Their values cannot be combined.",
        columns=["cell", "why"],
        rows=rows[:_MOST_ROWS],
    )


def _faults(outcome: Outcome) -> Table:
    """List the models that diverged."""
    rows: list[list[Scalar]] = [
        [outcome.grid.cells[member.cell].name, member.seed, member.fault]
        for member in outcome.members
        if member.fault
    ]
    return Table(
        title="Models that diverged",
        caption="Their loss or gradient was no longer finite.",
        columns=["cell", "seed", "what happened"],
        rows=rows[:_MOST_ROWS],
    )


def _again(experiment: str, outcome: Outcome, fixed: Fields) -> Text | None:
    """Give the command that trains the models of a cell again."""
    cells = [cell for cell in outcome.cells if cell is not None]
    if not cells:
        return None
    # The cell nearest to one half is the one worth looking into.
    cell = min(cells, key=lambda each: abs(each.success.value - 0.5))
    seeds = outcome.grid.seeds
    settings = " ".join(
        [cell.cell.name, *(f"{name}={shown(value)}" for name, value in fixed.items())]
    )
    return Text(
        title="Look into a cell",
        text="A sweep keeps numbers, not weights. This trains the models of a cell again, with "
        "their heads, curves and traces:\n`attnlab run "
        f"{experiment} --seeds {len(seeds)} --seed {seeds[0]} --set {settings}`",
    )


def _settings(fixed: Fields) -> Table:
    return Table(
        title="Settings of all cells",
        caption="Those that were set; the others have the experiment's defaults.",
        columns=["setting", "value"],
        rows=[[name, shown(value)] for name, value in fixed.items()],
    )


def _at(outcome: Outcome, fields: Fields) -> CellOutcome | None:
    """Return the cell with these values."""
    place = 0
    for axis in outcome.grid.axes:
        place = place * len(axis.values) + axis.values.index(fields[axis.name])
    return outcome.cells[place]


def _success_words(outcome: Outcome) -> str:
    return (
        f"The share of {len(outcome.grid.seeds):,} seeds that solved the problem at an evaluation; "
        "a model that diverged did not."
    )


def _named(axis: Axis) -> str:
    return f"{axis.name} ({axis.comment.split(';')[0]})"


def _plain(name: str) -> str:
    return name.replace("_", " ")
