"""`rank`: the rank of the outputs of one head, of several heads, and of a feed-forward layer.

One head's output is `weights · V`, so its rank is at most that of V: attention mixes rows, and adds
no new direction. Several heads joined are `Σ_h weights_h · V_h`, which may have h times the rank. A
feed-forward layer is nonlinear in each row, and has neither bound.
"""

import operator
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from attnlab import seeds
from attnlab.core.stats import mean_interval
from attnlab.draw.sections import Lines, Series
from attnlab.experiments.anatomy.config import NAME, WORDS, AnatomyConfig
from attnlab.experiments.anatomy.result import PartResult
from attnlab.experiments.claims import Claim
from attnlab.experiments.experiment import RunContext
from attnlab.experiments.sections import range_words
from attnlab.experiments.words import Numbers
from attnlab.look.statistics import numerical_rank
from attnlab.parts.attend import attend
from attnlab.parts.feed_forward import FeedForward
from attnlab.parts.heads import multi_head_attention
from attnlab.parts.linear import use_matrix_path

_LENGTH, _WIDTH, _NUM_HEADS = 12, 8, 4
_TOLERANCE = 1e-9  # smaller singular values, relative to the largest, count as 0
_MOST = 300  # draws of each rank: each is a singular value decomposition


def show(config: AnatomyConfig, context: RunContext) -> PartResult:
    """Measure the rank of each layer's output for inputs of every rank."""
    draws = min(config.draws, _MOST)
    generator = seeds.generator(context.seed, NAME, "rank")
    ways: dict[str, Callable[[Tensor, torch.Generator], Tensor]] = {
        "one head": attend_once,
        f"{_NUM_HEADS} heads joined": joined_heads,
        "feed-forward, no biases": partial(feed_forward, bias=False),
        "feed-forward": partial(feed_forward, bias=True),
    }
    signs: list[int] = []  # that the rows of each input of rank 1 have, beside one another
    ranks: dict[str, dict[int, list[int]]] = {name: {} for name in ways}
    for rank in range(1, _WIDTH + 1):
        left = torch.randn(draws, _LENGTH, rank, generator=generator, dtype=torch.float64)
        right = torch.randn(draws, rank, _WIDTH, generator=generator, dtype=torch.float64)
        if rank == 1:
            signs = ((left > 0).any(1).int() + (left < 0).any(1).int()).flatten().tolist()
        for name, way in ways.items():
            with torch.no_grad():
                output = way(left @ right, generator)
            ranks[name][rank] = numerical_rank(output, tolerance=_TOLERANCE).tolist()
        context.step(rank, _WIDTH)
    one, joined, bare, biased = ranks.values()
    numbers: Numbers = {
        "reach": range_words,
        "draws": draws,
        "length": _LENGTH,
        "width": _WIDTH,
        "heads": _NUM_HEADS,
        "one": one,
        "joined": joined,
        "bare": bare,
        "biased": biased,
        "within": _count_up_to(one, 1),
        "total": draws * _WIDTH,
        "exceeding": _count_above(joined[1], 1),
        "over": draws * _WIDTH - _count_up_to(joined, _NUM_HEADS),
        "bent": sum(map(operator.eq, bare[1], signs)),
        "more": _count_above(biased[1], 2),
    }
    series = []
    for name, kind_ranks in ranks.items():
        means = map(mean_interval, kind_ranks.values())
        series.append(Series.of_intervals(name, list(kind_ranks), means))
    lines = Lines(series=series, **WORDS.texts("rank.lines", numbers))
    return PartResult("rank", numbers, _claims(numbers), [lines])


def _claims(numbers: Numbers) -> list[Claim]:
    draws, within, total = numbers["draws"], numbers["within"], numbers["total"]
    exceeding, over, largest = numbers["exceeding"], numbers["over"], max(numbers["joined"][1])
    bent, more = numbers["bent"], numbers["more"]
    return [
        Claim(
            "one_head_keeps_the_rank",
            f"the rank of one head's output is at most that of V, for V of every rank from 1 to "
            f"{_WIDTH}",
            f"{within:,}/{total:,} draws",
            f"{total:,}/{total:,}",
            within == total,
        ),
        Claim(
            "joined_heads_exceed_the_rank",
            f"{_NUM_HEADS} heads joined make more than rank 1 of inputs of rank 1, up to "
            f"{_NUM_HEADS}, and never more than {_NUM_HEADS} times the rank",
            f"more than 1 in {exceeding}/{draws} draws, at most {largest}; beyond {_NUM_HEADS} "
            f"times in {over}",
            f"more than 1 in all {draws}, at most {_NUM_HEADS}; beyond {_NUM_HEADS} times in 0",
            exceeding == draws and largest == _NUM_HEADS and over == 0,
        ),
        Claim(
            "feed_forward_bends",
            "a ReLU layer without biases makes of rank 1 exactly one direction for each sign that "
            "its rows have (rank 2, but where all rows point one way), and one with biases makes "
            "more than 2",
            f"one for each sign in {bent}/{draws} draws; more than 2 in {more}/{draws}, on average "
            f"{sum(numbers['biased'][1]) / draws:.1f}",
            f"both in all {draws}",
            bent == more == draws,
        ),
    ]


def attend_once(value: Tensor, generator: torch.Generator) -> Tensor:
    """Attend to values (draw, key, width) with random queries and keys."""
    query = torch.randn(value.shape, generator=generator, dtype=value.dtype)
    key = torch.randn(value.shape, generator=generator, dtype=value.dtype)
    return attend(query, key, value).output


def joined_heads(x: Tensor, generator: torch.Generator) -> Tensor:
    """Attend with several heads and new random weights for each draw, (draw, length, width)."""
    with seeds.isolated(0):  # the initial weights are replaced at once
        attention = multi_head_attention(_WIDTH, _NUM_HEADS, bias=False).double()
    return _with_weights_of_its_own(attention, lambda attention: attention.output, x, generator)


def feed_forward(x: Tensor, generator: torch.Generator, *, bias: bool) -> Tensor:
    """Apply a feed-forward layer with new random weights for each draw, (draw, length, width)."""
    with seeds.isolated(0):  # as above
        part = FeedForward(_WIDTH, 4 * _WIDTH, bias=bias).double()
    return _with_weights_of_its_own(part, lambda output: output, x, generator)


def _with_weights_of_its_own(
    part: nn.Module, output_of: Callable[[Any], Tensor], x: Tensor, generator: torch.Generator
) -> Tensor:
    """Apply the part to each draw with its own standard normal weights and biases."""
    weights = {
        name: torch.randn((len(x), *parameter.shape), generator=generator, dtype=x.dtype)
        for name, parameter in part.named_parameters()
    }

    def one(drawn: dict[str, Tensor], row: Tensor) -> Tensor:
        return output_of(torch.func.functional_call(part, drawn, (row,)))

    with use_matrix_path("default"):
        output: Tensor = torch.func.vmap(one)(weights, x.unsqueeze(1)).squeeze(1)
    return output


def _count_above(ranks: list[int], bound: int) -> int:
    return sum(rank > bound for rank in ranks)


def _count_up_to(ranks: dict[int, list[int]], times: int) -> int:
    """Count the outputs whose rank is at most so many times that of the input."""
    return sum(
        len(rank_values) - _count_above(rank_values, times * rank)
        for rank, rank_values in ranks.items()
    )
