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

import torch
from torch import nn

from attnlab import seeds
from attnlab.core.stats import Interval, is_above, mean_interval
from attnlab.draw.sections import Lines, Section, Series, Table
from attnlab.errors import CouldNotRun
from attnlab.experiments.anatomy.config import NAME, SHORTEST, AnatomyConfig
from attnlab.experiments.anatomy.cost import multiply_adds, peak_memory, times
from attnlab.experiments.anatomy.result import PartResult, interval_text
from attnlab.experiments.claims import Claim
from attnlab.experiments.experiment import Run
from attnlab.parts.feed_forward import FeedForward
from attnlab.parts.heads import MultiHeadAttention, multi_head_attention

_D_MODEL, _NUM_HEADS, _D_FF = 512, 8, 2048
_COUNTED = 2048  # tokens, up to which the counts are compared with PyTorch's
_SLOWER, _BESIDE = 10.0, 2.0  # slowdown of attention on long inputs, alone and over feed-forward
_EXPLICIT, _FUSED, _FEED_FORWARD = "attention, weights kept", "attention, fused", "feed-forward"


@dataclass(frozen=True)
class Measured:
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
class Growth:
    """The exponents with which memory and time grow with the length, between two lengths."""

    first: int
    last: int
    memory: float
    time: float


Costs = dict[str, dict[int, Measured]]


def attention_count(length: int) -> int:
    """Return the multiply-adds of attention: four projections, the scores, the weighted values."""
    return 4 * length * _D_MODEL**2 + 2 * length**2 * _D_MODEL


def feed_forward_count(length: int) -> int:
    """Return the multiply-adds of the feed-forward part: two layers."""
    return 2 * length * _D_MODEL * _D_FF


def weights_bytes(length: int) -> int:
    """Return the bytes of the attention weights of all heads, in float32."""
    return 4 * _NUM_HEADS * length**2


def show(config: AnatomyConfig, context: Run) -> PartResult:
    """Count and measure attention and the feed-forward part, from 32 tokens up."""
    lengths = _doubling(config.longest)
    with seeds.isolated(context.seed, NAME, "complexity"):
        attention = multi_head_attention(_D_MODEL, _NUM_HEADS)
        feed_forward = FeedForward(_D_MODEL, _D_FF)
    attention.eval()
    feed_forward.eval()
    try:
        counted = _counted(attention, feed_forward, _doubling(_COUNTED))
        costs = _measured(attention, feed_forward, lengths, config.repeats, context)
    except RuntimeError as error:
        if "memory" not in str(error).lower():
            raise
        raise CouldNotRun(
            f"there is not enough memory for attention over {config.longest:,} tokens with its "
            f"weights, about {3.5 * weights_bytes(config.longest) / 2**30:.1f} GiB; take a "
            "smaller longest."
        ) from error
    longest = lengths[-1]
    summary = (
        f"Complexity. By count attention overtakes feed-forward at {_D_FF - 2 * _D_MODEL:,} "
        f"tokens; by the clock, here, {_crossing_text(costs, _EXPLICIT)} with its weights kept "
        f"and {_crossing_text(costs, _FUSED)} with the fused kernel. Over {longest:,} tokens it "
        f"holds {costs[_EXPLICIT][longest].memory / 2**20:.0f} MiB at once with its weights, "
        f"{costs[_FUSED][longest].memory / 2**20:.0f} MiB fused."
    )
    return PartResult(summary, _claims(counted, costs), _sections(costs, config.repeats))


def crossing(lengths: list[int], ratios: list[float]) -> float | None:
    """Return the length from which a ratio stays above 1, with logarithmic interpolation.

    It is 0.0 if the ratio is above 1 from the first length, None if it is not at the last.

    >>> round(crossing([100, 200, 400], [0.5, 0.5, 2.0]))
    283
    """
    below = [index for index, ratio in enumerate(ratios) if ratio <= 1.0]
    if not below:
        return 0.0
    last = below[-1]
    if last + 1 == len(ratios):
        return None
    share = -math.log(ratios[last]) / (math.log(ratios[last + 1]) - math.log(ratios[last]))
    return float(lengths[last] * (lengths[last + 1] / lengths[last]) ** share)


def _doubling(longest: int) -> list[int]:
    lengths = [SHORTEST]
    while 2 * lengths[-1] <= longest:
        lengths.append(2 * lengths[-1])
    return lengths


def _works(
    attention: MultiHeadAttention, feed_forward: nn.Module, length: int
) -> dict[str, Callable[[], Any]]:
    x = torch.randn(1, length, _D_MODEL, generator=seeds.generator(0, NAME, "complexity", length))
    return {
        _EXPLICIT: lambda: attention(x, need_weights=True),
        _FUSED: lambda: attention(x),
        _FEED_FORWARD: lambda: feed_forward(x),
    }


