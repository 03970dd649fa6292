"""`normalisation`: layer norm from its formula, PyTorch's, and a formula that is often written.

PyTorch's is `(x - mean) / √(variance + ε)` with the biased variance (Ba et al. 2016). Often it is
written `(x - mean) / (deviation + ε)` with torch's `std`, which is the unbiased one: the output is
smaller by `√((d-1)/d)` for x of every size, NaN at a width of 1, and far larger for x so small that
ε matters.
"""

import math
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from attnlab import seeds
from attnlab.draw.sections import Lines, Section, Series, Table
from attnlab.experiments.anatomy.config import NAME, AnatomyConfig
from attnlab.experiments.anatomy.result import PartResult, most, number_text
from attnlab.experiments.claims import Claim
from attnlab.experiments.experiment import Run
from attnlab.parts.norms import LayerNorm, layer_norm

_EPSILON = 1e-5
_WIDTHS = (1, 2, 4, 8, 16, 64, 256, 1024)
_SCALES = tuple(10.0 ** (exponent / 2) for exponent in range(-16, 7))
_LENGTH, _WIDTH = 6, 64


def other_norm(x: Tensor, *, epsilon: float = _EPSILON, correction: int = 1) -> Tensor:
    """Return `(x - mean) / (deviation + ε)`, the other formula: (..., d_model) -> the same.

    The deviation divides by `d_model - correction`: 1 is unbiased, 0 is biased, as in PyTorch.
    """
    centred = x - x.mean(-1, keepdim=True)
    # 0/0 at a width of 1, as in torch.std
    variance = centred.square().sum(-1, keepdim=True) / (x.shape[-1] - correction)
    return centred / (variance.sqrt() + epsilon)


def show(config: AnatomyConfig, context: Run) -> PartResult:
    """Compare the formulas over widths and sizes, and the positions before and after a norm."""
    generator = seeds.generator(context.seed, NAME, "normalisation")
    draws = {
        width: torch.randn(min(config.draws, 1_000), width, generator=generator).double()
        for width in _WIDTHS
    }
    apart = {
        dtype: most(
            _largest(layer_norm(scale * x.to(dtype)) - F.layer_norm(scale * x.to(dtype), (width,)))
            for width, x in draws.items()
            for scale in (1e-4, 1e-2, 1.0, 1e2)
        )
        for dtype in (torch.float64, torch.float32)
    }
    biased = {
        width: _largest(other_norm(x) - F.layer_norm(x, (width,)))
        for width, x in map(_unit, draws.values())
    }
    shrunk = {width: _shrinkage(x) for width, x in draws.items() if width > 1}
    sizes = {
        "ε inside the root (PyTorch's)": [_size(layer_norm, scale) for scale in _SCALES],
        "ε outside": [_size(partial(other_norm, correction=0), scale) for scale in _SCALES],
    }
    before = _uneven(config.draws, generator)
    with torch.no_grad():
        after = LayerNorm(_WIDTH).double()(before)
    context.step(1, 1)
    return PartResult(
        "Normalisation. Layer norm from its formula is PyTorch's but for rounding; written with "
        f"the unbiased deviation it differs by up to {biased[2]:.2f} at width 2 and "
        f"{biased[64]:.3f} at 64, and at width 1 it is {number_text(biased[1])}.",
        _claims(apart[torch.float64], shrunk, biased, sizes, after),
        _sections(apart[torch.float32], biased, shrunk, sizes, before, after),
    )


def _unit(x: Tensor) -> tuple[int, Tensor]:
    """Return the width, and each row with mean 0 and variance 1, so that ε hardly matters."""
    width = x.shape[-1]
    return width, F.layer_norm(x, (width,), eps=0.0) if width > 1 else x


def _largest(difference: Tensor) -> float:
    return float(difference.abs().max())


def _shrinkage(x: Tensor) -> float:
    """Return the factor between the outputs of the other formula and of PyTorch's, without ε."""
    return float(other_norm(x, epsilon=0.0).norm() / F.layer_norm(x, x.shape[-1:], eps=0.0).norm())


