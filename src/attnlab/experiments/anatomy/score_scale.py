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
from attnlab.draw.sections import Level, Lines, Scalar, Section, Series, Table
from attnlab.experiments.anatomy.config import NAME, WORDS, AnatomyConfig
from attnlab.experiments.anatomy.result import PartResult, interval_text
from attnlab.experiments.experiment import Run
from attnlab.experiments.words import Numbers
from attnlab.look.statistics import entropy, largest_weight, softmax_jacobian_norm
from attnlab.parts.attend import attend

_LENGTH = 10
_WIDTHS = (16, 64, 256, 1024)
_CHUNK = 250  # draws computed at once
_NAMES = {True: "with 1/√d_k", False: "without"}
_FIGURES: dict[str, Callable[[Any], Tensor]] = {  # of an attention, for each draw
    "largest": lambda found: largest_weight(found.weights).amax(-1),
    "entropy": lambda found: entropy(found.weights).mean(-1),
    "variance": lambda found: found.scores.double().square().mean((-2, -1)),  # their mean is 0
    "gradient": lambda found: softmax_jacobian_norm(found.weights).mean(-1),
}
Measured = dict[bool, dict[str, Interval]]
"""Each figure at one width, with and without the scale."""

_LEVELS = {
    "largest": [Level(name="saturation 1.0", y=1.0)],
    "entropy": [Level(name="uniform, ln 10", y=2.302585)],
}


def show(config: AnatomyConfig, context: Run) -> PartResult:
    """Measure weights, scores and gradients at four widths, with and without the scale."""
    found = []
    for step, width in enumerate(_WIDTHS, 1):
        found.append(measure(width, config.draws, context.seed))
        context.step(step, len(_WIDTHS))
    scaled, plain = _means(found, is_scaled=True), _means(found, is_scaled=False)
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
    largest, entropies = plain["largest"][-1], plain["entropy"][-1]
    keeps_largest = _are_within(scaled["largest"], 0.50, 0.54)
    keeps_entropy = _are_within(scaled["entropy"], 1.90, 1.95)
    has_gradient = _are_within(scaled["gradient"], 0.34, 0.35)
    stays = drift["largest"] <= 0.02 and drift["entropy"] <= 0.02
    passed = {
        "scaled_weights_keep_their_spread": keeps_largest and keeps_entropy,
        "scaled_weights_do_not_know_the_width": stays,
        "unscaled_weights_saturate": largest >= 0.99995 and 0.07 <= entropies <= 0.09,
        "score_variance_is_the_width": _are_within(ratios, 0.95, 1.05),
        "gradient_dies_without_scaling": has_gradient and 7.0 <= times_smaller <= 9.0,
    }
    return PartResult("scaling", numbers, passed, _sections(found, numbers))


def _means(found: Sequence[Measured], *, is_scaled: bool) -> dict[str, list[float]]:
    """Return the mean of each figure at each width."""
    return {name: [each[is_scaled][name].value for each in found] for name in _FIGURES}


def _sections(found: Sequence[Measured], numbers: Numbers) -> list[Section]:
    sections: list[Section] = []
    for name in _FIGURES:
        series = []
        for scale, label in _NAMES.items():
            intervals = [each[scale][name] for each in found]
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
    records: list[dict[str, Scalar]] = []
    for width, each in zip(_WIDTHS, found, strict=True):
        for scale, label in _NAMES.items():
            record: dict[str, Scalar] = {
                "d_k": width,
                "scale": label,
                "largest weight": interval_text(each[scale]["largest"], 4),
                "entropy (nats)": interval_text(each[scale]["entropy"]),
                "variance of scores": interval_text(each[scale]["variance"], 2),
                "gradient norm": interval_text(each[scale]["gradient"], 4),
            }
            records.append(record)
    table = Table.of_records(records=records, **WORDS.texts("scaling.table", numbers))
    return [*sections, table]


def measure(width: int, draws: int, seed: int) -> Measured:
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
    found: Measured = {}
    for scale, kept in values.items():
        found[scale] = {name: mean_interval(each) for name, each in kept.items()}
    return found


def _are_within(values: list[float], low: float, high: float) -> bool:
    return all(low <= each <= high for each in values)
