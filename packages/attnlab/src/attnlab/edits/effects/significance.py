"""The significance of effects: sign-flip tests, intervals, and corrections for many tests.

The values of a test are one difference for each input, changed less plain. If the change did
nothing, plus and minus would be as likely for each input, so the mean is compared with those under
random signs (Fisher 1935; exact where all 2^n can be listed). The interval is Student's, with the
skewness of the mean transformed away (Hall 1992, J. R. Statist. Soc. B 54, 221): an interval from
the same random signs is too narrow on the side of a long tail where inputs are few.
"""

import math
from typing import Literal, NamedTuple, TypeAlias, get_args

import torch
from torch import Tensor

from attnlab import seeds
from attnlab.core.stats import student_quantile, student_tails
from attnlab.display import displayed
from attnlab.edits.targets import described
from attnlab.errors import WrongUsage, require_known
from attnlab.shapes import require_integer

Correction: TypeAlias = Literal["holm", "bh", "none"]

MAX_LISTED = 14  # values whose signs are all listed: 2^14 of them
_AT_ONCE = 2**22  # numbers in a product


@displayed
class Assessed(NamedTuple):
    """The tests of many effects, one entry each.

    mean: of the effect · low, high: the ends of its interval · p: by random signs · p_corrected:
    for the number of tests.
    """

    mean: Tensor
    low: Tensor
    high: Tensor
    p: Tensor
    p_corrected: Tensor


def assess(
    values: Tensor,
    *,
    correction: Correction = "holm",
    level: float = 0.95,
    draws: int = 10_000,
    seed: int = 0,
) -> Assessed:
    """Test many effects on the same inputs against no effect: values (effect, input).

    p is the larger of two: that of the sign flips, and the p at which the interval just holds 0; so
    a small p never goes with an interval that holds 0. For changes that are 0 in the mean, of 27
    inputs and one test each, p was at most 0.05 in this share of 20,000, and by sign flips alone:

        differences                          p <= 0.05    sign flips alone
        normal                               4.6 %        5.0 %
        exponential, less their mean         4.5 %        7.9 %
        zero in 7 of 10, else exponential    2.6 %        13.6 %

    At 95 % and with 10 to 14 inputs the interval held the truth in this share of 20,000 draws; an
    interval from the sign flips (Hartigan 1969) is beside it:

        differences                          interval     from sign flips
        normal                               95 %         95 %
        exponential                          94 %         91 %
        squares of normal ones               93 %         86 %
        lognormal                            91 %         85 %
        zero in 7 of 10, else exponential    91 to 93 %   79 %

    So 95 % is not reached where a few inputs carry the effect, and with fewer inputs less (with 5
    lognormal ones 88 %).

    Args:
        values: differences, at least two inputs.
        correction: "holm" bounds the chance of any false finding (Holm 1979), "bh" the expected
            share of false ones among the findings (Benjamini and Hochberg 1995), "none" neither.
        level: of the interval, for each effect by itself.
        draws: random sign patterns, where not all are listed.
        seed: of the draws.
    """
    flat = _checked(values)
    mean, error, skewness = _moments(flat)
    t = mean / error
    cube = t + skewness * t.square() / 3.0 + skewness.square() * t.pow(3) / 27.0 + skewness / 6.0
    transformed = torch.where(skewness.abs() > 1e-6, cube, t)  # see `intervals`
    tails = torch.from_numpy(student_tails(transformed.numpy(), flat.shape[1] - 1))
    # NaN where all values are 0
    p = torch.maximum(p_values(flat, draws=draws, seed=seed), tails.nan_to_num(1.0))
    low, high = intervals(flat, level=level)
    return Assessed(mean, low, high, p, adjusted(p, correction))