def _size(norm: Any, scale: float) -> float:
    """Return the root mean square of the output for a vector of mean 0 and of size `scale`."""
    x = torch.tensor([-1.0, 1.0], dtype=torch.float64).repeat(_WIDTH // 2)
    return float(norm(scale * x, epsilon=_EPSILON).square().mean().sqrt())


def _uneven(draws: int, generator: torch.Generator) -> Tensor:
    """Draw positions of very different mean and spread: (draw, length, width)."""
    mean = torch.linspace(-10.0, 10.0, _LENGTH).unsqueeze(-1)
    spread = torch.logspace(-1.0, 1.0, _LENGTH).unsqueeze(-1)
    drawn = torch.randn(min(draws, 500), _LENGTH, _WIDTH, generator=generator)
    return (mean + spread * drawn).double()


def _claims(
    apart: float,
    shrunk: dict[int, float],
    biased: dict[int, float],
    sizes: dict[str, list[float]],
    after: Tensor,
) -> list[Claim]:
    means = _largest(after.double().mean(-1))
    variances = after.double().var(-1, correction=0)
    low, high = float(variances.min()), float(variances.max())
    off = most(abs(found - math.sqrt((width - 1) / width)) for width, found in shrunk.items())
    inside, outside = sizes.values()
    wrong = most(
        abs(found - expected)
        for scale, mine, other in zip(_SCALES, inside, outside, strict=True)
        for found, expected in (
            (mine, scale / math.sqrt(scale**2 + _EPSILON)),
            (other, scale / (scale + _EPSILON)),
        )
    )
    small = min(range(len(_SCALES)), key=lambda index: abs(_SCALES[index] - 1e-4))
    return [
        Claim(
            "the_formula_is_that_of_pytorch",
            "layer norm written from its formula equals PyTorch's, in float64, at "
            f"widths from 1 to {max(_WIDTHS):,} and sizes from 1e-4 to 100",
            f"at most {apart:.0e} apart",
            "at most 1e-10 apart",
            apart <= 1e-10,
        ),
        Claim(
            "every_position_is_normed",
            "after layer norm every position has mean 0 and variance 1, whatever they were before",
            f"means up to {means:.0e}; variances {low:.5f} to {high:.5f}",
            "means up to 1e-10; variances 0.995 to 1.001",
            means <= 1e-10 and low >= 0.995 and high <= 1.001,
        ),
        Claim(
            "unbiased_is_smaller",
            "with the unbiased deviation the output is √((d-1)/d) of PyTorch's, at every "
            "width from 2, and NaN at 1",
            f"at most {off:.0e} from that; {number_text(biased[1])} at width 1",
            "at most 1e-09 from that; NaN at width 1",
            off <= 1e-9 and math.isnan(biased[1]),
        ),
        Claim(
            "the_place_of_epsilon_counts_when_x_is_small",
            "the size of the output is s/√(s² + ε) with ε inside the root and s/(s + ε) outside, "
            "for x of every size s from 1e-8 to 1,000, all else alike (biased deviation)",
            f"at most {wrong:.1g} from that; at s = 1e-4: {inside[small]:.4f} inside, "
            f"{outside[small]:.4f} outside",
            "at most 1e-06 from that",
            wrong <= 1e-6,
        ),
    ]


def _sections(
    apart: float,
    biased: dict[int, float],
    shrunk: dict[int, float],
    sizes: dict[str, list[float]],
    before: Tensor,
    after: Tensor,
) -> list[Section]:
    return [
        Lines(
            figure="normalisation",
            title="Normalisation: before and after",
            caption=f"Values of {_LENGTH} positions with means from -10 to 10 and deviations from "
            "0.1 to 10, and the same after layer norm, which gives each position mean 0 and "
            "variance 1.",
            x_label="value",
            y_label="density",
            series=[_density("before", before), _density("after", after)],
        ),
        Lines(
            figure="normalisation-epsilon",
            title="Normalisation: ε inside or outside the root",
            caption=f"The size of the output for x of size s, ε = {_EPSILON:g}, with the biased "
            "deviation in both. Inside the root ε matters as soon as s is near √ε = "
            f"{math.sqrt(_EPSILON):.4f}; outside, only near ε itself. In between, the "
            "formulas differ by a large factor.",
            x_label="size of x (root mean square)",
            y_label="size of the output",
            x_log=True,
            series=[Series(name=name, x=list(_SCALES), y=found) for name, found in sizes.items()],
        ),
        Table(
            title="Normalisation in numbers: the unbiased formula beside PyTorch's",
            caption="Inputs of variance 1: the factor between the outputs, and the largest "
            "difference of a value. PyTorch's own formula, written out, differs by rounding "
            f"alone: {apart:.0e} in float32.",
            columns=["width", "factor", "√((d-1)/d)", "largest difference"],
            rows=[
                [
                    width,
                    f"{shrunk[width]:.6f}" if width in shrunk else "NaN",
                    f"{math.sqrt((width - 1) / width):.6f}",
                    number_text(difference, ".3g"),
                ]
                for width, difference in biased.items()
            ],
        ),
        Table(
            title="Normalisation in numbers: positions before and after",
            caption="Mean and deviation of each position's values.",
            columns=[
                "position",
                "mean before",
                "deviation before",
                "mean after",
                "deviation after",
            ],
            rows=[
                [
                    place,
                    *(
                        f"{round(float(figure), 3) + 0.0:.3f}"  # no -0.000
                        for values in (before[:, place], after[:, place])
                        for figure in (values.mean(), values.std())
                    ),
                ]
                for place in range(_LENGTH)
            ],
        ),
    ]


def _density(name: str, values: Tensor) -> Series:
    low, high, bins = -20.0, 20.0, 160
    counts = torch.histc(values.flatten(), bins, low, high)
    step = (high - low) / bins
    return Series(
        name=name,
        x=[low + (index + 0.5) * step for index in range(bins)],
        y=(counts / (values.numel() * step)).tolist(),
    )
