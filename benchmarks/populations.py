"""Populations: what a step of a model costs, alone and among many, in each layout; and whether the
rule chooses right.

    python benchmarks/populations.py [--quick] [--parts sorting,middle,grid,whole] [--device cpu]
    [--json FILE]

`sorting`: against the plain loop of `notebook.py`, drawing included. `middle`: a decoder of 106,240
parameters, against members trained one after the other. `grid`: every layout for several sizes and
populations, and what `choose.py` takes. `whole`: 100 seeds of 15,000 steps from beginning to end.
One thread unless it says otherwise; how times are taken and compared: `timing.py`. Ratios are of
processor time, which with one thread is not disturbed by other programs; wall time stands beside
it.
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnlab import seeds
from attnlab.experiments.sorting import sorter
from attnlab.experiments.sorting.config import SortingConfig
from attnlab.models.decoder import Decoder, DecoderConfig
from attnlab.train import TrainConfig, train_together
from attnlab.train.layouts.choose import Way, ways
from attnlab.train.layouts.effort import effort_of
from attnlab.train.layouts.layout import Layout, Loss, NotExpressible
from attnlab.train.layouts.sequential import Sequential
from attnlab.train.layouts.simd import Simd, interpreted
from attnlab.train.layouts.vmap import vmapped
from attnlab.train.loop import Draw
from notebook import notebook_steps
from timing import Times, interleaved, ratio

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
    draws: list[Draw]
    loss: Loss

    def example(self) -> tuple[Tensor, ...]:
        """Return the batch of a step of the first."""
        return tuple(part[0] for part in self.draws[0](0, 1))


def population(name: str, members: int, device: str) -> Population:
    """Make members of a size."""
    size = SIZES[name]
    if size.decoder is None:
        problem = sorter.problem([SortingConfig()] * members, range(members))
        return Population(
            [m.model for m in problem.members],
            [m.config for m in problem.members],
            [m.draw for m in problem.members],
            problem.loss,
        )
    models: list[nn.Module] = []
    for seed in range(members):
        with seeds.isolated(seed, "model"):
            models.append(Decoder(size.decoder).to(device))
    draws = [_token_draw(seed, size, device) for seed in range(members)]
    return Population(models, [TrainConfig(steps=_STEPS)] * members, draws, _next_token)


def _token_draw(seed: int, size: Size, device: str) -> Draw:
    vocab = size.decoder.vocab_size if size.decoder else 0

    def draw(first: int, count: int) -> tuple[Tensor, ...]:
        source = seeds.generator(seed, "data", first)
        return (
            torch.randint(vocab, (count, size.batch, size.length + 1), generator=source).to(device),
        )

    return draw


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


def steps_of(layout: Layout, draws: Sequence[Draw], count: int) -> Callable[[], object]:
    """Prepare some steps of all members, drawing included."""
    members = len(layout.state()["steps"])
    first = 0

    def call() -> object:
        nonlocal first
        batches = [draw(first, count) for draw in draws[:members]]
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


def sorting(rounds: int, device: str) -> list[dict[str, Any]]:
    """Compare with the notebook's loop."""
    notebook = notebook_steps()
    calls: dict[str, Callable[[], object]] = {"notebook": lambda: notebook(20)}
    steps = {"notebook": 20}
    for name, members, is_compiled in (
        ("1 model", 1, True), ("64 models", 64, True), ("1,024 models", 1_024, True),
        ("1 model, no compiler", 1, False), ("64 models, no compiler", 64, False),
        ("1,024 models, no compiler", 1_024, False),
    ):  # fmt: skip
        each = population("sorting", members, device)
        arguments = (each.models, each.configs, each.loss, each.example())
        layout: Layout = Simd(*arguments) if is_compiled else interpreted(*arguments)
        calls[name], steps[name] = steps_of(layout, each.draws, 50), 50 * members
    found = {
        name: per_step(each, steps[name])
        for name, each in interleaved(calls, rounds=rounds).items()
    }
    rows = []
    for name, times in found.items():
        by_processor = ratio(found["notebook"].processor, times.processor)
        by_wall = ratio(found["notebook"].wall, times.wall)
        rows.append(
            {
                "what": name,
                "microseconds": 1e6 * median(times.processor),
                "times_faster": by_processor,
            }
        )
        print(
            f"  {name:26} {rows[-1]['microseconds']:9.1f} us  {by_processor}  (wall {by_wall})",
            flush=True,
        )
    return rows