def _counted(
    attention: MultiHeadAttention, feed_forward: nn.Module, lengths: list[int]
) -> dict[int, tuple[int, ...]]:
    """Count with PyTorch at each length: attention, feed-forward, bytes of the weights."""
    counted: dict[int, tuple[int, ...]] = {}
    for length in sorted({*lengths, _D_FF - 2 * _D_MODEL}):
        works = _works(attention, feed_forward, length)
        with torch.no_grad():
            weights = works[_EXPLICIT]().weights
        counted[length] = (
            multiply_adds(works[_EXPLICIT]),
            multiply_adds(works[_FEED_FORWARD]),
            weights.nbytes,
        )
    return counted


def _measured(
    attention: MultiHeadAttention,
    feed_forward: nn.Module,
    lengths: list[int],
    repeats: int,
    context: Run,
) -> Costs:
    """Measure every part at every length in turn, at twice the longest too without the weights."""
    costs: Costs = {_EXPLICIT: {}, _FUSED: {}, _FEED_FORWARD: {}}
    works = {
        (name, length): work
        for length in [*lengths, 2 * lengths[-1]]
        for name, work in _works(attention, feed_forward, length).items()
        if name != _EXPLICIT or length <= lengths[-1]
    }
    taken = times(works, repeats, context.step)
    for (name, length), work in works.items():
        costs[name][length] = Measured(taken[name, length], peak_memory(work))
    return costs


def _growth(cost: dict[int, Measured]) -> Growth:
    """Return the exponents with which memory and time grow, over the last three lengths."""
    first, *_, last = list(cost)[-3:]
    span = math.log(last / first)
    return Growth(
        first,
        last,
        math.log(cost[last].memory / cost[first].memory) / span,
        math.log(cost[last].median / cost[first].median) / span,
    )


def _claims(counted: dict[int, tuple[int, ...]], costs: Costs) -> list[Claim]:
    expected = {
        each: (attention_count(each), feed_forward_count(each), weights_bytes(each))
        for each in counted
    }
    agreeing = sum(counted[each] == expected[each] for each in counted)
    equal = _D_FF - 2 * _D_MODEL
    explicit, fused = _growth(costs[_EXPLICIT]), _growth(costs[_FUSED])
    last = max(costs[_EXPLICIT])
    slower, steady, beside = _slowdowns(costs, last)
    verdicts = (is_above(slower, _SLOWER), is_above(beside, _BESIDE))
    return [
        Claim(
            "counts_are_those_of_pytorch",
            "multiply-adds 4·L·d² + 2·L²·d for attention and 2·L·d·d_ff for feed-forward, and "
            f"4·h·L² bytes of weights, are what PyTorch counts up to {max(counted):,} tokens; at "
            f"L = d_ff - 2d = {equal:,} attention overtakes",
            f"{agreeing} of {len(counted)} lengths agree; at {equal:,}: "
            f"{counted[equal][0] / 1e6:,.1f} and {counted[equal][1] / 1e6:,.1f} million",
            f"{len(counted)} of {len(counted)}; equal at {equal:,}",
            agreeing == len(counted) and counted[equal][0] == counted[equal][1],
        ),
        Claim(
            "kept_weights_take_memory_with_the_square",
            "with its weights kept, attention's peak memory grows with the square of the length "
            f"({explicit.first:,} to {explicit.last:,} tokens): the exponent",
            f"length to the power of {explicit.memory:.2f}",
            "1.80 to 2.20",
            1.8 <= explicit.memory <= 2.2,
        ),
        Claim(
            "fused_memory_is_linear",
            "with the fused kernel, attention's peak memory grows with the length itself "
            f"({fused.first:,} to {fused.last:,} tokens): the exponent",
            f"length to the power of {fused.memory:.2f}",
            "0.80 to 1.20",
            0.8 <= fused.memory <= 1.2,
        ),
        Claim(
            "attention_slows_down_sooner",
            f"by the clock, {last:,} tokens take attention with its weights kept far more than "
            f"{SHORTEST} do, and the factor is larger than the feed-forward part's (means of "
            "rounds in turn, with 95 % intervals; undecided where an interval holds its bound, "
            "as on a busy machine)",
            f"{interval_text(slower, 0)} times as long, which is {interval_text(beside, 1)} times "
            f"feed-forward's {steady.value:.0f}",
            f"above {_SLOWER:g} times, and above {_BESIDE:g} times feed-forward's",
            None if None in verdicts and False not in verdicts else all(verdicts),
        ),
    ]


def _slowdowns(costs: Costs, last: int) -> tuple[Interval, Interval, Interval]:
    """Return the slowdown of the last length over the first: attention, feed-forward, their ratio.

    Each is the geometric mean over the rounds, in which all were timed in turn.
    """

    def logarithms(cost: dict[int, Measured]) -> list[float]:
        rounds = zip(cost[last].times, cost[SHORTEST].times, strict=True)
        return [math.log(long / short) for long, short in rounds]

    def mean(logs: list[float]) -> Interval:
        return Interval(*map(math.exp, mean_interval(logs)))

    attention, feed_forward = logarithms(costs[_EXPLICIT]), logarithms(costs[_FEED_FORWARD])
    ratio = [one - other for one, other in zip(attention, feed_forward, strict=True)]
    return mean(attention), mean(feed_forward), mean(ratio)


