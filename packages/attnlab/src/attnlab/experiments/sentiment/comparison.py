"""Accuracies and differences of accuracies with their intervals, and both in words.

Both texts and trainings are random samples. They are crossed, since every training answers every
text, and an interval that holds for another test set and another training has to cover both.
"""

import math

from torch import Tensor

from attnlab.core.stats import Interval, share_interval, student_quantile


class Accuracy(Interval):
    """An accuracy, written as a percentage."""

    __slots__ = ()

    def __str__(self) -> str:
        return f"{self.value:.1%}"

    @property
    def ends(self) -> str:
        """The ends of the interval in words."""
        return f"{self.low:.1%} to {self.high:.1%}"


class AccuracyDifference(Interval):
    """A difference of accuracies, written in points with its interval."""

    __slots__ = ()

    def __str__(self) -> str:
        return f"{self.points} points ({self.ends})"

    @property
    def points(self) -> str:
        """The difference alone, in points."""
        return f"{self.value * 100:+.1f}"

    @property
    def ends(self) -> str:
        """The ends of the interval, in points."""
        return f"{self.low * 100:+.1f} to {self.high * 100:+.1f}"

    @property
    def in_words(self) -> str:
        """Whether it is positive or negative, if its interval tells."""
        if self.low > 0:
            return "with 95 % confidence: better"
        if self.high < 0:
            return "with 95 % confidence: worse"
        return "no difference that these texts and trainings can show"


def accuracy_of(correct: Tensor) -> Accuracy:
    """Return an accuracy with its 95 % interval, from each text's share of right trainings.

    correct: which texts are right in which training, (trainings, texts) or (texts,).
    """
    shares = correct.double().view(-1, correct.shape[-1]).mean(0)
    accuracy, total = float(shares.mean()), len(shares)
    interval = share_interval(round(accuracy * total), total)
    return Accuracy(accuracy, min(interval.low, accuracy), max(interval.high, accuracy))


def gain_over(one: Tensor, other: Tensor) -> AccuracyDifference:
    """Return the difference of two accuracies, with its 95 % interval over texts and trainings.

    one, other: which texts are right in which training, (trainings, texts), or (texts,) for a
    single other.

    The error of the mean is estimated twice, each time with Student's t: from the spread of the
    texts, and from that of the trainings, less the part that comes from the texts; the squares of
    both are added (Zou and Donner 2008), so that it holds whichever of the two is larger. Two
    texts are added, one on which only the one is right and one on which only the other is, half of
    each (Agresti and Min 2005): without them, few texts that all agree would have an interval of
    no width. With one training the interval is over the texts alone.
    """
    differences = one.double() - other.double()
    num_trainings, num_texts = differences.shape
    value, of_texts = float(differences.mean()), differences.mean(0)
    total, freedom = num_texts + 2, max(1, num_texts - 1)
    center = float(of_texts.sum()) / total
    by_texts = ((float(of_texts.square().sum()) + 1) / total - center**2) / total
    reach = student_quantile(freedom) * math.sqrt(by_texts)
    if num_trainings > 1:
        of_trainings = differences.mean(1)
        rest = differences - of_texts - of_trainings.unsqueeze(1) + value
        common = float(rest.square().sum()) / (freedom * (num_trainings - 1)) / num_texts
        by_trainings = max(0.0, float(of_trainings.var()) - common) / num_trainings
        reach = math.hypot(reach, student_quantile(num_trainings - 1) * math.sqrt(by_trainings))
    low, high = min(value, center - reach), max(value, center + reach)
    return AccuracyDifference(value, max(-1.0, low), min(1.0, high))