def cold_compile() -> dict[str, Any]:
    """Time how long the sorter's step takes to compile, and to be found again."""
    before, seconds = os.environ.get("XDG_CACHE_HOME"), []
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder
        for _ in range(2):
            each = population("sorting", 1, "cpu")
            began = time.perf_counter()
            Simd(each.models, each.configs, each.loss, each.example())
            seconds.append(time.perf_counter() - began)
    if before is None:
        del os.environ["XDG_CACHE_HOME"]
    else:
        os.environ["XDG_CACHE_HOME"] = before
    print(
        f"  compiling the sorter's step: {seconds[0]:.1f} s, found again {seconds[1]:.2f} s",
        flush=True,
    )
    return {"cold_seconds": seconds[0], "warm_seconds": seconds[1]}


def middle(rounds: int, device: str) -> list[dict[str, Any]]:
    """Compare 32 members of the middle size with members one after the other."""
    rows = []
    each = population("d 64", 32, device)
    for threads in (1, 2):
        torch.set_num_threads(threads)
        calls: dict[str, Callable[[], object]] = {}
        steps = {}
        made = layouts(each)
        for name in ("sequential eager", "vmap eager"):
            layout = made[name]()
            calls[name], steps[name] = (
                steps_of(layout, each.draws, 2),
                2 * len(layout.state()["steps"]),
            )
        found = {
            name: per_step(t, steps[name]) for name, t in interleaved(calls, rounds=rounds).items()
        }
        for name, times in found.items():
            by = (
                ratio(found["sequential eager"].processor, times.processor)
                if threads == 1
                else None
            )
            by_wall = ratio(found["sequential eager"].wall, times.wall)
            rows.append(
                {
                    "what": name,
                    "threads": threads,
                    "milliseconds": 1e3 * median(times.wall),
                    "wall": by_wall,
                    "processor": by,
                }
            )
            print(
                f"  {threads} threads  {name:18} {rows[-1]['milliseconds']:7.2f} ms wall  "
                f"{by_wall}  {by}",
                flush=True,
            )
    torch.set_num_threads(1)
    return rows


def grid(
    rounds: int, device: str, names: Sequence[str], counts: Sequence[int]
) -> list[dict[str, Any]]:
    """Measure every layout at every point, and hold the rule against the best; nothing is taken to
    be compiled yet."""
    rows = []
    for name in names:
        for members in counts:
            each = population(name, members, device)
            calls = {}
            effort = effort_of(each.models[0], each.loss, each.example())
            priced = {_named(way): way for way in ways(effort, members)}
            price = {name: way.seconds(effort, members, _STEPS, 1) for name, way in priced.items()}
            count = 20 if name in ("sorting", "d 8", "d 16") else 1
            for way, make in layouts(each).items():
                if price[way] > _TOO_DEAR * min(price.values()) and way != "sequential eager":
                    continue
                try:
                    layout = make()
                except NotExpressible:
                    continue
                calls[way] = (
                    steps_of(layout, each.draws, count),
                    count * len(layout.state()["steps"]),
                )
            times = interleaved(
                {way: call for way, (call, _) in calls.items()}, rounds=rounds, least_seconds=0.05
            )
            seconds = {
                way: median(per_step(times[way], steps).processor)
                for way, (_, steps) in calls.items()
            }
            chosen = min(seconds, key=lambda way: price[way])
            whole = {way: s + priced[way].once / (_STEPS * members) for way, s in seconds.items()}
            best = min(whole, key=lambda way: whole[way])
            micro = {way: round(1e6 * each, 1) for way, each in seconds.items()}
            over = {
                "over_best": whole[chosen] / whole[best],
                "over_sequential": whole[chosen] / whole["sequential eager"],
            }
            row = {
                "size": name,
                "members": members,
                "microseconds": micro,
                "chosen": chosen,
                "best": best,
                **over,
            }
            rows.append(row)
            listed = "  ".join(f"{way} {each:,.0f}" for way, each in micro.items())
            print(
                f"  {name:8} N {members:3}  {chosen:17} {row['over_best']:.2f} of the best "
                f"({best}), {row['over_sequential']:.2f} of sequential | {listed}",
                flush=True,
            )
    return rows


