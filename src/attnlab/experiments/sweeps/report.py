"""A sweep's report: phase diagrams over its axes, success curves, and every cell's numbers."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from attnlab.configs import Fields
from attnlab.draw.numbers import plural
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
from attnlab.experiments.sweeps.axes import Axis, shown, typed
from attnlab.experiments.sweeps.outcome import CellOutcome, Outcome, Tally
from attnlab.experiments.words import Words

WORDS = Words("attnlab.experiments.sweeps")
MOST_ROWS = 1_000  # of a table in the page; the CSV holds all
TALLIED = ["solved", "share", "low", "high", "first step", "loss"]
"""The columns of `tallied`."""

_LEAST_SPAN = 0.1  # of the shades of a map, as a share of its greatest value
_MOST_CURVES = 8  # that can be told apart
_WIDE = 10  # an axis whose largest value is so many times its smallest has a logarithmic scale
_SHARE = "share of seeds that solve the problem"

_Pick = Callable[[CellOutcome], float | None]


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
    axes, seeds = grid.axes, len(grid.seeds)
    solved = sum(member.solved_at is not None for member in outcome.members)
    impossible = [[cell.name, cell.refusal] for cell in grid.cells if cell.config is None]
    cells = f"{len(grid.cells):,} cells of {seeds:,} {plural(seeds, 'seed')}"
    if impossible:
        cells += f", {len(impossible):,} of which are impossible (their values cannot be combined)"
    diverged = [
        [grid.cells[member.cell].name, member.seed, member.fault]
        for member in outcome.members
        if member.fault
    ]
    success = WORDS.text("success", {"seeds": seeds})
    are_maps = len(axes) > 1
    sections = [
        problem_section(problems) if problems else None,
        _diagram(outcome, success) if are_maps else None,
        _curves(outcome, success),
        _figures(outcome, problems) if are_maps else None,
        _cells(outcome),
        listed(WORDS, "impossible", ["cell", "why"], impossible),
        listed(WORDS, "diverged", ["cell", "seed", "what happened"], diverged),
        _again(experiment, outcome, fixed),
        listed(WORDS, "settings", ["setting", "value"], setting_rows(fixed)),
    ]
    return ReportContent(
        title=f"{experiment}: {' × '.join(axis.name for axis in axes)}",
        subtitle=f"{cells}: {solved:,} of {len(outcome.members):,} models solved the problem",
        facts=list(facts.items()),
        sections=filled(sections),
    )


def listed(words: Words, name: str, columns: list[str], rows: Sequence[list[Any]]) -> Table:
    """Make a table of the first rows, with the title and caption of this name."""
    return Table(**words.texts(name), columns=columns, rows=rows[:MOST_ROWS])


def setting_rows(fixed: Fields) -> list[list[str]]:
    """Return a row for each setting that no axis changes."""
    return [[name, shown(value)] for name, value in fixed.items()]


def tallied(tally: Tally) -> list[Scalar]:
    """Return the cells of a table that say how many models solved the problem, and when."""
    return [f"{tally.solved}/{tally.seeds}", *tally.share, tally.solved_at, tally.loss]


def run_command(experiment: str, tally: Tally, fixed: Fields, seeds: int, first: int) -> str:
    """Return the command that trains the models of a setting."""
    settings = typed({**tally.fields, **fixed})
    return f"`attnlab run {experiment} --seeds {seeds} --seed {first} --set {settings}`"


def _diagram(outcome: Outcome, success: str) -> Maps:
    rows, columns, *_ = map(_named, outcome.grid.axes)
    numbers = {"success": success, "rows": rows, "columns": columns}
    picks: dict[str, _Pick] = {_SHARE: lambda cell: cell.share.value}
    return Maps(**WORDS.texts("diagram", numbers), choices=_choices(outcome, picks, (0.0, 1.0)))


def _curves(outcome: Outcome, success: str) -> Bars | Lines | None:
    """Draw success along one axis, a curve for each value of the others."""
    along = _along(outcome.grid.axes)
    if along is None:
        return None
    series = _success_series(outcome, along)
    what = "Bands" if along.is_numeric else "Whiskers"
    texts = WORDS.texts("curves", {"success": success, "along": _named(along), "what": what})
    if not along.is_numeric:
        return Bars(**texts, groups=along.labels(), series=series)
    low, high = min(along.values), max(along.values)
    x = list(along.values)
    return Lines(
        **texts,
        x_label=along.name,
        from_zero=True,
        series=[
            Series(name=each.name, x=x, y=each.values, low=each.low, high=each.high)
            for each in series
        ],
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


def _success_series(outcome: Outcome, along: Axis) -> list[BarSeries]:
    """Return the success along one axis, for each value of the others."""
    others = [axis for axis in outcome.grid.axes if axis is not along]
    cells = np.moveaxis(_array(outcome), outcome.grid.axes.index(along), -1)
    series: list[BarSeries] = []
    for place in np.ndindex(cells.shape[:-1]):
        line = list(cells[place])
        if series and line.count(None) == len(line):
            continue  # impossible values
        fixed = _values(others, place)
        name = ", ".join(f"{name} {shown(value)}" for name, value in fixed.items())
        shares = [(None, None, None) if cell is None else cell.share for cell in line]
        series.append(BarSeries.of_intervals(name or "success rate", shares))
    return series


def _figures(outcome: Outcome, problems: Sequence[ProblemDescription]) -> Maps:
    losses = {problem.loss for problem in problems}
    loss = losses.pop() if len(losses) == 1 else "loss"
    picks: dict[str, _Pick] = {
        "step at which it was first solved": lambda cell: cell.solved_at,
        f"training {loss} at the end": lambda cell: cell.loss,
    }
    for name in outcome.figures:
        picks[_plain(name)] = lambda cell, name=name: cell.figures.get(name)  # type: ignore[misc]
    meanings = {
        _plain(name): text
        for problem in problems
        for name, text in problem.meanings
        if name in outcome.figures
    }
    texts = WORDS.texts("figures", {"meanings": meanings})
    return Maps(**texts, choices=_choices(outcome, picks))


def _choices(
    outcome: Outcome, picks: Mapping[str, _Pick], ends: tuple[float, float] | None = None
) -> list[MapChoice]:
    """Make maps over the first two axes, for each combination of the others."""
    rows, columns, *others = outcome.grid.axes
    cells = _array(outcome)
    choices = []
    for place in np.ndindex(cells.shape[2:]):
        maps = []
        for title, pick in picks.items():
            values = [
                [None if cell is None else pick(cell) for cell in line]
                for line in cells[:, :, *place]
            ]
            low, high = ends or _range(
                [each for line in values for each in line if each is not None]
            )
            heatmap = Heatmap(
                title=title,
                rows=values,
                row_labels=rows.labels(),
                column_labels=columns.labels(),
                row_title=rows.name,
                column_title=columns.name,
                low=low,
                high=high,
            )
            maps.append(heatmap)
        choices.append(MapChoice(label=typed(_values(others, place)), note="", maps=maps))
    return choices


def _array(outcome: Outcome) -> Any:
    """Return the outcome of each cell in an array with a dimension for each axis."""
    shape = [len(axis.values) for axis in outcome.grid.axes]
    return np.array(outcome.cells, dtype=object).reshape(shape)


def _values(axes: Sequence[Axis], place: Sequence[int]) -> Fields:
    return {axis.name: axis.values[index] for axis, index in zip(axes, place, strict=True)}


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


def _cells(outcome: Outcome) -> Table:
    axes = outcome.grid.axes
    rows = []
    for cell in outcome.cells:
        if cell is not None:
            values = zip(axes, cell.fields.values(), strict=True)
            fields = [value if axis.is_numeric else shown(value) for axis, value in values]
            figures = map(cell.figures.get, outcome.figures)
            rows.append([*fields, *tallied(cell), *figures, cell.broken])
    names = [axis.name for axis in axes]
    return Table(
        **WORDS.texts("cells", {"is_cut": len(rows) > MOST_ROWS, "most": MOST_ROWS}),
        columns=[*names, *TALLIED, *map(_plain, outcome.figures), "diverged"],
        rows=rows[:MOST_ROWS],
    )


def _again(experiment: str, outcome: Outcome, fixed: Fields) -> Text | None:
    """Give the command that trains the models of a cell again."""
    cells = [cell for cell in outcome.cells if cell is not None]
    if not cells:
        return None
    # The cell nearest to one half is the one worth looking into.
    cell = min(cells, key=lambda each: abs(each.share.value - 0.5))
    seeds = outcome.grid.seeds
    texts = WORDS.texts("again")
    command = run_command(experiment, cell, fixed, len(seeds), seeds[0])
    return Text(title=texts["title"], text=f"{texts['text']}\n{command}")


def _named(axis: Axis) -> str:
    return f"{axis.name} ({axis.comment.split(';')[0]})"


def _plain(name: str) -> str:
    return name.replace("_", " ")
