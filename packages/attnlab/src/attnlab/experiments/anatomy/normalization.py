"""`normalization`: layer norm from its formula, PyTorch's, and a formula that is often written.

PyTorch's is `(x - mean) / √(variance + ε)` with the biased variance (Ba et al. 2016). Often it is
written `(x - mean) / (deviation + ε)` with torch's `std`, which is the unbiased one: the output is
smaller by `√((d-1)/d)` for x of every size, NaN at a width of 1, and far larger for x so small that
ε matters.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from attnlab import seeds
from attnlab.draw.sections import Lines, Series
from attnlab.experiments.anatomy.config import NAME, WORDS, AnatomyConfig
from attnlab.experiments.anatomy.result import PartResult, most, number_text
from attnlab.experiments.claims import Claim
from attnlab.experiments.experiment import RunContext
from attnlab.experiments.words import Numbers
from attnlab.parts.norms import LayerNorm, layer_norm

_EPSILON = 1e-5
_WIDTHS = (1, 2, 4, 8, 16, 64, 256, 1024)
_SCALES = tuple(10.0 ** (exponent / 2) for exponent in range(-16, 7))
_SMALL = 8  # the index of the scale 1e-4
_LENGTH, _WIDTH = 6, 64


def other_norm(x: Tensor, *, epsilon: float = _EPSILON, correction: int = 1) -> Tensor:
    """Return `(x - mean) / (deviation + ε)`, the other formula: (..., d_model) -> the same.

    The deviation divides by `d_model - correction`: 1 is unbiased, 0 is biased, as in PyTorch.
    """
    centered = x - x.mean(-1, keepdim=True)
    # 0/0 at a width of 1, as in torch.std
    variance = centered.square().sum(-1, keepdim=True) / (x.shape[-1] - correction)
    return centered / (variance.sqrt() + epsilon)


def show(config: AnatomyConfig, context: RunContext) -> PartResult:
    """Compare the formulas over widths and sizes, and the positions before and after a norm."""
    generator = seeds.generator(context.seed, NAME, "normalisation")
    biased, off = {}, list[float]()
    for width in _WIDTHS:
        unit = x = torch.randn(min(config.draws, 1_000), width, generator=generator).double()
        if width > 1:
            bare = other_norm(x, epsilon=0.0).norm() / F.layer_norm(x, (width,), eps=0.0).norm()
            off.append(abs(float(bare) - math.sqrt((width - 1) / width)))
            # Each row with mean 0 and variance 1, so that ε hardly matters.
            unit = F.layer_norm(x, (width,), eps=0.0)
        biased[width] = _apart(other_norm, unit)
    inside, outside, wrong = [], [], []
    for scale in _SCALES:
        inside.append(_size(layer_norm, scale))
        outside.append(_size(partial(other_norm, correction=0), scale))
        wrong.append(abs(inside[-1] - scale / math.sqrt(scale**2 + _EPSILON)))
        wrong.append(abs(outside[-1] - scale / (scale + _EPSILON)))
    before = _uneven(config.draws, generator)
    with torch.no_grad():
        after = LayerNorm(_WIDTH).double()(before)
    context.step(1, 1)
    variances = after.var(-1, correction=0)
    numbers: Numbers = {
        "length": _LENGTH,
        "epsilon": _EPSILON,
        "biased": biased,
        "means": float(after.mean(-1).abs().max()),
        "low": float(variances.min()),
        "high": float(variances.max()),
        "off": most(off),
        "wrong": most(wrong),
        "small": {"inside": inside[_SMALL], "outside": outside[_SMALL]},
    }
    sizes = [
        Series(name="ε inside the root (PyTorch's)", x=_SCALES, y=inside),
        Series(name="ε outside", x=_SCALES, y=outside),
    ]
    densities = [_density("before", before), _density("after", after)]
    sections = [
        Lines(series=densities, **WORDS.texts("normalization.densities", numbers)),
        Lines(x_log=True, series=sizes, **WORDS.texts("normalization.epsilon", numbers)),
    ]
    return PartResult("normalization", numbers, _claims(numbers), sections)


def _claims(numbers: Numbers) -> list[Claim]:
    biased, small = numbers["biased"], numbers["small"]
    means, low, high = numbers["means"], numbers["low"], numbers["high"]
    return [
        Claim(
            "every_position_is_normed",
            "after layer norm every position has mean 0 and variance 1, whatever they were before",
            f"means up to {means:.0e}; variances {low:.5f} to {high:.5f}",
            "means up to 1e-10; variances 0.995 to 1.001",
            means <= 1e-10 and 0.995 <= low <= high <= 1.001,
        ),
        Claim(
            "unbiased_is_smaller",
            "with the unbiased deviation the output is √((d-1)/d) of PyTorch's, at every width "
            "from 2, and NaN at 1",
            f"at most {numbers['off']:.0e} from that; {number_text(biased[1])} at width 1",
            "at most 1e-09 from that; NaN at width 1",
            numbers["off"] <= 1e-9 and math.isnan(biased[1]),
        ),
        Claim(
            "the_place_of_epsilon_counts_when_x_is_small",
            "the size of the output is s/√(s² + ε) with ε inside the root and s/(s + ε) outside, "
            "for x of every size s from 1e-8 to 1,000, all else alike (biased deviation)",
            f"at most {numbers['wrong']:.1g} from that; at s = 1e-4: {small['inside']:.4f} inside, "
            f"{small['outside']:.4f} outside",
            "at most 1e-06 from that",
            numbers["wrong"] <= 1e-6,
        ),
    ]


def _apart(norm: Callable[[Tensor], Tensor], x: Tensor) -> float:
    """Return the largest difference of a value from PyTorch's formula."""
    return float((norm(x) - F.layer_norm(x, x.shape[-1:])).abs().max())


def _size(norm: Any, scale: float) -> float:
    """Return the root mean square of the output for a vector of mean 0 and of size `scale`."""
    x = torch.tensor([-1.0, 1.0], dtype=torch.float64).repeat(_WIDTH // 2)
    return float(norm(scale * x, epsilon=_EPSILON).square().mean().sqrt())


def _uneven(draws: int, generator: torch.Generator) -> Tensor:
    """Draw positions of very different mean and spread: (draw, length, width)."""
    mean = torch.linspace(-10.0, 10.0, _LENGTH).unsqueeze(-1)
    spread = torch.logspace(-1.0, 1.0, _LENGTH).unsqueeze(-1)
    normal = torch.randn(min(draws, 500), _LENGTH, _WIDTH, generator=generator)
    return (mean + spread * normal).double()


def _density(name: str, values: Tensor) -> Series:
    low, high, bins = -20.0, 20.0, 160
    counts = torch.histc(values.flatten(), bins, low, high)
    step = (high - low) / bins
    return Series(
        name=name,
        x=[low + (index + 0.5) * step for index in range(bins)],
        y=(counts / (values.numel() * step)).tolist(),
    )
