"""The sections that the reports of all experiments share: problem, parameters, settings."""

import csv
import io
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


def metric_series(name: str, metrics: Iterable[Mapping[str, Any]], figure: str) -> Series:
    """Draw one figure of a training's metrics against its steps."""
    lines = [line for line in metrics if figure in line]
    return Series(name=name, x=[line["step"] for line in lines], y=[line[figure] for line in lines])


def csv_text(
    columns: Sequence[str], rows: Iterable[Sequence[Any]], *, quotes_texts: bool = False
) -> str:
    """Write a table as CSV; None is an empty cell."""
    stream = io.StringIO()
    writer = csv.writer(
        stream,
        lineterminator="\n",
        quoting=csv.QUOTE_NONNUMERIC if quotes_texts else csv.QUOTE_MINIMAL,
    )
    writer.writerows([columns, *rows])
    return stream.getvalue()


def filled(sections: Iterable[Section | None]) -> list[Section]:
    """Leave out sections that are missing, and tables without rows."""
    return [
        each
        for each in sections
        if each is not None and not (isinstance(each, Table) and not each.rows)
    ]


def problem_section(problems: Sequence[ProblemDescription]) -> Text:
    """Describe each problem once: its task, and when a model counts as having solved it."""
    different = list(dict.fromkeys(problems))
    paragraphs = [
        f"{_sentence(problem.task)} Solved means: {_sentence(problem.solved, 0)}"
        for problem in different[:_MOST_PROBLEMS]
    ]
    if len(different) > _MOST_PROBLEMS:
        paragraphs.append(
            f"And {len(different) - _MOST_PROBLEMS:,} more, which differ in their settings."
        )
    return Text(title="The task", text="\n\n".join(paragraphs))


def _sentence(words: str, start: int = 1) -> str:
    return f"{words[:start].upper()}{words[start:]}."


def settings_section(config: Config) -> Table:
    """List every setting of the run with its value and meaning."""
    values = config.to_mapping()
    return Table(
        title="Settings",
        caption="Change any of them with --set name=value.",
        columns=["setting", "value", "meaning"],
        rows=[[each.name, _word(values[each.name]), each.comment] for each in config.options()],
    )


def _word(value: Any) -> str:
    return "none" if value is None else str(value)
