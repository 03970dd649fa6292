"""The maps of the report: eight panels of a head on an input, and the score tables of heads."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from attnlab.design import Design, score_table
from attnlab.draw.sections import Heatmap, MapChoice, Maps, Texts
from attnlab.experiments.handmade.cohorts import HeadCohort
from attnlab.experiments.handmade.config import WORDS
from attnlab.models.single_head import SingleHead
from attnlab.parts.numpy_transformer import Floats, NumpyTransformer, Panels
from attnlab.tasks.vectors import VectorTask

INPUTS = {
    "identity": ("CAB", "AABBCC", "ABCABC"),
    "copy_first": ("CAB", "ABBB", "BCAC"),
    "unique": ("CAC", "ABCA", "AB"),
}
"""What is shown of each task."""
_LEAST_SCALE = 1e-9  # of a map, which may hold one number throughout
_AXES = {
    "Km": ("feature", "channel"),
    "Qm": ("feature", "channel"),
    "Vm": ("feature", "component"),
    "K": ("key", "channel"),
    "Q": ("query", "channel"),
    "V": ("key", "component"),
    "attention": ("query", "key"),
    "output": ("query", "component"),
}
"""The rows and the columns of each panel."""


def panels_section(pairs: Sequence[tuple[Design, HeadCohort]]) -> Maps:
    """Show the eight panels of each design and of a learned head, for some inputs of each task."""
    choices = []
    for design, cohort in pairs:
        choices += [_panels_choice(design, cohort, text) for text in INPUTS[design.task.rule]]
    return Maps(choices=choices, **WORDS.texts("panels"))


def _panels_choice(design: Design, cohort: HeadCohort, text: str) -> MapChoice:
    task = design.task
    ids = task.parse(text)
    tokens = numbered(task.tokens(ids), task)
    labels = {
        "query": tokens,
        "key": tokens,
        "feature": feature_names(task, len(design.Km)),
        "component": ["sign"] if task.rule == "unique" else list(task.names),
    }
    panels, maps = panels_of(design, cohort, text), []
    for name, axes in _AXES.items():
        for who, of_head in panels.items():
            maps.append(_panel_map(f"{name} {who}", getattr(of_head, name), axes, labels))
    note = WORDS.text(f"notes.{task.rule}")
    return MapChoice(label=f"{task.rule}: {task.text(ids)}", note=note, maps=maps)


def _panel_map(
    title: str, panel: Floats, axes: tuple[str, str], labels: Mapping[str, Sequence[str]]
) -> Heatmap:
    """Draw a panel in colors of its own range, attention's from 0 to 1."""
    low, high = float(panel.min()), float(panel.max())
    words = f"{_rounded(low)} to {_rounded(high)}"
    if high - low < _LEAST_SCALE:
        words = f"all {_rounded(low)}"
    if axes == _AXES["attention"]:
        low, high = 0.0, 1.0
    elif low < 0.0:
        high = max(-low, high)
        low = -high
    channels = list(map(str, range(1, panel.shape[1] + 1)))
    return Heatmap(
        title=f"{title}: {words}",
        rows=panel.tolist(),
        row_labels=labels[axes[0]],
        column_labels=labels.get(axes[1], channels),
        row_title=axes[0],
        column_title=axes[1],
        low=low,
        high=max(high, low + _LEAST_SCALE),
    )


def _rounded(value: float) -> str:
    return f"{round(value, 2) + 0.0:g}"  # which is 0 for -0


def panels_of(design: Design, cohort: HeadCohort, text: str) -> dict[str, Panels]:
    """Compute the panels of the hand-made and of a learned head on an input."""
    x = design.task.vectors(design.task.parse(text), torch.float64).numpy()
    heads = {"by hand": design.reference()}
    if cohort.finite:
        heads["learned"] = NumpyTransformer(*cohort.finite[0].matrices())
    return {who: head.panels(x) for who, head in heads.items()}


def comparison_section(pairs: Sequence[tuple[Design, HeadCohort]]) -> Maps:
    """Show Km, which cannot be compared between heads, and score tables, which can."""
    choices = [_comparison_choice(design, cohort) for design, cohort in pairs]
    return Maps(choices=choices, **WORDS.texts("score_tables"))


def _comparison_choice(design: Design, cohort: HeadCohort) -> MapChoice:
    task = design.task
    heads: list[tuple[str, SingleHead]] = [("by hand", design.model())]
    heads += [(f"learned {index}", head) for index, head in enumerate(cohort.finite[:3], 1)]
    maps, tables = [], []
    for who, head in heads:
        Km = head.matrices().Km.double()
        rows, columns = feature_names(task, len(Km)), list(map(str, range(1, Km.shape[1] + 1)))
        maps.append(signed_map(f"Km, {who}", Km, rows, columns, ("feature", "channel")))
        table, titles = score_table(head.matrices(), task), ("query", "key")
        scores = table.scores.double()
        tables.append(signed_map(f"scores, {who}", scores, table.queries, table.keys, titles))
    note = "" if design.pos is None else WORDS.text("notes.positions")
    return MapChoice(label=cohort.title, note=note, maps=[*maps, *tables])


def signed_map(
    title: str, values: Tensor, rows: Texts, columns: Texts, titles: tuple[str, str]
) -> Heatmap:
    """Draw numbers of both signs, on a scale around 0 of their own."""
    largest = max(float(values.nan_to_num().abs().max()), _LEAST_SCALE)
    unit = 10.0 ** (math.floor(math.log10(largest)) - 1)
    largest = math.ceil(largest / unit) * unit  # two digits, so that the scale is readable
    cells = [list(map(_cell, row)) for row in values.tolist()]
    drawn = Heatmap.of_weights(f"{title}: ±{largest:g}", cells, rows, columns, titles)
    return replace(drawn, low=-largest, high=largest)


def _cell(value: float) -> float | None:
    return None if math.isnan(value) else float(f"{value:.3g}")


def feature_names(task: VectorTask, width: int) -> list[str]:
    """Name the rows of Km, Qm and Vm: the tokens, then the channels of the position."""
    return [*task.names, *(f"p{channel + 1}" for channel in range(width - task.input_dim))]


def numbered(tokens: Sequence[str], task: VectorTask) -> list[str]:
    """Name each token of an input with its place."""
    names = []
    for place, token in enumerate(tokens, int(not task.has_cls)):
        names.append(token if token == "CLS" else f"{token}{place}")
    return names
