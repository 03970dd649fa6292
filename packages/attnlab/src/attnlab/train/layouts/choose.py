"""The choice of a population's layout: the one asked for, or the quickest by measured prices.

The choice is by arithmetic, never by the clock, since the same seed has to give the same bytes:
what a step takes is counted, and priced by what each layout was measured to need
(`benchmarks/populations.py`, one core of an AMD Zen 4).
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from attnlab.errors import WrongUsage
from attnlab.native import compiler_name, vector_bytes
from attnlab.train.config import EngineName, LayoutName, TrainConfig
from attnlab.train.layouts.blocks import stacked_batches
from attnlab.train.layouts.effort import Effort, effort_of
from attnlab.train.layouts.layout import (
    Batch,
    Batches,
    CompilationFailed,
    Layout,
    Loss,
    NotExpressible,
)
from attnlab.train.layouts.sequential import Sequential, batch_of
from attnlab.train.layouts.simd import WIDTH, Simd, interpreted
from attnlab.train.layouts.trial import expected_of, tried
from attnlab.train.layouts.vmap import refuse_noise, vmapped

_What = tuple[Sequence[nn.Module], Sequence[TrainConfig], Loss, Batch]
"""Models, configs, loss, and the batch of one step of one member."""

_FEW_STEPS = 300  # of all members together


@dataclass(frozen=True)
class LayoutChoice:
    """A layout with its engine, and its price.

    Attributes:
        layout, is_compiled: which.
        width: members that take a step in one call.
        once: seconds before the first step.
        call: microseconds that a call takes, however small it is.
        member, number, product: microseconds that it takes longer for each member, for each
            thousand numbers that a member's operations write, and for each million floating-point
            operations of its matrix products.
    """

    layout: LayoutName
    is_compiled: bool
    width: int
    once: float
    call: float
    member: float
    number: float
    product: float

    def seconds(self, effort: Effort, members: int, steps: int, threads: int) -> float:
        """Estimate how long a training takes; a last call with fewer members costs the same."""
        rounds = math.ceil(members / self.width)
        if self.layout == "simd":
            rounds = math.ceil(rounds / threads)
        work = self.member + effort.numbers * self.number + effort.products * self.product
        return self.once + steps * rounds * (self.call + self.width * work) * 1e-6


def ways(effort: Effort, members: int) -> list[LayoutChoice]:
    """List the ways to train so many members."""
    lanes = vector_bytes() // 4
    # Without a compiler a row of fewer than 16 members is as slow as one of 16; that of 1 is not.
    row = 1 if members == 1 else min(max(members, 16), WIDTH)
    return [
        LayoutChoice("sequential", False, 1, 0.0, 1_600, 0, 1.2, 11),
        LayoutChoice("vmap", False, members, 0.0, 3_500, 200, 2.5, 11),
        LayoutChoice("simd", False, row, 0.5, 1_000, 0, 0.6, 170),
        LayoutChoice("simd", True, lanes, 8.0, 5, 0, 0.05, 27),
    ]


def choose_layout(
    models: Sequence[nn.Module],
    configs: Sequence[TrainConfig],
    loss: Loss,
    *,
    noise: Sequence[int],
    example: Sequence[Batches],
    layout: LayoutName = "auto",
    engine: EngineName = "auto",
    workers: int | None = None,
    tell: Callable[[str], None] = lambda sentence: None,
) -> Layout:
    """Make the layout.

    Args:
        models: the members, untrained; `configs`, `noise` (seeds) and `example` (the batches of
            some steps) likewise.
        loss: of one model on one batch.
        layout: "auto", or the one that it must be.
        engine: "eager" compiles nothing, "compiled" compiles in any case, "auto" where that pays.
        workers: threads that members are shared out among; None for as many as torch has.
        tell: is told in a sentence why what was asked for could not be.

    Raises:
        WrongUsage: the layout asked for cannot hold these models.
    """
    if engine == "compiled" and layout in ("sequential", "vmap"):
        tell(f"The layout {layout} compiles nothing; it trains as it is.")
    sequential = Sequential(models, configs, loss, noise)
    if layout == "sequential":
        return sequential
    threads = workers or torch.get_num_threads()
    refused: list[NotExpressible] = []
    made: Layout | None = None

    def refuse(way: LayoutChoice, reason: NotExpressible) -> None:
        refused.append(reason)
        if isinstance(reason, CompilationFailed) or (engine == "compiled" and way.is_compiled):
            tell(f"The layout {way.layout} cannot be compiled here: {reason}.")

    try:
        refuse_noise(models[0])
        stacked_batches(example)
        what = (models, configs, loss, batch_of(example[0], 0))
        chosen = _by_price(what, threads, layout, engine)
        made = _first_right(_possible(chosen, engine, models[0], tell), what, threads, refuse)
    except NotExpressible as reason:
        refused.append(reason)
    if made is None and layout != "auto":
        raise WrongUsage(f"the layout {layout} cannot hold these models: {refused[0]}.")
    return sequential if made is None else made


def _first_right(
    possible: Iterable[LayoutChoice],
    what: _What,
    threads: int,
    refuse: Callable[[LayoutChoice, NotExpressible], None],
) -> Layout | None:
    """Return the first layout that can hold the models and takes the right first step; None where
    that is the sequential one."""
    _, configs, _, example = what
    expected = None
    for way in possible:
        if way.layout == "sequential":
            break
        expected = expected or expected_of(*what)
        try:
            return tried(_made(way, what, threads), configs, example, expected)
        except NotExpressible as reason:
            refuse(way, reason)
    return None


def _by_price(
    what: _What, threads: int, layout: LayoutName, engine: EngineName
) -> list[LayoutChoice]:
    """List the ways that are of a layout, the quickest first."""
    models, configs, loss, example = what
    number, steps = len(models), configs[0].steps
    if layout == "auto" and engine != "compiled" and number * steps <= _FEW_STEPS:
        effort = Effort(0.0, 0.0)  # not worth counting: nothing is quicker than to begin
    else:
        effort = effort_of(models[0], loss, example)
    candidates = [way for way in ways(effort, number) if layout in ("auto", way.layout)]
    return sorted(candidates, key=lambda way: way.seconds(effort, number, steps, threads))


def _made(way: LayoutChoice, what: _What, threads: int) -> Layout:
    if way.layout == "vmap":
        return vmapped(*what)
    make = Simd if way.is_compiled else interpreted
    return make(*what, workers=threads)


def _possible(
    ways: list[LayoutChoice], engine: EngineName, model: nn.Module, tell: Callable[[str], None]
) -> list[LayoutChoice]:
    """Return the ways that are possible here, in the order in which they are tried."""
    if next(model.parameters()).device.type != "cpu":
        # A GPU takes all members in each call of vmap, and has no vectors of our own.
        on_gpu = [way for way in ways if way.layout in ("vmap", "sequential")]
        return sorted(on_gpu, key=lambda way: way.layout != "vmap")
    eager = [way for way in ways if not way.is_compiled]
    if engine == "eager":
        return eager
    if compiler_name() is None:
        if ways[0].is_compiled or engine == "compiled":
            tell(
                "No C++ compiler was found (such as g++), so the steps are not compiled and "
                "take longer."
            )
        return eager
    if engine == "compiled":
        return sorted(ways, key=lambda way: not way.is_compiled)
    return ways
