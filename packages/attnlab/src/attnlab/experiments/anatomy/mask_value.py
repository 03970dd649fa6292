"""`mask_value`: a large negative number in place of -inf, and what it costs.

`scores.masked_fill(~mask, -100)` looks harmless, since e⁻¹⁰⁰ is almost 0, as long as the true
scores are ordinary. But weights depend on differences: once the true scores are below the number,
the masked keys take all the weight. And in a row whose keys are all masked, -inf gives NaN and a
finite number attends to masked keys. `attend` does neither.
"""

import itertools
import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from attnlab import seeds
from attnlab.draw.sections import Lines, Series
from attnlab.errors import not_none
from attnlab.experiments.anatomy.config import NAME, WORDS, AnatomyConfig
from attnlab.experiments.anatomy.result import PartResult, least, most, number_text
from attnlab.experiments.claims import Claim
from attnlab.experiments.experiment import RunContext
from attnlab.experiments.words import Numbers
from attnlab.look.statistics import blocked_weight
from attnlab.parts.attend import attend

_WIDE = (torch.bfloat16, torch.float32, torch.float64)  # -1e9 is within their range
_NAMES = {dtype: str(dtype).removeprefix("torch.") for dtype in (torch.float16, *_WIDE)}
_VALUES = {-100.0: "-100", -1e4: "-1e4", -1e9: "-1e9"}
_LEVELS = (
    1.0, 3.0, 10.0, 30.0, 60.0, 80.0, 90.0, 95.0, 100.0, 105.0, 110.0, 150.0, 300.0, 1e3, 3e3, 9e3,
    1e4, 1.1e4, 3e4, 1e5, 1e6, 1e7, 1e8, 9e8, 1e9, 1.1e9, 1e10,
)  # fmt: skip
_DRAWN = [(torch.float32, value) for value in _VALUES]
_DRAWN += [(torch.bfloat16, -1e9), (torch.float16, -1e9)]
_ALLOWED = torch.tensor([True, True, True, True, False, False, False, False])

Leaks = dict[tuple[torch.dtype, float], dict[float, float]]
"""The mean weight on masked keys, by dtype, number and level, where the true scores are finite."""


class DeadRow(NamedTuple):
    """The numbers of a row whose keys are all masked, in one dtype."""

    attend_output: float
    attend_gradient: float
    naive_output: float
    naive_gradient: float
    on_blocked: float


def show(config: AnatomyConfig, context: RunContext) -> PartResult:
    """Measure the weight on masked keys in each dtype, as the true scores fall."""
    generator = seeds.generator(context.seed, NAME, "mask_value")
    noise = torch.randn(config.draws, len(_ALLOWED), generator=generator, dtype=torch.float64)
    leaks, ours = _leaks(noise)
    dead = {dtype: _dead_row(dtype, context.seed) for dtype in _NAMES}
    context.step(1, 1)
    numbers: Numbers = {
        "draws": config.draws,
        "ours": ours,
        **_leak_numbers(leaks),
        **_dead_numbers(dead),
    }
    series = []
    for dtype, value in _DRAWN:
        weights = [leaks[dtype, value].get(level) for level in _LEVELS]
        name = f"{_VALUES[value]} in {_NAMES[dtype]}"
        series.append(Series(name=name, x=_LEVELS, y=weights))
    lines = Lines(x_log=True, series=series, **WORDS.texts("mask_value.lines", numbers))
    return PartResult("mask_value", numbers, _claims(numbers), [lines])


def _claims(numbers: Numbers) -> list[Claim]:
    ours, ordinary, deep = numbers["ours"], numbers["ordinary"], numbers["deep"]
    zeros, naive, num_dtypes = numbers["zeros"], numbers["naive"], numbers["num_dtypes"]
    return [
        Claim(
            "boolean_masks_leak_nothing",
            "with a boolean mask the weight on a masked key is exactly 0, in each dtype, however "
            "low the true scores",
            f"largest {most(ours):g}, over {len(ours)} pairs of dtype and level",
            "exactly 0",
            most(ours) == 0.0,
        ),
        Claim(
            "minus_100_gives_way",
            "-100 in place of -inf leaks almost nothing at ordinary scores (around -10 and above), "
            "and all the weight when the true scores are around -150, in each dtype",
            f"at -10 at most {ordinary:.0e}; at -150 at least {deep:.6f}",
            "at -10 at most 1e-30; at -150 at least 0.999",
            ordinary <= 1e-30 and deep >= 0.999,
        ),
        _minus_1e9_claim(numbers),
        Claim(
            "blocked_rows_are_zeros",
            "a query whose keys are all masked gets zeros from attend, forward and in its "
            "gradient, in each dtype; the usual softmax of -inf gives NaN in both",
            f"attend: largest number {number_text(zeros)}; usual softmax: NaN in {naive} of "
            f"{num_dtypes} dtypes",
            f"attend: exactly 0; usual softmax: NaN in {num_dtypes} of {num_dtypes}",
            zeros == 0.0 and naive == num_dtypes,
        ),
    ]


