"""`scaling`: why scores are divided by √d_k (Vaswani et al. 2017, §3.2.1, footnote 4).

The product of two random vectors of width d_k has variance d_k. Without the division the scores
spread more with the width: softmax puts all weight on one key, and passes no gradient.
"""

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from attnlab import seeds
from attnlab.core.stats import Interval, mean_interval
from attnlab.draw.sections import Level, Lines, Section, Series
from attnlab.experiments.anatomy.config import NAME, WORDS, AnatomyConfig
from attnlab.experiments.anatomy.result import PartResult
from attnlab.experiments.claims import Claim
from attnlab.experiments.experiment import RunContext
from attnlab.experiments.words import Numbers
from attnlab.look.statistics import entropy, largest_weight, softmax_jacobian_norm
from attnlab.parts.attend import attend

_LENGTH = 10
_WIDTHS = (16, 64, 256, 1024)
_CHUNK = 250  # draws computed at once
_NAMES = {True: "with 1/√d_k", False: "without"}
_FIGURES: dict[str, Callable[[Any], Tensor]] = {  # of an attention, for each draw
    "largest": lambda attention: largest_weight(attention.weights).amax(-1),
    "entropy": lambda attention: entropy(attention.weights).mean(-1),
    "variance": lambda attention: (
        attention.scores.double().square().mean((-2, -1))
    ),  # their mean is 0
    "gradient": lambda attention: softmax_jacobian_norm(attention.weights).mean(-1),
}
ScaleMeasurements = dict[bool, dict[str, Interval]]
"""Each figure at one width, with and without the scale."""

_LEVELS = {
    "largest": [Level(name="saturation 1.0", y=1.0)],
    "entropy": [Level(name="uniform, ln 10", y=2.302585)],
}


def show(config: AnatomyConfig, context: RunContext) -> PartResult:
    """Measure weights, scores and gradients at four widths, with and without the scale."""
    measured = []
    for step, width in enumerate(_WIDTHS, 1):
        measured.append(attend_randomly(width, config.draws, context.seed))
        context.step(step, len(_WIDTHS))
    scaled, plain = _means(measured, is_scaled=True), _means(measured, is_scaled=False)
    drift = {name: max(means) - min(means) for name, means in scaled.items()}
    ratios = [*map(operator.truediv, plain["variance"], _WIDTHS), *scaled["variance"]]
    times_smaller = scaled["gradient"][-1] / plain["gradient"][-1]
    numbers: Numbers = {
        "length": _LENGTH,
        "draws": config.draws,
        "scaled": scaled,
        "plain": plain,
        "drift": drift,
        "ratios": ratios,
        "times_smaller": times_smaller,
    }
    numbers["about"] = WORDS.text("scaling.about", numbers)
    return PartResult("scaling", numbers, _claims(numbers), _sections(measured, numbers))


def _claims(numbers: Numbers) -> list[Claim]:
    scaled, plain, drift = numbers["scaled"], numbers["plain"], numbers["drift"]
    ratios, times_smaller = numbers["ratios"], numbers["times_smaller"]
    largest, entropies, gradients = scaled["largest"], scaled["entropy"], scaled["gradient"]
    last_largest, last_entropy = plain["largest"][-1], plain["entropy"][-1]
    return [
        Claim(
            "scaled_weights_keep_their_spread",
            f"with 1/√d_k the largest weight of {_LENGTH} × {_LENGTH} and the mean entropy of a "
            "row stay near 0.52 and 1.92 nats at every d_k from 16 to 1,024",
            f"{min(largest):.3f} to {max(largest):.3f}; {min(entropies):.3f} to "
            f"{max(entropies):.3f} nats",
            "0.50 to 0.54; 1.90 to 1.95 nats",
            _are_within(largest, 0.50, 0.54) and _are_within(entropies, 1.90, 1.95),
        ),
        Claim(
            "scaled_weights_do_not_know_the_width",
            "with 1/√d_k the means at the four d_k lie close together: the largest of them less "
            "the smallest, for the largest weight and for the entropy",
            f"{drift['largest']:.4f}; {drift['entropy']:.4f} nats",
            "at most 0.02; at most 0.02 nats",
            drift["largest"] <= 0.02 and drift["entropy"] <= 0.02,
        ),
        Claim(
            "unscaled_weights_saturate",
            "without 1/√d_k, at d_k = 1,024, one key takes all: the largest weight is 1 to four "
            "digits, and a row's entropy nearly 0",
            f"{last_largest:.6f}; {last_entropy:.3f} nats",
            "at least 0.99995; 0.07 to 0.09 nats",
            last_largest >= 0.99995 and 0.07 <= last_entropy <= 0.09,
        ),
        Claim(
            "score_variance_is_the_width",
            "the variance of the scores is d_k without 1/√d_k, and 1 with it, at every width",
            f"{min(ratios):.3f} to {max(ratios):.3f} of that",
            "0.95 to 1.05 of that",
            _are_within(ratios, 0.95, 1.05),
        ),
        Claim(
            "gradient_dies_without_scaling",
            "the gradient that the softmax lets through (Frobenius norm of its Jacobian, mean over "
            "rows) is the same at every d_k with scaling; without, at d_k = 1,024, it is about "
            "eight times smaller",
            f"{min(gradients):.3f} to {max(gradients):.3f}; {times_smaller:.1f} times smaller",
            "0.34 to 0.35; 7 to 9 times",
            _are_within(gradients, 0.34, 0.35) and 7.0 <= times_smaller <= 9.0,
        ),
    ]


def _means(measured: Sequence[ScaleMeasurements], *, is_scaled: bool) -> dict[str, list[float]]:
    """Return the mean of each figure at each width."""
    return {name: [figures[is_scaled][name].value for figures in measured] for name in _FIGURES}


def _sections(measured: Sequence[ScaleMeasurements], numbers: Numbers) -> list[Section]:
    sections: list[Section] = []
    for name in _FIGURES:
        series = []
        for scale, label in _NAMES.items():
            intervals = [figures[scale][name] for figures in measured]
            series.append(Series.of_intervals(label, _WIDTHS, intervals))
        lines = Lines(
            x_label="d_k, width of a head's query and key",
            x_log=True,
            y_log=name == "variance",
            series=series,
            levels=_LEVELS.get(name, []),
            **WORDS.texts(f"scaling.{name}", numbers),
        )
        sections.append(lines)
    return sections


def attend_randomly(width: int, draws: int, seed: int) -> ScaleMeasurements:
    """Attend with random queries and keys of one width, scaled and not: means over draws."""
    generator = seeds.generator(seed, NAME, "scaling", width)
    values = {scale: {name: list[float]() for name in _FIGURES} for scale in _NAMES}
    for start in range(0, draws, _CHUNK):
        shape = (min(_CHUNK, draws - start), 1, _LENGTH, width)
        query = torch.randn(shape, generator=generator)
        key = torch.randn(shape, generator=generator)
        for scale, kept in values.items():
            attention = attend(query, key, key[..., :1], scale=scale)  # values do not matter here
            for name, figure in _FIGURES.items():
                kept[name] += figure(attention).flatten().tolist()
    measured: ScaleMeasurements = {}
    for scale, kept in values.items():
        measured[scale] = {name: mean_interval(means) for name, means in kept.items()}
    return measured


def _are_within(values: list[float], low: float, high: float) -> bool:
    return all(low <= value <= high for value in values)