def _named(way: Way) -> str:
    return f"{way.layout} {'compiled' if way.is_compiled else 'eager'}"


def whole(members: int, steps: int, threads: int) -> dict[str, Any]:
    """Train seeds of the sorter from beginning to end."""
    config = SortingConfig(steps=steps)
    problem = sorter.problem([config] * members, range(members))
    torch.set_num_threads(
        threads
    )  # for the blocks; with num_threads=1 torch's own operations take no more than one
    began, busy = time.perf_counter(), time.process_time()
    found = train_together(problem.members, problem.loss, num_threads=1)
    wall, processor = time.perf_counter() - began, time.process_time() - busy
    torch.set_num_threads(1)
    solved = sum(each is not None and problem.is_solved(each.evaluation) for each in found.members)
    print(
        f"  {members} seeds x {steps:,} steps, {threads} thread(s), {found.layout}: {wall:.1f} s "
        f"wall, {processor:.1f} s of processor; {solved} of {members} solve every input",
        flush=True,
    )
    return {
        "members": members,
        "steps": steps,
        "wall": wall,
        "processor": processor,
        "solved": solved,
    }


def main() -> None:
    """Read the arguments, measure, print."""
    parser = argparse.ArgumentParser(description="Populations, in each layout.")
    parser.add_argument(
        "--parts", default="sorting,middle,grid,whole", help="some of sorting,middle,grid,whole"
    )
    parser.add_argument("--rounds", type=int, help="rounds of every contest (default: 11)")
    parser.add_argument(
        "--device", default="cpu", help="where the members of middle and grid lie, such as cuda"
    )
    parser.add_argument("--quick", action="store_true", help="few rounds, small populations")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    parts = options.parts.split(",")
    if unknown := set(parts) - {"sorting", "middle", "grid", "whole"}:
        parser.error(
            f"unknown parts: {', '.join(sorted(unknown))}; known are sorting, middle, grid, whole."
        )
    rounds = options.rounds or (3 if options.quick else 11)
    torch.set_num_threads(1)
    figures: dict[str, Any] = {}
    if "sorting" in parts:
        print(
            "sorting, per step of a model: processor time, and how many times faster than "
            "the notebook's loop"
        )
        figures["compile"] = cold_compile()
        figures["sorting"] = sorting(rounds, options.device)
    if "middle" in parts:
        print(
            "middle (d 64), 32 members, per step of a model: how many times faster than one "
            "after the other"
        )
        figures["middle"] = middle(rounds, options.device)
    if "grid" in parts:
        print(f"grid: the rule's choice for {_STEPS:,} steps, compiling included")
        names = ["sorting", "d 16"] if options.quick else list(SIZES)
        figures["grid"] = grid(
            min(rounds, 5), options.device, names, (1, 16) if options.quick else (1, 4, 16, 64)
        )
    if "whole" in parts:
        print("from beginning to end")
        members, steps = (16, 1_000) if options.quick else (100, 15_000)
        figures["whole"] = [whole(members, steps, threads) for threads in (1, 2)]
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
