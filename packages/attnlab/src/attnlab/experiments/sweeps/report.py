"""A sweep's report: phase diagrams over its axes, success curves, and every cell's numbers."""

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from attnlab.configs import Fields
from attnlab.display import plural
from attnlab.draw import sections as draw
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
) -> draw.ReportContent:
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
    impossible = [[cell.name, cell.refusal] for cell in grid.impossible]
    cells = f"{len(grid.cells):,} cells of {seeds:,} {plural(seeds, 'seed')}"
    if impossible:
        cells += f", {len(impossible):,} of which are impossible (their values cannot be combined)"
    success = WORDS.text("success", {"seeds": seeds})
    sections: list[draw.Section | None] = []
    if problems:
        sections.append(problem_section(problems))
    if len(axes) > 1:
        sections.append(_diagram(outcome, success))
    sections.append(_curves(outcome, success))
    if len(axes) > 1:
        sections.append(_figures(outcome, problems))
    sections += [
        _cells(outcome),
        listed(WORDS, "impossible", ["cell", "why"], impossible),
        listed(WORDS, "diverged", ["cell", "seed", "what happened"], _diverged(outcome)),
        _again(experiment, outcome, fixed),
        listed(WORDS, "settings", ["setting", "value"], setting_rows(fixed)),
    ]
    return draw.ReportContent(
        title=f"{experiment}: {' × '.join(axis.name for axis in axes)}",
        subtitle=f"{cells}: {solved:,} of {len(outcome.members):,} models solved the problem",
        facts=list(facts.items()),
        sections=filled(sections),
    )


def _diverged(outcome: Outcome) -> list[list[draw.Scalar]]:
    """List the models that diverged: cell, seed, what happened."""
    rows: list[list[draw.Scalar]] = []
    for member in outcome.members:
        if member.fault:
            rows.append([outcome.grid.cells[member.cell].name, member.seed, member.fault])
    return rows


def listed(words: Words, name: str, columns: list[str], rows: Sequence[list[Any]]) -> draw.Table:
    """Make a table of the first rows, with the title and caption of this name."""
    return draw.Table(**words.texts(name), columns=columns, rows=rows[:MOST_ROWS])


def setting_rows(fixed: Fields) -> list[list[str]]:
    """Return a row for each setting that no axis changes."""
    return [[name, shown(value)] for name, value in fixed.items()]


def tallied(tally: Tally) -> list[draw.Scalar]:
    """Return the cells of a table that say how many models solved the problem, and when."""
    return [f"{tally.solved}/{tally.seeds}", *tally.share, tally.solved_at, tally.loss]


def run_command(experiment: str, tally: Tally, fixed: Fields, seeds: int, first: int) -> str:
    """Return the command that trains the models of a setting."""
    settings = typed({**tally.fields, **fixed})
    return f"`attnlab run {experiment} --seeds {seeds} --seed {first} --set {settings}`"


def _diagram(outcome: Outcome, success: str) -> draw.Maps:
    rows, columns, *_ = map(_named, outcome.grid.axes)
    numbers = {"success": success, "rows": rows, "columns": columns}
    picks: dict[str, _Pick] = {_SHARE: lambda cell: cell.share.value}
    choices = _choices(outcome, picks, (0.0, 1.0))
    return draw.Maps(**WORDS.texts("diagram", numbers), choices=choices)


