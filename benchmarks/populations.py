"""Populations: what a step of a model costs, alone and among many, in each layout; and whether the
rule chooses right.

    python benchmarks/populations.py [--parts sorting grid whole] [--device cpu] [--rounds 11]

`sorting`: against the plain loop of `notebook.py`, drawing included. `grid`: every layout for
several sizes and populations, and what `choose.py` takes. `whole`: compiling, and 100 seeds of
15,000 steps from beginning to end. One thread; processor time, but for `whole`, whose time is wall
time; how times are taken and compared: `timing.py`.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnlab import seeds
from attnlab.experiments.sorting import sorter
from attnlab.experiments.sorting.config import SortingConfig
from attnlab.models.decoder import Decoder, DecoderConfig
from attnlab.train import TrainConfig, train_together
from attnlab.train.layouts.choose import LayoutChoice, ways
from attnlab.train.layouts.effort import effort_of
from attnlab.train.layouts.layout import Layout, Loss, NotExpressible
from attnlab.train.layouts.sequential import Sequential
from attnlab.train.layouts.simd import Simd, interpreted
from attnlab.train.layouts.vmap import vmapped
from attnlab.train.loop import Sampler
from notebook import notebook_steps
from results import Table, measured
from timing import Times, interleaved

_STEPS = 15_000  # over which the time to compile is spread in the grid
_TOO_DEAR = 5  # ways that the rule reckons so many times as dear as the best are not measured


class Size(NamedTuple):
    """A decoder and its batch; None of a decoder for the sorter."""

    decoder: DecoderConfig | None
    batch: int = 0
    length: int = 0


def _decoder(d_model: int, *, layers: int, length: int, vocab: int) -> DecoderConfig:
    return DecoderConfig(
        vocab_size=vocab,
        max_length=length,
        d_model=d_model,
        num_heads=4 if d_model > 16 else 2,
        num_layers=layers,
        d_ff=4 * d_model,
        activation="gelu",
        positions="learned",
    )


SIZES = {
    "sorting": Size(None),
    "d 8": Size(_decoder(8, layers=1, length=8, vocab=8), 32, 8),
    "d 16": Size(_decoder(16, layers=1, length=16, vocab=16), 16, 16),
    "d 32": Size(_decoder(32, layers=2, length=16, vocab=32), 32, 16),
    "d 64": Size(_decoder(64, layers=2, length=32, vocab=64), 32, 32),
    "d 128": Size(_decoder(128, layers=4, length=64, vocab=64), 16, 64),
}


class Population(NamedTuple):
    """Members of one size, and what they learn from."""

    models: list[nn.Module]
    configs: list[TrainConfig]
    samplers: list[Sampler]
    loss: Loss

    def example(self) -> tuple[Tensor, ...]:
        """Return the batch of a step of the first."""
        return tuple(part[0] for part in self.samplers[0](0, 1))


def population(name: str, members: int, device: str) -> Population:
    """Make members of a size."""
    size = SIZES[name]
    if size.decoder is None:
        problem = sorter.problem([SortingConfig()] * members, range(members))
        return Population(
            [m.model for m in problem.members],
            [m.config for m in problem.members],
            [m.sample for m in problem.members],
            problem.loss,
        )
    models: list[nn.Module] = []
    for seed in range(members):
        with seeds.isolated(seed, "model"):
            models.append(Decoder(size.decoder).to(device))
    samplers = [_token_sampler(seed, size, device) for seed in range(members)]
    return Population(models, [TrainConfig(steps=_STEPS)] * members, samplers, _next_token)


def _token_sampler(seed: int, size: Size, device: str) -> Sampler:
    vocab = size.decoder.vocab_size if size.decoder else 0

    def sample(first: int, count: int) -> tuple[Tensor, ...]:
        source = seeds.generator(seed, "data", first)
        return (
            torch.randint(vocab, (count, size.batch, size.length + 1), generator=source).to(device),
        )

    return sample


def _next_token(model: nn.Module, rows: Tensor) -> Tensor:
    return F.cross_entropy(model(rows[:, :-1]).transpose(1, 2), rows[:, 1:])


def sequential(each: Population) -> Sequential:
    """Train one after the other; two of them tell what each costs."""
    few = slice(0, 2)
    return Sequential(each.models[few], each.configs[few], each.loss, [0] * 2)


def layouts(each: Population) -> dict[str, Callable[[], Layout]]:
    """Name the ways to train a population."""
    arguments = (each.models, each.configs, each.loss, each.example())
    return {
        "sequential eager": lambda: sequential(each),
        "vmap eager": lambda: vmapped(*arguments),
        "simd eager": lambda: interpreted(*arguments),
        "simd compiled": lambda: Simd(*arguments),
    }


def steps_of(layout: Layout, samplers: Sequence[Sampler], count: int) -> Callable[[], object]:
    """Prepare some steps of all members, drawing included."""
    members = len(layout.state()["steps"])
    first = 0

    def call() -> object:
        nonlocal first
        batches = [sample(first, count) for sample in samplers[:members]]
        rates = torch.full((count, members), 1e-3, dtype=torch.float64)
        first += count
        return layout.advance(batches, rates, first - count, lambda: False)

    return call


def per_step(times: Times, steps: int) -> Times:
    """Divide by the model-steps of a call."""
    return Times([each / steps for each in times.wall], [each / steps for each in times.processor])


def median(values: Sequence[float]) -> float:
    """Return the middle value."""
    return sorted(values)[len(values) // 2]


def sorting(rounds: int, device: str, table: Table) -> None:
    """Compare with the notebook's loop."""
    notebook = notebook_steps()
    calls: dict[str, Callable[[], object]] = {"notebook": lambda: notebook(20)}
    steps = {"notebook": 20}
    for members in (1, 64, 1_024):
        each = population("sorting", members, device)
        arguments = (each.models, each.configs, each.loss, each.example())
        for is_compiled in (True, False) if members < 1_024 else (True,):
            layout: Layout = Simd(*arguments) if is_compiled else interpreted(*arguments)
            name = f"{members:,} model{'s' * (members > 1)}"
            name += "" if is_compiled else ", no compiler"
            calls[name], steps[name] = steps_of(layout, each.samplers, 50), 50 * members
    found = {
        name: [1e6 * second for second in per_step(each, steps[name]).processor]
        for name, each in interleaved(calls, rounds=rounds).items()
    }
    for name in list(found)[1:]:
        table.add(name, {"notebook": found["notebook"], "attnlab": found[name]}, unit="µs")


