"""Does what a population shows depend on the engine that trained it? The same seeds, trained in
every layout.

    python benchmarks/engines.py [--seeds 64] [--steps 15000] [--contestants simd vmap nudged]
    [--json FILE]

The layouts do the same arithmetic in another order, so they differ by rounding, and a training
makes differences grow. How far rounding alone goes is told by a twin, `nudged`: the first layout
once more, its initial weights one rounding away. For each contestant, beside the first: how far
weights and losses part; who solves the task; and whether the figures of the report (share solved,
curves, head statistics) differ by more than seeds do. Prints Markdown.
"""

import argparse
import copy
import json
import math
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from attnlab.core.stats import mean_interval
from attnlab.experiments.experiment import Problem
from attnlab.experiments.population.population import Population
from attnlab.experiments.population.population_heads import record_heads
from attnlab.experiments.population.report import make_report
from attnlab.experiments.registry import config, learnable
from attnlab.train.history import Evaluation
from attnlab.train.loop import train_together

SHOWN = (500, 1_000, 2_000, 5_000, 15_000)


class Found(NamedTuple):
    """What one contestant came to; weights: of each member, one vector for each evaluated step,
    (step, number)."""

    population: Population
    weights: list[Tensor]


def train(name: str, num_seeds: int, steps: int) -> Found:
    """Train all seeds in one layout, keeping each member's weights whenever it is evaluated."""
    settings = config("sorting", steps=steps)
    experiment, seeds = learnable("sorting"), range(num_seeds)
    problem: Problem = experiment.problem([settings] * num_seeds, list(seeds))
    kept: list[list[Tensor]] = [[] for _ in seeds]
    members = []
    for member, own in zip(problem.members, kept, strict=True):
        evaluate = member.evaluate

        def watched(
            model: nn.Module, own: list[Tensor] = own, evaluate: Any = evaluate
        ) -> Evaluation:
            own.append(nn.utils.parameters_to_vector(model.parameters()).detach().clone())
            evaluation: Evaluation = evaluate(model)
            return evaluation

        model = nudged(member.model) if name == "nudged" else member.model
        members.append(replace(member, model=model, evaluate=watched))
    layout: Any = "simd" if name == "nudged" else name
    found = train_together(members, problem.loss, layout=layout, num_threads=1)
    assert found.layout == layout, f"{layout} was asked for, {found.layout} came"
    own_states = [member.model.state_dict() for member in members]
    weights = {key: torch.stack([each[key] for each in own_states]) for key in own_states[0]}
    own = (found.history, weights, found.layout)
    population = Population("sorting", {}, settings, ({},), tuple(seeds), *own, make_report)
    return Found(population, [torch.stack(each) for each in kept])


def nudged(model: nn.Module) -> nn.Module:
    """Return a copy whose weights are the next numbers above."""
    twin = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.copy_(torch.nextafter(parameter, torch.full_like(parameter, math.inf)))
    return twin


def partings(first: Found, other: Found) -> list[tuple[int, float, float, float]]:
    """Say at some steps how far weights part: (step, median over members of the largest, largest,
    of the loss)."""
    steps = first.population.evaluated_steps
    apart = torch.stack(
        [(one - two).abs().amax(1) for one, two in zip(first.weights, other.weights, strict=True)]
    )  # (member, step)
    losses = [each.population.table("domain_loss") for each in (first, other)]
    loss_apart = (losses[0] - losses[1]).abs()
    return [
        (
            step,
            float(apart[:, at].median()),
            float(apart[:, at].max()),
            float(loss_apart[:, at].max()),
        )
        for at, step in enumerate(steps)
        if step in SHOWN or step == steps[-1]
    ]


def heads_of(population: Population) -> dict[str, float]:
    """Return the numbers that the report gives of the heads."""
    heads = record_heads(population)
    assert heads is not None
    [part] = heads.parts
    return {"kinds of heads": float(len(part.groups.centers)), **part.spread}


def figures(population: Population) -> dict[str, float]:
    """Return what a report says of a population, as numbers."""
    solved_at = [step for step in population.solved_at if step is not None]
    last = {name: population.table(name)[:, -1] for name in population.history.figures()}
    found = {
        "solved": float(len(solved_at)),
        "solved at step, median": float(statistics.median(solved_at or [math.nan])),
    }
    for name, values in last.items():
        for words, share in (("median", 0.5), ("5 %", 0.05), ("95 %", 0.95)):
            found[f"{name} at the end, {words}"] = float(values.quantile(share))
    return found | heads_of(population)


def paired(first: Population, other: Population) -> dict[str, Any]:
    """Compare seed by seed: who solves it, and the mean difference of each figure, with its 95 %
    interval (Student)."""
    solves = [[step is not None for step in each.solved_at] for each in (first, other)]
    found: dict[str, Any] = {
        "solved by the first alone": sum(a and not b for a, b in zip(*solves, strict=True)),
        "solved by the other alone": sum(b and not a for a, b in zip(*solves, strict=True)),
    }
    for name in first.history.figures():
        both = [each.table(name) for each in (first, other)]
        outside = 0
        for at in range(both[0].shape[1]):
            interval = mean_interval((both[1][:, at] - both[0][:, at]).tolist())
            outside += not interval.low <= 0.0 <= interval.high
        found[name] = {
            "at the end": mean_interval((both[1][:, -1] - both[0][:, -1]).tolist()),
            "among seeds (deviation)": float(both[0][:, -1].std()),
            "evaluated steps where 0 lies outside the interval": f"{outside} of {both[0].shape[1]}",
            "largest difference of the mean curves": float(
                (both[1].mean(0) - both[0].mean(0)).abs().max()
            ),
        }
    return found


def main() -> None:
    """Read the arguments, train, print."""
    parser = argparse.ArgumentParser(
        description="Does what a population shows depend on the engine?"
    )
    parser.add_argument("--seeds", type=int, default=64)
    parser.add_argument("--steps", type=int, default=15_000)
    parser.add_argument("--contestants", nargs="+", default=["simd", "vmap", "nudged"])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found = {name: train(name, options.seeds, options.steps) for name in options.contestants}
    first, *others = found
    kept: dict[str, Any] = {
        "figures": {name: figures(each.population) for name, each in found.items()}
    }
    print("| figure | " + " | ".join(found) + " |\n| --- |" + " --- |" * len(found))
    for figure in kept["figures"][first]:
        print(
            f"| {figure} | "
            + " | ".join(f"{kept['figures'][name][figure]:.4g}" for name in found)
            + " |"
        )
    print(
        f"\n| beside {first} | step | weights, median member | weights, most | loss, most |\n|"
        + " --- |" * 5
    )
    for name in others:
        kept[name] = {"partings": partings(found[first], found[name])}
        for step, *numbers in kept[name]["partings"]:
            print(f"| {name} | {step:,} | " + " | ".join(f"{each:.2g}" for each in numbers) + " |")
    for name in others:
        kept[name]["paired"] = paired(found[first].population, found[name].population)
        print(f"\n{name} beside {first}, seed by seed:")
        for figure, value in kept[name]["paired"].items():
            print(f"  {figure}: {value}")
    if options.json:
        options.json.write_text(json.dumps(kept, indent=2) + "\n")


if __name__ == "__main__":
    main()
