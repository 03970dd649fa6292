"""`scaling`: why scores are divided by √d_k (Vaswani et al. 2017, §3.2.1, footnote 4).

The product of two random vectors of width d_k has variance d_k. Without the division the scores
spread more with the width: softmax puts all weight on one key, and passes no gradient.
"""

from dataclasses import dataclass

import torch

from attnlab import seeds
from attnlab.core.stats import Interval, mean_interval
from attnlab.draw.sections import Level, Lines, Section, Series, Table
from attnlab.experiments.anatomy.config import NAME, AnatomyConfig
from attnlab.experiments.anatomy.result import PartResult, interval_text
from attnlab.experiments.claims import Claim
from attnlab.experiments.experiment import Run
from attnlab.look.statistics import entropy, largest_weight, softmax_jacobian_norm
from attnlab.parts.attend import attend

_LENGTH = 10
_WIDTHS = (16, 64, 256, 1024)
_CHUNK = 250  # draws computed at once
_NAMES = {True: "with 1/√d_k", False: "without"}


@dataclass(frozen=True)
class Measured:
    """One width, scaled or not: means over draws."""

    largest: Interval
    entropy: Interval
    variance: Interval
    gradient: Interval


def show(config: AnatomyConfig, context: Run) -> PartResult:
    """Measure weights, scores and gradients at four widths, with and without the scale."""
    found: dict[bool, list[Measured]] = {True: [], False: []}
    for step, width in enumerate(_WIDTHS):
        for scale, measured in measure(width, config.draws, context.seed).items():
            found[scale].append(measured)
        context.step(step + 1, len(_WIDTHS))
    return PartResult(_summary(found), _claims(found), _sections(found, config.draws))


def measure(width: int, draws: int, seed: int) -> dict[bool, Measured]:
    """Attend with random queries and keys of one width, scaled and not."""
    generator = seeds.generator(seed, NAME, "scaling", width)
    rows: dict[bool, list[list[float]]] = {True: [[], [], [], []], False: [[], [], [], []]}
    for start in range(0, draws, _CHUNK):
        shape = (min(_CHUNK, draws - start), 1, _LENGTH, width)
        query = torch.randn(shape, generator=generator)
        key = torch.randn(shape, generator=generator)
        for scale, kept in rows.items():
            attention = attend(query, key, key[..., :1], scale=scale)  # values do not matter here
            assert attention.weights is not None
            assert attention.scores is not None
            figures = (
                largest_weight(attention.weights).amax(-1),
                entropy(attention.weights).mean(-1),
                attention.scores.double().square().mean((-2, -1)),  # their mean is known, it is 0
                softmax_jacobian_norm(attention.weights).mean(-1),
            )
            for values, figure in zip(kept, figures, strict=True):
                values += figure.flatten().tolist()
    return {scale: Measured(*map(mean_interval, kept)) for scale, kept in rows.items()}


def _summary(found: dict[bool, list[Measured]]) -> str:
    scaled, plain = found[True][-1], found[False][-1]
    return (
        f"Scaling. At d_k = 1,024 the largest of {_LENGTH} × {_LENGTH} weights is "
        f"{scaled.largest.value:.2f} with 1/√d_k and {plain.largest.value:.4f} without; without, "
        f"the softmax lets {scaled.gradient.value / plain.gradient.value:.1f} times less gradient "
        f"through. The cause: the variance of the scores, {plain.variance.value:,.0f} without and "
        f"{scaled.variance.value:.2f} with."
    )


