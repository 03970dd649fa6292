"""Two models' answers to the same texts compared: by how much one is better, and how sure that is.

What a comparison speaks of is drawn twice: texts, and trainings. Both are crossed, since every training answers every
text, and an interval that is to hold for another test set and another training has to be over both.
"""

import math

import torch
from torch import Tensor

from attnlab.experiments.intervals import Interval, share_interval
from attnlab.quantiles import student_quantile

__all__ = [
    "accuracy_interval",
    "difference_interval",
    "in_words",
    "mcnemar",
    "points",
]

_MOST_FREEDOM = 1_000  # degrees of freedom beyond which Student's t hardly changes


def accuracy_interval(correct: Tensor) -> Interval:
    """Return an accuracy with its 95 % interval, from each text's share of trainings that got it right: (texts,)."""
    accuracy, total = float(correct.double().mean()), len(correct)
    interval = share_interval(round(accuracy * total), total)
    return Interval(accuracy, min(interval.low, accuracy), max(interval.high, accuracy))


def difference_interval(one: Tensor, other: Tensor) -> Interval:
    """Return how much more often one is right than the other, with its 95 % interval over texts and trainings.

    one and other: which texts came out right in which training, (trainings, texts); of a single other, (texts,).

    How far the mean may be off is reckoned twice, each time with Student's t: by the spread of the texts, and by that
    of the trainings, less what of it comes of the texts they were judged by; the squares of both are added (Zou and
    Donner 2008). So it holds whichever of the two matters more. Two texts are added, half of one on which only the one
    is right and half on which only the other is (Agresti and Min 2005): without them, few texts that all fall one way
    would have an interval of no width. Of one training the interval is over the texts alone.
    """
    differences = one.double() - other.double()
    num_trainings, num_texts = differences.shape
    value, of_texts = float(differences.mean()), differences.mean(0)
    total, freedom = num_texts + 2, max(1, num_texts - 1)
    center = float(of_texts.sum()) / total
    by_texts = ((float(of_texts.square().sum()) + 1) / total - center**2) / total
    reach = student_quantile(min(freedom, _MOST_FREEDOM)) * math.sqrt(by_texts)
    if num_trainings > 1:
        of_trainings = differences.mean(1)
        rest = differences - of_texts - of_trainings.unsqueeze(1) + value
        common = float(rest.square().sum()) / (freedom * (num_trainings - 1)) / num_texts
        by_trainings = max(0.0, float(of_trainings.var()) - common) / num_trainings
        reach = math.hypot(reach, student_quantile(num_trainings - 1) * math.sqrt(by_trainings))
    return Interval(value, max(-1.0, min(value, center - reach)), min(1.0, max(value, center + reach)))


def points(difference: Interval) -> str:
    """Write a difference of accuracies in points, with its interval."""
    return f"{difference.value * 100:+.1f} points ({difference.low * 100:+.1f} to {difference.high * 100:+.1f})"


def in_words(difference: Interval) -> str:
    """Say which way a difference goes, if its interval tells."""
    if difference.low > 0:
        return "with 95 % confidence: better"
    if difference.high < 0:
        return "with 95 % confidence: worse"
    return "no difference that these texts and trainings can show"


def mcnemar(one: Tensor, other: Tensor) -> float:
    """Return the two-sided exact p of McNemar's test: could texts that only one of two got right be a coin's fall?"""
    wins, losses = int((one & ~other).sum()), int((~one & other).sum())
    total = wins + losses
    logs = torch.lgamma(torch.arange(total + 2, dtype=torch.float64))  # lgamma(n + 1) = log n!
    smaller = torch.arange(min(wins, losses) + 1)
    tail = (
        logs[total + 1] - logs[smaller + 1] - logs[total - smaller + 1] - total * torch.log(torch.tensor(2.0).double())
    )
    return min(1.0, 2 * float(tail.exp().sum()))
