"""Class by class: precision, recall and F1 of each class, and which answers its texts get instead of the right one."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from attnlab.experiments.sentiment.data import Data
from attnlab.experiments.sentiment.judging import Outcome

__all__ = ["ClassFigures", "class_figures", "class_sections", "confusion_matrix"]

_MOST_CLASSES_SHOWN = 60  # in the confusion matrix


def confusion_matrix(labels: Tensor, answers: Tensor, num_classes: int) -> Tensor:
    """Count how often texts of each class (row) get each answer (column), mean over trainings: (class, class).

    labels: (texts,) class numbers · answers: (trainings, texts).
    """
    cells = labels * num_classes + answers
    counts = torch.bincount(cells.flatten(), minlength=num_classes**2).double()
    return counts.view(num_classes, num_classes) / len(answers)


class ClassFigures(NamedTuple):
    """Of one class: precision, recall and F1 (None where they are not defined), and how many texts it has."""

    precision: float | None
    recall: float | None
    f1: float | None
    num_texts: float


def class_figures(confusion: Tensor) -> list[ClassFigures]:
    """Return the figures of each class, from counts by class and answer: (class, class)."""
    right, texts, answers = (each.tolist() for each in (confusion.diagonal(), confusion.sum(1), confusion.sum(0)))
    return [
        ClassFigures(_ratio(hits, given), _ratio(hits, held), _ratio(2 * hits, given + held), held)
        for hits, held, given in zip(right, texts, answers, strict=True)
    ]


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def class_sections(data: Data, fair: Outcome) -> list[dict[str, Any]]:
    """Show how each class fares: precision, recall, F1 and what it is taken for."""
    rows: list[list[Any]] = []
    choices = []
    for name, counts in _confusions(data, fair).items():
        figures = class_figures(counts)
        for label, each in zip(data.classes, figures, strict=True):
            rows.append([name, label, *map(_share, each[:3]), round(each.num_texts)])
        means = [_mean([each[place] for each in figures]) for place in range(3)]
        rows.append([name, "mean of the classes", *map(_share, means), round(float(counts.sum()))])
        choices.append({"label": name, "note": "", "maps": [_confusion_map(counts, data)]})
    shown = ""
    if len(data.classes) > _MOST_CLASSES_SHOWN:
        shown = f" Of {len(data.classes):,} classes the {_MOST_CLASSES_SHOWN} with most test texts are shown."
    return [
        {
            "kind": "table",
            "title": "Class by class",
            "caption": (
                "Precision: of the texts that get this answer, the share that are of the class. Recall: of the texts "
                "of the class, the share that get the answer. F1: their harmonic mean. Counted over all trainings; "
                "n/a where nothing is to be counted, which the mean of the classes leaves out."
            ),
            "columns": ["model", "class", "precision", "recall", "F1", "test texts"],
            "rows": rows,
        },
        {
            "kind": "maps",
            "title": "What is taken for what",
            "caption": (
                "The confusion matrix: each row says which answers the test texts of one class get, as shares of "
                f"them, mean of the trainings.{shown}"
            ),
            "choices": choices,
        },
    ]


def _confusions(data: Data, fair: Outcome) -> dict[str, Tensor]:
    """Count answers by class for each model and baseline, the models' as the mean of their trainings."""
    labels = next(iter(fair.prepared.values())).test.labels
    answers: dict[str, list[Tensor]] = {name: [each.answers for each in found] for name, found in fair.models.items()}
    answers |= {each.name: [each.answers] for each in fair.baselines}
    return {name: confusion_matrix(labels, torch.stack(each), len(data.classes)) for name, each in answers.items()}


def _confusion_map(counts: Tensor, data: Data) -> dict[str, Any]:
    """Draw the classes that have most test texts, in their usual order."""
    most = counts.sum(1).argsort(descending=True, stable=True)[:_MOST_CLASSES_SHOWN].sort().values
    shares = (counts / counts.sum(1, keepdim=True).clamp(min=1.0))[most][:, most]
    names = [data.classes[place] for place in most.tolist()]
    return {
        "title": "answers, by class",
        "rows": [[round(share, 4) for share in row] for row in shares.tolist()],
        "row_labels": names,
        "column_labels": names,
        "row_title": "class",
        "column_title": "answer",
        "low": 0.0,
        "high": 1.0,
    }


def _share(share: float | None) -> str:
    return "n/a" if share is None else f"{share:.1%}"


def _mean(shares: Sequence[float | None]) -> float | None:
    known = [share for share in shares if share is not None]
    return sum(known) / len(known) if known else None
