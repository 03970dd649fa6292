"""Precision, recall and F1 of each class, and the confusion matrix."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from attnlab.draw.sections import Heatmap, MapChoice, Maps, Section, Table
from attnlab.experiments.sentiment.data import Data
from attnlab.experiments.sentiment.sentiment_claims import Outcome

_MOST_CLASSES_SHOWN = 60  # in the confusion matrix


def confusion_matrix(labels: Tensor, answers: Tensor, num_classes: int) -> Tensor:
    """Count the answers (columns) to texts of each class (rows), mean over trainings.

    labels: (texts,) class numbers. answers: (trainings, texts). Returns (class, class).
    """
    cells = labels * num_classes + answers
    counts = torch.bincount(cells.flatten(), minlength=num_classes**2).double()
    return counts.view(num_classes, num_classes) / len(answers)


class ClassFigures(NamedTuple):
    """Precision, recall and F1 of one class (None if not defined), and its number of texts."""

    precision: float | None
    recall: float | None
    f1: float | None
    num_texts: float


def class_figures(confusion: Tensor) -> list[ClassFigures]:
    """Return the figures of each class, from counts by class and answer: (class, class)."""
    right, texts, answers = (
        each.tolist() for each in (confusion.diagonal(), confusion.sum(1), confusion.sum(0))
    )
    return [
        ClassFigures(_ratio(hits, given), _ratio(hits, held), _ratio(2 * hits, given + held), held)
        for hits, held, given in zip(right, texts, answers, strict=True)
    ]


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def class_sections(data: Data, fair: Outcome) -> list[Section]:
    """Return the table of precision, recall and F1, and the confusion matrices."""
    rows: list[list[Any]] = []
    choices = []
    for name, counts in _confusions(data, fair).items():
        figures = class_figures(counts)
        for label, each in zip(data.classes, figures, strict=True):
            rows.append([name, label, *map(_share, each[:3]), round(each.num_texts)])
        means = [_mean([each[place] for each in figures]) for place in range(3)]
        rows.append([name, "mean of the classes", *map(_share, means), round(float(counts.sum()))])
        choices.append(MapChoice(label=name, note="", maps=[_confusion_map(counts, data)]))
    shown = ""
    if len(data.classes) > _MOST_CLASSES_SHOWN:
        shown = (
            f" The {_MOST_CLASSES_SHOWN} classes with most test texts are shown, out of "
            f"{len(data.classes):,}."
        )
    return [
        Table(
            title="Class by class",
            caption="Precision: the share of the texts with this answer that belong to the class. "
            "Recall: the share of the texts of the class that get the answer. F1: their "
            "harmonic mean. Counted over all trainings; n/a where there is nothing to count, "
            "which the mean of the classes leaves out.",
            columns=["model", "class", "precision", "recall", "F1", "test texts"],
            rows=rows,
        ),
        Maps(
            title="Confusion matrix",
            caption="Each row shows the answers to the test texts of one class, as shares of them, "
            f"mean of the trainings.{shown}",
            choices=choices,
        ),
    ]


def _confusions(data: Data, fair: Outcome) -> dict[str, Tensor]:
    """Return the confusion matrix of each model, mean over trainings, and of each baseline."""
    labels = next(iter(fair.prepared.values())).test.labels
    answers: dict[str, list[Tensor]] = {
        name: [each.answers for each in found] for name, found in fair.models.items()
    }
    answers |= {each.name: [each.answers] for each in fair.baselines}
    return {
        name: confusion_matrix(labels, torch.stack(each), len(data.classes))
        for name, each in answers.items()
    }


def _confusion_map(counts: Tensor, data: Data) -> Heatmap:
    """Draw the classes with most test texts, in their usual order."""
    most = counts.sum(1).argsort(descending=True, stable=True)[:_MOST_CLASSES_SHOWN].sort().values
    shares = (counts / counts.sum(1, keepdim=True).clamp(min=1.0))[most][:, most]
    names = [data.classes[place] for place in most.tolist()]
    rows = [[round(share, 4) for share in row] for row in shares.tolist()]
    return Heatmap.of_weights("answers, by class", rows, names, names, ("class", "answer"))


def _share(share: float | None) -> str:
    return "n/a" if share is None else f"{share:.1%}"


def _mean(shares: Sequence[float | None]) -> float | None:
    known = [share for share in shares if share is not None]
    return sum(known) / len(known) if known else None