def _curves(outcome: Outcome, success: str) -> draw.Bars | draw.Lines | None:
    """Draw success along one axis, a curve for each value of the others."""
    along = _along(outcome.grid.axes)
    if along is None:
        return None
    series = _success_series(outcome, along)
    numbers = {"success": success, "along": _named(along), "what": "Whiskers"}
    if not along.is_numeric:
        return draw.Bars(**WORDS.texts("curves", numbers), groups=along.labels(), series=series)
    numbers["what"] = "Bands"
    low, high = min(along.values), max(along.values)
    lines = []
    for line_series in series:
        x = list(along.values)
        lines.append(
            draw.Series(
                name=line_series.name,
                x=x,
                y=line_series.values,
                low=line_series.low,
                high=line_series.high,
            )
        )
    return draw.Lines(
        **WORDS.texts("curves", numbers),
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


def _success_series(outcome: Outcome, along: Axis) -> list[draw.BarSeries]:
    """Return the success along one axis, for each value of the others."""
    others = [axis for axis in outcome.grid.axes if axis is not along]
    cells = np.moveaxis(_array(outcome), outcome.grid.axes.index(along), -1)
    series: list[draw.BarSeries] = []
    for place in np.ndindex(cells.shape[:-1]):
        line = list(cells[place])
        if series and line.count(None) == len(line):
            continue  # impossible values
        fixed = _values(others, place)
        name = ", ".join(f"{name} {shown(value)}" for name, value in fixed.items())
        shares = [(None, None, None) if cell is None else cell.share for cell in line]
        series.append(draw.BarSeries.of_intervals(name or "success rate", shares))
    return series


def _figures(outcome: Outcome, problems: Sequence[ProblemDescription]) -> draw.Maps:
    losses, loss = {problem.loss for problem in problems}, "loss"
    if len(losses) == 1:
        loss = losses.pop()
    picks: dict[str, _Pick] = {
        "step at which it was first solved": lambda cell: cell.solved_at,
        f"training {loss} at the end": lambda cell: cell.loss,
    }
    for name in outcome.figures:
        picks[_plain(name)] = lambda cell, name=name: cell.figures.get(name)  # type: ignore[misc]
    meanings = {}
    for problem in problems:
        for name, text in problem.meanings:
            if name in outcome.figures:
                meanings[_plain(name)] = text
    texts = WORDS.texts("figures", {"meanings": meanings})
    return draw.Maps(**texts, choices=_choices(outcome, picks))


def _choices(
    outcome: Outcome, picks: Mapping[str, _Pick], ends: tuple[float, float] | None = None
) -> list[draw.MapChoice]:
    """Make maps over the first two axes, for each combination of the others."""
    others, cells = outcome.grid.axes[2:], _array(outcome)
    choices = []
    for place in np.ndindex(cells.shape[2:]):
        maps = []
        for title, pick in picks.items():
            values = [_picked(pick, line) for line in cells[:, :, *place]]
            maps.append(_map(title, outcome.grid.axes, values, ends))
        choices.append(draw.MapChoice(label=typed(_values(others, place)), note="", maps=maps))
    return choices


def _picked(pick: _Pick, line: Iterable[CellOutcome | None]) -> list[float | None]:
    return [None if cell is None else pick(cell) for cell in line]


def _map(
    title: str,
    axes: Sequence[Axis],
    values: Sequence[Sequence[float | None]],
    ends: tuple[float, float] | None,
) -> draw.Heatmap:
    """Draw values over the first two axes."""
    rows, columns = axes[:2]
    known = [value for value in itertools.chain(*values) if value is not None]
    low, high = ends or _range(known)
    return draw.Heatmap(
        title=title,
        rows=values,
        row_labels=rows.labels(),
        column_labels=columns.labels(),
        row_title=rows.name,
        column_title=columns.name,
        low=low,
        high=high,
    )


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
    if low < high:
        return low, high
    return 0.0, high or 1.0


def _rounded(value: float, towards: Callable[[float], int], span: float) -> float:
    """Round to a tenth of the span's power of ten."""
    unit = 10.0 ** (math.floor(math.log10(span)) - 1)
    return float(f"{towards(value / unit) * unit:.10g}")


def _cells(outcome: Outcome) -> draw.Table:
    axes = outcome.grid.axes
    rows = []
    for cell in outcome.trained:
        fields = dict(cell.fields)
        for axis in axes:
            if not axis.is_numeric:
                fields[axis.name] = shown(fields[axis.name])
        figures = map(cell.figures.get, outcome.figures)
        rows.append([*fields.values(), *tallied(cell), *figures, cell.broken])
    names = [axis.name for axis in axes]
    return draw.Table(
        **WORDS.texts("cells", {"is_cut": len(rows) > MOST_ROWS, "most": MOST_ROWS}),
        columns=[*names, *TALLIED, *map(_plain, outcome.figures), "diverged"],
        rows=rows[:MOST_ROWS],
    )


def _again(experiment: str, outcome: Outcome, fixed: Fields) -> draw.Text | None:
    """Give the command that trains the models of a cell again."""
    if not outcome.trained:
        return None
    # The cell nearest to one half is the one worth looking into.
    cell = min(outcome.trained, key=lambda cell: abs(cell.share.value - 0.5))
    seeds = outcome.grid.seeds
    texts = WORDS.texts("again")
    command = run_command(experiment, cell, fixed, len(seeds), seeds[0])
    return draw.Text(title=texts["title"], text=f"{texts['text']}\n{command}")


def _named(axis: Axis) -> str:
    return f"{axis.name} ({axis.comment.split(';')[0]})"


def _plain(name: str) -> str:
    return name.replace("_", " ")
