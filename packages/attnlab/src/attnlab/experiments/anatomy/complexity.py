"""`complexity`: the cost of attention and feed-forward part by length, counted and measured.

For L tokens, in multiply-adds: attention's scores and weighted values take 2·L²·d, its four
projections 4·L·d², the feed-forward part 2·L·d·d_ff; the weights take 4·h·L² bytes in float32. So
attention overtakes the feed-forward part at L = d_ff - 2d. The fused kernel computes the same
output and never holds the weights.
"""

import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from attnlab import seeds
from attnlab.core.stats import Interval, is_above, mean_interval
from attnlab.draw.claims import judge_all
from attnlab.draw.sections import Lines, Section, Series
from attnlab.errors import CouldNotRun
from attnlab.experiments.anatomy.config import NAME, SHORTEST, WORDS, AnatomyConfig
from attnlab.experiments.anatomy.cost import peak_memory, times
from attnlab.experiments.anatomy.result import PartResult, interval_text
from attnlab.experiments.claims import Claim
from attnlab.experiments.experiment import RunContext
from attnlab.experiments.words import Numbers
from attnlab.parts.feed_forward import FeedForward
from attnlab.parts.heads import multi_head_attention

_D_MODEL, _NUM_HEADS, _D_FF = 512, 8, 2048
_EQUAL = _D_FF - 2 * _D_MODEL  # tokens, at which attention overtakes by count
_GROWTH_TOLERANCE = 0.2  # of an exponent
_SLOWER, _BESIDE = 10.0, 2.0  # slowdown of attention on long inputs, alone and over feed-forward
_NAMES = {
    "kept": "attention, weights kept",
    "fused": "attention, fused",
    "feed-forward": "feed-forward",
}
_MEBI = 2**20

TimedCall = Callable[[], Any]


@dataclass(frozen=True)
class PartCost:
    """One part on inputs of one length: seconds of a call in each round, and peak bytes."""

    times: tuple[float, ...]
    memory: int

    @property
    def median(self) -> float:
        """Seconds that one call takes, the median of the rounds."""
        return statistics.median(self.times)

    @property
    def milliseconds(self) -> Interval:
        """The median, the least and the most."""
        return Interval(1e3 * self.median, 1e3 * min(self.times), 1e3 * max(self.times))


@dataclass(frozen=True)
class MemoryGrowth:
    """The exponent with which memory grows with the length, between two lengths."""

    first: int
    last: int
    memory: float


Costs = dict[str, dict[int, PartCost]]


def weights_bytes(length: int) -> int:
    """Return the bytes of the attention weights of all heads, in float32."""
    return 4 * _NUM_HEADS * length**2


def show(config: AnatomyConfig, context: RunContext) -> PartResult:
    """Count and measure attention and the feed-forward part, from 32 tokens up."""
    with seeds.isolated(context.seed, NAME, "complexity"):
        attention = multi_head_attention(_D_MODEL, _NUM_HEADS).eval()
        feed_forward = FeedForward(_D_MODEL, _D_FF).eval()

    def works(length: int) -> dict[str, TimedCall]:
        generator = seeds.generator(0, NAME, "complexity", length)
        x = torch.randn(1, length, _D_MODEL, generator=generator)
        return {
            "kept": lambda: attention(x, need_weights=True),
            "fused": lambda: attention(x),
            "feed-forward": lambda: feed_forward(x),
        }

    try:
        costs = _measure(works, config, context)
    except RuntimeError as error:
        if "memory" not in str(error).lower():
            raise
        raise CouldNotRun(
            f"there is not enough memory for attention over {config.longest:,} tokens with its "
            f"weights, about {3.5 * weights_bytes(config.longest) / 2**30:.1f} GiB; take a "
            "smaller longest."
        ) from error
    longest = config.longest
    grown = {name: _growth(cost) for name, cost in costs.items()}
    slower, steady, beside = _slowdowns(costs, longest)
    threads = "one thread"
    if torch.get_num_threads() > 1:
        threads = f"{torch.get_num_threads()} threads"
    size = f"d = {_D_MODEL}, {_NUM_HEADS} heads, d_ff = {_D_FF:,}, one input, float32"
    numbers: Numbers = {
        "size": f"{size}, {threads}",
        "d_ff": _D_FF,
        "equal": _EQUAL,
        "repeats": config.repeats,
        "longest": longest,
        "crossing": {name: _crossing_text(costs, name) for name in ("kept", "fused")},
        "costs": costs,
        "grown": grown,
        "slower": slower,
        "steady": steady,
        "beside": beside,
    }
    return PartResult("complexity", numbers, _claims(numbers), _sections(costs, numbers))


def _claims(numbers: Numbers) -> list[Claim]:
    grown = numbers["grown"]
    return [
        _growth_claim(
            "kept_weights_take_memory_with_the_square",
            "with its weights kept, attention's peak memory grows with the square of the length",
            grown["kept"],
            2.0,
        ),
        _growth_claim(
            "fused_memory_is_linear",
            "with the fused kernel, attention's peak memory grows with the length itself",
            grown["fused"],
            1.0,
        ),
        _slowdown_claim(numbers),
    ]


def _growth_claim(name: str, words: str, grown: MemoryGrowth, expected: float) -> Claim:
    low, high = expected - _GROWTH_TOLERANCE, expected + _GROWTH_TOLERANCE
    return Claim(
        name,
        f"{words} ({grown.first:,} to {grown.last:,} tokens): the exponent",
        f"length to the power of {grown.memory:.2f}",
        f"{low:.2f} to {high:.2f}",
        low <= grown.memory <= high,
    )


