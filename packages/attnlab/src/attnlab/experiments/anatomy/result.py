"""The result of each experiment of the anatomy, and the format of its numbers."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from attnlab.core.stats import Interval
from attnlab.draw.sections import Section
from attnlab.experiments.anatomy.config import WORDS
from attnlab.experiments.claims import Claim
from attnlab.experiments.words import Numbers


@dataclass(frozen=True)
class PartResult:
    """The result of one experiment.

    numbers: those that the summary in `words.toml` names, beside the functions below.
    """

    name: str
    numbers: Numbers
    claims: Sequence[Claim]
    sections: Sequence[Section]

    @property
    def summary(self) -> str:
        """A paragraph with this run's numbers."""
        return WORDS.text(f"{self.name}.summary", self.numbers | _FORMATS)


def least(values: Iterable[float]) -> float:
    """Return the smallest number, or NaN if there is one, which Python's `min` may lose."""
    return float(torch.tensor(list(values), dtype=torch.float64).min())


def most(values: Iterable[float]) -> float:
    """Return the largest number, or NaN if there is one, which Python's `max` may lose.

    >>> most([0.0, math.nan, 1.0])
    nan
    """
    return float(torch.tensor(list(values), dtype=torch.float64).max())


def number_text(value: float, form: str = "g") -> str:
    """Write a number, or NaN."""
    return "NaN" if math.isnan(value) else f"{value:{form}}"


def interval_text(interval: Interval, digits: int = 3) -> str:
    """Write a mean with its 95 % interval, without decimals from 100 on.

    >>> interval_text(Interval(0.5, 0.4, 0.6), 1)
    '0.5 (0.4 to 0.6)'
    >>> interval_text(Interval(1014.38, 1009.6, 1019.1), 2)
    '1,014 (1,010 to 1,019)'
    """
    if abs(interval.value) >= 100:
        digits = 0
    value, low, high = (f"{number:,.{digits}f}" for number in interval)
    return f"{value} ({low} to {high})"


_FORMATS: Numbers = {"least": least, "most": most, "number": number_text}