def p_values(values: Tensor, *, draws: int = 10_000, seed: int = 0) -> Tensor:
    """Return the two-sided p of each effect by sign flips: values (effect, input) -> (effect,).

    Up to 14 inputs every pattern of signs is listed and p is exact. Beyond, p counts the draws and
    the data themselves, so that it is never 0 and never too small (Phipson and Smyth 2010).

    >>> p_values(torch.tensor([[1.0, 2.0, 3.0]]))  # 2 of the 8 patterns reach a mean of 2
    tensor([0.2500], dtype=torch.float64)
    """
    values = _checked(values)
    # Sums that are equal but for rounding are equal.
    reach = values.sum(1).abs() - 1e-12 * values.abs().sum(1)
    count = torch.zeros(len(values), dtype=torch.float64)
    num_inputs, is_listed = values.shape[1], values.shape[1] <= MAX_LISTED
    number = 2**num_inputs if is_listed else require_integer("draws", draws)
    bits, generator = torch.arange(num_inputs), seeds.generator(seed, "effects", "signs")
    for some in torch.split(torch.arange(number), max(1, _AT_ONCE // max(values.shape))):
        flips = (some.unsqueeze(1) >> bits) & 1
        if not is_listed:
            flips = torch.randint(2, (len(some), num_inputs), generator=generator)
        sums = (1.0 - 2.0 * flips.double()) @ values.T
        count += (sums.abs() >= reach).sum(0)
    if is_listed:
        return count / number
    return (count + 1.0) / (number + 1.0)


def least_p(
    num_inputs: int, num_tests: int = 1, *, correction: Correction = "holm", draws: int = 10_000
) -> float:
    """Return the smallest corrected p that a single effect can reach.

    Of the 2^n patterns of signs two always reach the mean of the data: their own and the opposite
    one. Beyond 14 inputs p is also at least 1 / (draws + 1). Either correction multiplies the least
    p of all by the number of tests; several effects together can come lower under "bh".

    >>> least_p(8, 14)  # 14 · 2 / 2^8: eight inputs cannot show anything at 0.05
    0.109375
    """
    p = 2.0 ** (1 - num_inputs)
    if num_inputs > MAX_LISTED:
        p = max(p, 1.0 / (draws + 1))
    if correction != "none":
        p *= num_tests
    return min(1.0, p)


def enough(alpha: float, num_tests: int = 1, *, correction: Correction = "holm") -> tuple[int, int]:
    """Return how many inputs (and draws, beyond 14) bring `least_p` to alpha.

    >>> enough(0.05, 14)
    (10, 279)
    """
    if correction == "none":
        num_tests = 1
    times = num_tests / alpha
    return max(2, math.ceil(1.0 + math.log2(times))), math.ceil(times - 1.0)


def intervals(values: Tensor, *, level: float = 0.95) -> tuple[Tensor, Tensor]:
    """Return both ends of each mean's interval: values (effect, input) -> (effect,), (effect,).

    It is Student's interval of the t that is transformed so that its skewness is gone. With
    t = (mean - truth) / error and the skewness s of the values over √n, that is g(t) = t + s t²/3 +
    s² t³/27 + s/6 = ((1 + s t/3)³ - 1) / s + s/6, which goes up with t.
    """
    values = _checked(values)
    if not (isinstance(level, float) and 0.0 < level < 1.0):
        raise WrongUsage(f"level must be between 0 and 1, such as 0.95; got {level!r}.")
    mean, error, skewness = _moments(values)
    quantile = student_quantile(values.shape[1] - 1, level)

    def t_at(transformed: float) -> Tensor:
        cube = 1.0 + skewness * (transformed - skewness / 6.0)
        t = 3.0 * (cube.sign() * cube.abs().pow(1.0 / 3.0) - 1.0) / skewness
        # also where all values are equal and the skewness is NaN
        return torch.where(skewness.abs() > 1e-6, t, transformed)

    return mean - t_at(quantile) * error, mean - t_at(-quantile) * error


def _moments(values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the means, their standard errors, and their skewness: that of the values over √n."""
    num_inputs = values.shape[1]
    mean = values.mean(1)
    apart = values - mean.unsqueeze(1)
    variance = apart.square().mean(1)
    error = (variance / (num_inputs - 1)).sqrt()
    skewness = apart.pow(3).mean(1) / variance.pow(1.5) / math.sqrt(num_inputs)
    return mean, error, skewness


def adjusted(p: Tensor, correction: Correction = "holm") -> Tensor:
    """Correct the p values of tests made together: (test,) -> (test,), none smaller than before.

    >>> adjusted(torch.tensor([0.01, 0.04, 0.03]), "holm")
    tensor([0.0300, 0.0600, 0.0600])
    >>> adjusted(torch.tensor([0.01, 0.04, 0.03]), "bh")
    tensor([0.0300, 0.0400, 0.0400])
    """
    require_known("correction", correction, get_args(Correction))
    if not isinstance(p, Tensor) or p.dim() != 1 or not bool(((p >= 0) & (p <= 1)).all()):
        raise WrongUsage(f"expected a tensor of p values from 0 to 1, (test,); got {described(p)}.")
    if correction == "none" or len(p) == 0:
        return p.clone()
    order = p.argsort(stable=True)
    number = len(p)
    rank = torch.arange(1, number + 1, dtype=p.dtype, device=p.device)
    if correction == "holm":
        stepped = ((number - rank + 1.0) * p[order]).cummax(0).values
    else:
        stepped = (number / rank * p[order]).flip(0).cummin(0).values.flip(0)
    adjusted = torch.empty_like(p)
    adjusted[order] = stepped.clamp(max=1.0)
    return adjusted


def _checked(values: Tensor) -> Tensor:
    if not isinstance(values, Tensor) or values.dim() != 2 or values.shape[1] < 2:
        raise WrongUsage(
            f"tests need values (effect, input) of at least two inputs; got {described(values)}."
        )
    if not bool(torch.isfinite(values).all()):
        raise WrongUsage(
            "tests need finite values; got NaN or infinity. Look at the plain model's metric first."
        )
    return values.detach().cpu().double()