def _crossing_text(costs: Costs, name: str) -> str:
    lengths = [length for length in costs[name] if length in costs[_FEED_FORWARD]]
    ratios = [costs[name][each].median / costs[_FEED_FORWARD][each].median for each in lengths]
    found = crossing(lengths, ratios)
    if found is None:
        return f"beyond {lengths[-1]:,} tokens"
    return f"at {found:,.0f} tokens" if found else f"below {lengths[0]:,} tokens"


def _sections(costs: Costs, repeats: int) -> list[Section]:
    lengths = list(costs[_FUSED])
    threads = "one thread" if torch.get_num_threads() == 1 else f"{torch.get_num_threads()} threads"
    size = f"d = {_D_MODEL}, {_NUM_HEADS} heads, d_ff = {_D_FF:,}, one input, float32, {threads}"
    counts = {
        "attention": [attention_count(each) / 1e6 for each in lengths],
        "of it, scores and values": [2 * each**2 * _D_MODEL / 1e6 for each in lengths],
        _FEED_FORWARD: [feed_forward_count(each) / 1e6 for each in lengths],
    }
    return [
        _lines(
            figure="complexity-counted",
            title="Complexity: counted",
            caption=f"Multiply-adds of one forward pass ({size}). Attention overtakes "
            f"feed-forward at d_ff - 2d = {_D_FF - 2 * _D_MODEL:,} tokens; its scores and values "
            f"alone at d_ff = {_D_FF:,}.",
            y_label="million multiply-adds",
            series=[Series(name=name, x=lengths, y=found) for name, found in counts.items()],
        ),
        _lines(
            figure="complexity-time",
            title="Complexity: time, measured",
            caption=f"Median of {repeats} rounds in turn, with the least and the most ({size}). On "
            "this machine attention overtakes feed-forward "
            f"{_crossing_text(costs, _EXPLICIT)} with its weights kept, "
            f"{_crossing_text(costs, _FUSED)} with the fused kernel.",
            y_label="milliseconds",
            series=[
                Series.of_intervals(name, list(cost), [each.milliseconds for each in cost.values()])
                for name, cost in costs.items()
            ],
        ),
        _lines(
            figure="complexity-memory",
            title="Complexity: peak memory, measured",
            caption="The peak of torch's allocator during a forward pass, without inputs and "
            "parameters, as its profiler reports it; and the weights alone, counted.",
            y_label="MiB",
            series=[
                *(
                    Series(
                        name=name,
                        x=list(cost),
                        y=[each.memory / 2**20 for each in cost.values()],
                    )
                    for name, cost in costs.items()
                ),
                Series(
                    name="the weights alone (counted)",
                    x=list(costs[_EXPLICIT]),
                    y=[weights_bytes(each) / 2**20 for each in costs[_EXPLICIT]],
                ),
            ],
        ),
        Table(
            title="Complexity: where attention overtakes feed-forward",
            caption="Measured: the length from which on its median time stays above, interpolated.",
            columns=["what", "how", "where"],
            rows=[
                ["scores and values", "counted", f"at {_D_FF:,} tokens"],
                ["all of attention", "counted", f"at {_D_FF - 2 * _D_MODEL:,} tokens"],
                ["attention, weights kept", "measured", _crossing_text(costs, _EXPLICIT)],
                ["attention, fused", "measured", _crossing_text(costs, _FUSED)],
            ],
        ),
        Table(
            title="Complexity: growth with the length",
            caption="The exponents with which time and peak memory grow with the length, over the "
            "last three lengths: 1 is linear, 2 quadratic. Time depends on the machine and its "
            "load.",
            columns=["part", "from", "to", "time", "peak memory"],
            rows=[
                [name, growth.first, growth.last, f"{growth.time:.2f}", f"{growth.memory:.2f}"]
                for name, growth in ((name, _growth(cost)) for name, cost in costs.items())
            ],
        ),
        _table(costs, lengths),
    ]


_lines = partial(Lines, x_label="tokens", x_log=True, y_log=True)


def _table(costs: Costs, lengths: list[int]) -> Table:
    def cells(what: str, name: str, length: int) -> dict[str, str]:
        found, times, memory = costs[name].get(length), "", ""
        if found is not None:
            times, memory = f"{1e3 * found.median:.2f}", f"{found.memory / 2**20:.2f}"
        return {f"{what}: ms": times, f"{what}: MiB": memory}

    return Table.of_records(
        title="Complexity in numbers",
        caption="Million multiply-adds and the weights' MiB counted; milliseconds and peak MiB "
        "measured.",
        records=[
            {
                "tokens": length,
                "attention (M)": f"{attention_count(length) / 1e6:,.1f}",
                "feed-forward (M)": f"{feed_forward_count(length) / 1e6:,.1f}",
                "weights (MiB)": f"{weights_bytes(length) / 2**20:,.2f}",
                **cells("kept", _EXPLICIT, length),
                **cells("fused", _FUSED, length),
                **cells("feed-forward", _FEED_FORWARD, length),
            }
            for length in lengths
        ],
    )