def _minus_1e9_claim(numbers: Numbers) -> Claim:
    before, after, masked = numbers["before"], numbers["after"], numbers["masked"]
    half, in_half = numbers["half"], numbers["in_half"]
    works = before == 0.0 and after >= 0.999 and masked >= 0.99 and numbers["refused"]
    refused = "refused" if numbers["refused"] else "taken"
    return Claim(
        "minus_1e9_depends_on_the_dtype",
        "-1e9 works down to scores of -1e8 and fails below itself, and a row whose keys are all "
        "masked attends to them; in float16 masked_fill refuses it, a tensor of it is -inf, and "
        "such a row is NaN",
        f"leaks {before:g} at -1e8, {after:g} at -1e10, {masked:g} in a masked row; float16: "
        f"{refused}, {half:g}, {number_text(in_half)}",
        "0 at -1e8, 1 at -1e10, 1 in a masked row; float16: refused, -inf, NaN",
        works and half == -math.inf and math.isnan(in_half),
    )


def _leak_numbers(leaks: Leaks) -> Numbers:
    return {
        "float32": leaks[torch.float32, -100.0],
        "ordinary": most(_most_down_to(leaks[dtype, -100.0], 10.0) for dtype in _NAMES),
        "deep": least(leaks[dtype, -100.0][150.0] for dtype in _NAMES),
        "before": most(_most_down_to(leaks[dtype, -1e9], 1e8) for dtype in _WIDE),
        "after": least(leaks[dtype, -1e9][1e10] for dtype in _WIDE),
    }


def _dead_numbers(dead: dict[torch.dtype, DeadRow]) -> Numbers:
    rows = dead.values()
    return {
        "masked": least(dead[dtype].on_blocked for dtype in _WIDE),
        "half": float(torch.tensor(-1e9, dtype=torch.float16)),
        "in_half": dead[torch.float16].on_blocked,
        "refused": [dtype for dtype in _NAMES if refuses(dtype, -1e9)] == [torch.float16],
        "zeros": most(most((row.attend_output, row.attend_gradient)) for row in rows),
        "naive": sum(math.isnan(row.naive_output + row.naive_gradient) for row in rows),
        "num_dtypes": len(dead),
    }


def _leaks(noise: Tensor) -> tuple[Leaks, list[float]]:
    """Return the weight that masked keys get, by numbers in place of -inf, and by `attend`."""
    leaks: Leaks = {(dtype, value): {} for dtype in _NAMES for value in _VALUES}
    ours = []
    for dtype, level in itertools.product(_NAMES, _LEVELS):
        scores = (noise - level).to(dtype)
        if not bool(scores.isfinite().all()):
            continue
        ours.append(_own_leak(scores))
        for value in _VALUES:
            weights = filled_weights(scores, _ALLOWED, value).double()
            leaks[dtype, value][level] = float(blocked_weight(weights, _ALLOWED).mean())
    return leaks, ours


def filled_weights(scores: Tensor, mask: Tensor, value: float) -> Tensor:
    """Return softmax weights with a number in place of masked scores, as it is often written."""
    # Not masked_fill(value): in float16 -1e9 raises, where a tensor of it becomes -inf.
    return scores.masked_fill(~mask, torch.tensor(value, dtype=scores.dtype)).softmax(-1)


def refuses(dtype: torch.dtype, value: float) -> bool:
    """Does `masked_fill` raise for the number, because it is beyond the dtype's range?"""
    try:
        torch.zeros(1, dtype=dtype).masked_fill(torch.tensor([True]), value)
    except RuntimeError as error:
        if "overflow" not in str(error):
            raise
        return True
    return False


def _own_leak(scores: Tensor) -> float:
    """Return the largest weight that `attend` gives a masked key for the same scores."""
    key = scores.unsqueeze(-1)  # a query of 1, unscaled, makes each key its own score
    query = torch.ones(1, 1, dtype=key.dtype)
    weights = not_none(attend(query, key, key, _ALLOWED, scale=False).weights)
    return float(blocked_weight(weights, _ALLOWED).max())


def _dead_row(dtype: torch.dtype, seed: int) -> DeadRow:
    """Attend with a first query whose keys are all masked, with `attend` and as often written."""
    mask = torch.ones(4, 4, dtype=torch.bool)
    mask[0] = False
    generator = seeds.generator(seed, NAME, "dead row")
    tensors = [torch.randn(4, 8, generator=generator).to(dtype).requires_grad_() for _ in range(3)]

    def ours(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return attend(query, key, value, mask).output

    def naive(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return filled_weights(query @ key.T / math.sqrt(8), mask, -math.inf) @ value

    def first_row(read: Callable[..., Tensor]) -> tuple[float, float]:
        """Return the largest numbers of the output and gradient; NaN if any gradient is."""
        output = read(*tensors)
        gradients = torch.stack(torch.autograd.grad(output.float().sum(), tensors))
        largest = math.nan
        if gradients.isfinite().all():
            largest = float(gradients[0, 0].abs().max())
        return float(output[0].detach().abs().max()), largest

    query, key, _ = tensors
    filled = filled_weights((query @ key.T / math.sqrt(8)).detach(), mask, -1e9)
    return DeadRow(*first_row(ours), *first_row(naive), float(blocked_weight(filled, mask)[0]))


def _most_down_to(leaks: dict[float, float], lowest: float) -> float:
    """Return the largest leak at the levels up to one."""
    return most(leak for level, leak in leaks.items() if level <= lowest)
