"""Precision, recall and F1 of each class, and the confusion matrix."""

import math

import torch
from torch import Tensor

from attnlab.draw.sections import Heatmap, MapChoice, Maps, Scalar, Section, Table
from attnlab.experiments.sections import rounded
from attnlab.experiments.sentiment.config import WORDS
from attnlab.experiments.sentiment.fit import SplitOutcome

_MOST_CLASSES_SHOWN = 60  # in the confusion matrix


def confusion_matrix(labels: Tensor, answers: Tensor, num_classes: int) -> Tensor:
    """Count the answers (columns) to texts of each class (rows), mean over trainings.

    labels: (texts,) class numbers. answers: (trainings, texts). Returns (class, class).
    """
    cells = labels * num_classes + answers
    counts = torch.bincount(cells.flatten(), minlength=num_classes**2).double()
    return counts.view(num_classes, num_classes) / len(answers)


def class_figures(confusion: Tensor) -> Tensor:
    """Return precision, recall and F1 of each class, (class, 3), from counts by class and answer.

    They are NaN where there is nothing to count.
    """
    right, texts, answers = confusion.diagonal(), confusion.sum(1), confusion.sum(0)
    return torch.stack((right / answers, right / texts, 2 * right / (answers + texts)), 1)


def class_sections(classes: tuple[str, ...], fair: SplitOutcome) -> list[Section]:
    """Return the table of precision, recall and F1, and the confusion matrices."""
    rows: list[list[Scalar]] = []
    choices = []
    for name, answers in fair.answers.items():
        counts = confusion_matrix(fair.labels, answers, len(classes))
        figures = class_figures(counts)
        lines = [*figures.tolist(), figures.nanmean(0).tolist()]
        totals = [*counts.sum(1).tolist(), float(counts.sum())]
        labels = [*classes, "mean of the classes"]
        for label, shares, total in zip(labels, lines, totals, strict=True):
            rows.append([name, label, *map(_share, shares), round(total)])
        choices.append(MapChoice(label=name, note="", maps=[_confusion_map(counts, classes)]))
    shown = ""
    if len(classes) > _MOST_CLASSES_SHOWN:
        shown = (
            f"The {_MOST_CLASSES_SHOWN} classes with most test texts are shown, out of "
            f"{len(classes):,}."
        )
    return [
        Table(rows=rows, **WORDS.texts("classes")),
        Maps(choices=choices, **WORDS.texts("confusion", {"shown": shown})),
    ]


def _confusion_map(counts: Tensor, classes: tuple[str, ...]) -> Heatmap:
    """Draw the classes with most test texts, in their usual order."""
    most = counts.sum(1).argsort(descending=True, stable=True)[:_MOST_CLASSES_SHOWN].sort().values
    shares = (counts / counts.sum(1, keepdim=True).clamp(min=1.0))[most][:, most]
    names = [classes[place] for place in most.tolist()]
    rows = rounded(shares.tolist())
    return Heatmap.of_weights("answers, by class", rows, names, names, ("class", "answer"))


def _share(share: float) -> str:
    return "n/a" if math.isnan(share) else f"{share:.1%}"