def compile_times(rounds: int, table: Table) -> None:
    """Time how long the sorter's step takes to compile, and to be found again."""
    before, seconds = os.environ.get("XDG_CACHE_HOME"), [[], []]
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            os.environ["XDG_CACHE_HOME"] = folder
            for found in seconds:
                each = population("sorting", 1, "cpu")
                began = time.perf_counter()
                Simd(each.models, each.configs, each.loss, each.example())
                found.append(time.perf_counter() - began)
    if before is None:
        del os.environ["XDG_CACHE_HOME"]
    else:
        os.environ["XDG_CACHE_HOME"] = before
    table.add("the first time", {"attnlab": seconds[0]})
    table.add("found again", {"attnlab": seconds[1]})


def grid(
    rounds: int, device: str, names: Sequence[str], counts: Sequence[int], table: Table
) -> None:
    """Measure every layout at every point, and hold the rule against the best; nothing is taken to
    be compiled yet."""
    for name in names:
        for members in counts:
            each = population(name, members, device)
            effort = effort_of(each.models[0], each.loss, each.example())
            priced = {_named(way): way for way in ways(effort, members)}
            price = {name: way.seconds(effort, members, _STEPS, 1) for name, way in priced.items()}
            count = 20 if name in ("sorting", "d 8", "d 16") else 1
            calls, steps = {}, {}
            for way, make in layouts(each).items():
                if price[way] > _TOO_DEAR * min(price.values()) and way != "sequential eager":
                    continue
                try:
                    layout = make()
                except NotExpressible:
                    continue
                calls[way] = steps_of(layout, each.samplers, count)
                steps[way] = count * len(layout.state()["steps"])
            times = interleaved(calls, rounds=rounds, least_seconds=0.05)
            seconds = {way: per_step(times[way], steps[way]).processor for way in calls}
            chosen = min(seconds, key=lambda way: price[way])
            whole = {
                way: median(found) + priced[way].once / (_STEPS * members)
                for way, found in seconds.items()
            }
            over = whole[chosen] / min(whole.values())
            micro = {way: [1e6 * second for second in found] for way, found in seconds.items()}
            note = f"{chosen} is chosen, {over:.2f} of the best"
            table.add(f"{name}, {members:,}", micro, unit="µs", note=note)


def whole(rounds: int, members: int, steps: int, table: Table) -> None:
    """Train seeds of the sorter from beginning to end."""
    wall, solved = [], 0
    for _ in range(rounds):
        problem = sorter.problem([SortingConfig(steps=steps)] * members, range(members))
        began = time.perf_counter()
        found = train_together(problem.members, problem.loss, num_threads=1)
        wall.append(time.perf_counter() - began)
        solved = sum(
            each is not None and problem.is_solved(each.evaluation) for each in found.members
        )
    note = f"{solved} of {members} solve every input"
    table.add(f"{members} seeds x {steps:,} steps", {"attnlab": wall}, note=note)


def main() -> None:
    """Read the arguments, measure, write the results."""
    parser = argparse.ArgumentParser(description="Populations, in each layout.")
    parts = ["sorting", "grid", "whole"]
    parser.add_argument("--parts", nargs="+", choices=parts, default=parts)
    parser.add_argument("--rounds", type=int, default=11, help="rounds of every contest")
    parser.add_argument(
        "--device", default="cpu", help="where the members of grid lie, such as cuda"
    )
    options = parser.parse_args()
    rounds = options.rounds
    torch.set_num_threads(1)
    if "sorting" in options.parts:
        with measured(
            "populations",
            "sorting",
            "a training step of one sorter of many: times as fast as a notebook's loop",
            ours=["attnlab"],
            reference="notebook",
            better="higher",
            rounds=rounds,
        ) as table:
            sorting(rounds, options.device, table)
    if "grid" in options.parts:
        with measured(
            "populations",
            "layouts",
            "a training step of one model of many, in each layout, and what the rule chooses",
            ours=["simd compiled"],
            peers=["-"],
            rounds=rounds,
        ) as table:
            grid(rounds, options.device, list(SIZES), (1, 4, 16, 64), table)
    if "whole" in options.parts:
        with measured(
            "populations", "compiling", "compiling the sorter's step", ours=["attnlab"], rounds=3
        ) as table:
            compile_times(3, table)
        with measured(
            "populations", "whole", "a population from beginning to end", ours=["attnlab"], rounds=3
        ) as table:
            whole(3, 100, 15_000, table)


def _named(way: LayoutChoice) -> str:
    return f"{way.layout} {'compiled' if way.is_compiled else 'eager'}"


if __name__ == "__main__":
    main()