def _slowdown_claim(numbers: Numbers) -> Claim:
    slower, beside = numbers["slower"], numbers["beside"]
    return Claim(
        "attention_slows_down_sooner",
        f"by the clock, {numbers['longest']:,} tokens take attention with its weights kept far "
        f"more than {SHORTEST:,} do, and the factor is larger than the feed-forward part's (means "
        "of rounds in turn, with 95 % intervals; undecided where an interval holds its bound, as "
        "on a busy machine)",
        f"{interval_text(slower, 0)} times as long, which is {interval_text(beside, 1)} times "
        f"feed-forward's {numbers['steady'].value:.0f}",
        f"above {_SLOWER:g} times, and above {_BESIDE:g} times feed-forward's",
        judge_all([is_above(slower, _SLOWER), is_above(beside, _BESIDE)]),
    )


def crossing(lengths: list[int], ratios: list[float]) -> float | None:
    """Return the length from which a ratio stays above 1, with logarithmic interpolation.

    It is 0.0 if the ratio is above 1 from the first length, None if it is not at the last.

    >>> round(crossing([100, 200, 400], [0.5, 0.5, 2.0]))
    283
    """
    last = -1  # the last length at which it is not above 1
    for index, ratio in enumerate(ratios):
        if ratio <= 1.0:
            last = index
    if last == -1:
        return 0.0
    if last + 1 == len(ratios):
        return None
    share = -math.log(ratios[last]) / (math.log(ratios[last + 1]) - math.log(ratios[last]))
    return float(lengths[last] * (lengths[last + 1] / lengths[last]) ** share)


def _doubling(longest: int) -> list[int]:
    return [SHORTEST << count for count in range((longest // SHORTEST).bit_length())]


def _measure(
    works: Callable[[int], dict[str, TimedCall]], config: AnatomyConfig, context: RunContext
) -> Costs:
    """Measure every part at every length in turn, at twice the longest too without the weights."""
    costs: Costs = {name: {} for name in _NAMES}
    measured: dict[tuple[str, int], TimedCall] = {}
    for length in _doubling(2 * config.longest):
        for name, work in works(length).items():
            if name != "kept" or length <= config.longest:
                measured[name, length] = work
    taken = times(measured, config.repeats, context.step)
    for (name, length), work in measured.items():
        costs[name][length] = PartCost(taken[name, length], peak_memory(work))
    return costs


def _growth(cost: dict[int, PartCost]) -> MemoryGrowth:
    """Return the exponent with which memory grows, over the last three lengths."""
    first, *_, last = list(cost)[-3:]
    exponent = math.log(cost[last].memory / cost[first].memory) / math.log(last / first)
    return MemoryGrowth(first, last, exponent)


def _slowdowns(costs: Costs, last: int) -> list[Interval]:
    """Return the slowdown of the last length over the first: attention, feed-forward, their ratio.

    Each is the geometric mean over the rounds, in which all were timed in turn.
    """
    kept, plain = costs["kept"], costs["feed-forward"]
    attention = np.log(np.divide(kept[last].times, kept[SHORTEST].times))
    feed_forward = np.log(np.divide(plain[last].times, plain[SHORTEST].times))
    logarithms = (attention, feed_forward, attention - feed_forward)
    return [Interval(*map(math.exp, mean_interval(logarithm.tolist()))) for logarithm in logarithms]


def _crossing_text(costs: Costs, name: str) -> str:
    beside = costs["feed-forward"]  # which was measured at every length
    lengths = list(costs[name])
    crossed = crossing(
        lengths, [costs[name][length].median / beside[length].median for length in lengths]
    )
    if crossed is None:
        return f"beyond {lengths[-1]:,} tokens"
    if not crossed:
        return f"below {lengths[0]:,} tokens"
    return f"at {crossed:,.0f} tokens"


def _sections(costs: Costs, numbers: Numbers) -> list[Section]:
    lines = partial(Lines, x_label="tokens", x_log=True, y_log=True)
    milliseconds, mebibytes = [], []
    for name, cost in costs.items():
        label, x = _NAMES[name], list(cost)
        taken = [measured.milliseconds for measured in cost.values()]
        memory = [measured.memory / _MEBI for measured in cost.values()]
        milliseconds.append(Series.of_intervals(label, x, taken))
        mebibytes.append(Series(name=label, x=x, y=memory))
    kept = list(costs["kept"])
    alone = [weights_bytes(length) / _MEBI for length in kept]
    mebibytes.append(Series(name="the weights alone (counted)", x=kept, y=alone))
    return [
        lines(series=_counts(list(costs["fused"])), **WORDS.texts("complexity.counted", numbers)),
        lines(series=milliseconds, **WORDS.texts("complexity.time", numbers)),
        lines(series=mebibytes, **WORDS.texts("complexity.memory")),
    ]


def _counts(lengths: list[int]) -> list[Series]:
    """Draw the multiply-adds by length, in millions: four projections, the scores and the weighted
    values of attention, and the two layers of feed-forward."""
    scores = [2 * length**2 * _D_MODEL / 1e6 for length in lengths]
    projections = [4 * length * _D_MODEL**2 / 1e6 for length in lengths]
    attention = [one + other for one, other in zip(scores, projections, strict=True)]
    feed_forward = [2 * length * _D_MODEL * _D_FF / 1e6 for length in lengths]
    return [
        Series(name="attention", x=lengths, y=attention),
        Series(name="of it, scores and values", x=lengths, y=scores),
        Series(name="feed-forward", x=lengths, y=feed_forward),
    ]
