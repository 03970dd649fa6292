"""The sections that the reports of all experiments share: problem, parameters, settings."""

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torch import nn

from attnlab.configs import Config
from attnlab.draw.sections import Scalar, Section, Series, Table, Text
from attnlab.experiments.experiment import ProblemDescription
from attnlab.models.parameters import count_from_model

_MOST_PROBLEMS = 4


def parameters_section(model: nn.Module) -> Table:
    """List the parameters of a model by part, and their sum."""
    counts = count_from_model(model)
    rows: list[list[Scalar]] = [[part, count] for part, count in counts.items()]
    return Table(
        title="Parameters",
        caption="Counted in the model, part by part; arithmetic from the settings gives the same.",
        columns=["part", "parameters"],
        rows=[*rows, ["all", sum(counts.values())]],
    )


def metric_series(name: str, metrics: Iterable[Mapping[str, float]], figure: str) -> Series:
    """Draw one figure of a training's metrics against its steps."""
    x, y = list[float](), list[float]()
    for line in metrics:
        if figure in line:
            x.append(line["step"])
            y.append(line[figure])
    return Series(name=name, x=x, y=y)


def csv_text(
    columns: Sequence[str], rows: Iterable[Sequence[Any]], *, quotes_texts: bool = False
) -> str:
    """Write a table as CSV; None is an empty cell."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    if quotes_texts:
        writer = csv.writer(stream, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
    writer.writerows([columns, *rows])
    return stream.getvalue()


def rounded(rows: Iterable[Iterable[float]]) -> list[list[float]]:
    """Round the cells of a map to what a page shows."""
    return [[round(cell, 4) for cell in row] for row in rows]


def finite_or_none(value: float) -> float | None:
    """Return a number; None, which a page shows as a gap, if it is not finite."""
    return value if math.isfinite(value) else None


def range_words(values: Sequence[int]) -> str:
    """Write the least and the largest value, or the one that all are."""
    low, high = min(values), max(values)
    return str(low) if low == high else f"{low} to {high}"


def filled(sections: Iterable[Section | None]) -> list[Section]:
    """Leave out sections that are missing, and tables without rows."""
    kept = []
    for section in sections:
        is_empty = isinstance(section, Table) and not section.rows
        if section is not None and not is_empty:
            kept.append(section)
    return kept


def problem_section(problems: Sequence[ProblemDescription]) -> Text:
    """Describe each problem once: its task, and when a model counts as having solved it."""
    different = list(dict.fromkeys(problems))
    paragraphs = []
    for problem in different[:_MOST_PROBLEMS]:
        task = problem.task[:1].upper() + problem.task[1:]
        paragraphs.append(f"{task}. Solved means: {problem.solved}.")
    if len(different) > _MOST_PROBLEMS:
        more = len(different) - _MOST_PROBLEMS
        paragraphs.append(f"And {more:,} more, which differ in their settings.")
    return Text(title="The task", text="\n\n".join(paragraphs))


def settings_section(config: Config) -> Table:
    """List every setting of the run with its value and meaning."""
    values = config.to_mapping()
    rows = []
    for option in config.options():
        value = values[option.name]
        if value is None:
            value = "none"
        rows.append([option.name, str(value), option.comment])
    return Table(
        title="Settings",
        caption="Change any of them with --set name=value.",
        columns=["setting", "value", "meaning"],
        rows=rows,
    )