def _claims(found: dict[bool, list[Measured]]) -> list[Claim]:
    scaled, plain = found[True], found[False]
    widest = plain[-1]
    peaks = [each.largest.value for each in scaled]
    entropies = [each.entropy.value for each in scaled]
    flat, flat_entropy = max(peaks) - min(peaks), max(entropies) - min(entropies)
    ratios = [plain[i].variance.value / width for i, width in enumerate(_WIDTHS)]
    ratios += [each.variance.value for each in scaled]
    gradients = [each.gradient.value for each in scaled]
    times_smaller = gradients[-1] / widest.gradient.value
    return [
        Claim(
            "scaled_weights_keep_their_spread",
            f"with 1/√d_k the largest weight of {_LENGTH} × {_LENGTH} and the mean entropy of a "
            "row stay near 0.52 and 1.92 nats at every d_k from 16 to 1,024",
            f"{min(peaks):.3f} to {max(peaks):.3f}; {min(entropies):.3f} to "
            f"{max(entropies):.3f} nats",
            "0.50 to 0.54; 1.90 to 1.95 nats",
            all(0.50 <= each <= 0.54 for each in peaks)
            and all(1.90 <= each <= 1.95 for each in entropies),
        ),
        Claim(
            "scaled_weights_do_not_know_the_width",
            "with 1/√d_k the means at the four d_k lie close together: the largest of them less "
            "the smallest, for the largest weight and for the entropy",
            f"{flat:.4f}; {flat_entropy:.4f} nats",
            "at most 0.02; at most 0.02 nats",
            flat <= 0.02 and flat_entropy <= 0.02,
        ),
        Claim(
            "unscaled_weights_saturate",
            "without 1/√d_k, at d_k = 1,024, one key takes all: the largest weight is 1 to four "
            "digits, and a row's entropy nearly 0",
            f"{widest.largest.value:.6f}; {widest.entropy.value:.3f} nats",
            "at least 0.99995; 0.07 to 0.09 nats",
            widest.largest.value >= 0.99995 and 0.07 <= widest.entropy.value <= 0.09,
        ),
        Claim(
            "score_variance_is_the_width",
            "the variance of the scores is d_k without 1/√d_k, and 1 with it, at every width",
            f"{min(ratios):.3f} to {max(ratios):.3f} of that",
            "0.95 to 1.05 of that",
            all(0.95 <= ratio <= 1.05 for ratio in ratios),
        ),
        Claim(
            "gradient_dies_without_scaling",
            "the gradient that the softmax lets through (Frobenius norm of its Jacobian, mean "
            "over rows) is the same at every d_k with scaling; without, at d_k = 1,024, it is "
            "about eight times smaller",
            f"{min(gradients):.3f} to {max(gradients):.3f}; {times_smaller:.1f} times smaller",
            "0.34 to 0.35; 7 to 9 times",
            all(0.34 <= each <= 0.35 for each in gradients) and 7.0 <= times_smaller <= 9.0,
        ),
    ]


def _sections(found: dict[bool, list[Measured]], draws: int) -> list[Section]:
    scaled, plain = found[True][-1], found[False][-1]
    about = f"Means over {draws:,} draws of {_LENGTH} random tokens, with their 95 % intervals."
    lines = [
        (
            "largest",
            "Scaling: the largest weight",
            f"Without 1/√d_k it climbs to {plain.largest.value:.4f}, saturation; with it, it "
            f"stays near {scaled.largest.value:.2f} at every width. {about}",
            "largest weight of a matrix",
            [Level(name="saturation 1.0", y=1.0)],
            False,
        ),
        (
            "entropy",
            "Scaling: the entropy of a row",
            "The spread of a query's weights: at most ln 10 = 2.303 nats, for uniform "
            f"weights. {about}",
            "entropy (nats)",
            [Level(name="uniform, ln 10", y=2.302585)],
            False,
        ),
        (
            "variance",
            "Scaling: the cause",
            "A score adds up d_k products of variance 1, so its variance is d_k; divided by "
            "√d_k it is 1 again. " + about,
            "variance of the scores",
            [],
            True,
        ),
        (
            "gradient",
            "Scaling: the gradient through the softmax",
            f"At d_k = 1,024 the softmax lets {scaled.gradient.value / plain.gradient.value:.1f} "
            f"times less through without the scale: such a head hardly learns. {about}",
            "norm of the softmax's Jacobian",
            [],
            False,
        ),
    ]
    return [
        *(
            Lines(
                figure=f"scaling-{name}",
                title=title,
                caption=caption,
                x_label="d_k, width of a head's query and key",
                y_label=y_label,
                x_log=True,
                y_log=y_log,
                series=[
                    Series.of_intervals(
                        _NAMES[scale], list(_WIDTHS), [getattr(each, name) for each in measured]
                    )
                    for scale, measured in found.items()
                ],
                levels=levels,
            )
            for name, title, caption, y_label, levels, y_log in lines
        ),
        Table.of_records(
            title="Scaling in numbers",
            caption=about,
            records=[
                {
                    "d_k": width,
                    "scale": _NAMES[scale],
                    "largest weight": interval_text(found[scale][index].largest, 4),
                    "entropy (nats)": interval_text(found[scale][index].entropy),
                    "variance of scores": interval_text(found[scale][index].variance, 2),
                    "gradient norm": interval_text(found[scale][index].gradient, 4),
                }
                for index, width in enumerate(_WIDTHS)
                for scale in (True, False)
            ],
        ),
    ]
