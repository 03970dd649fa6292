"""The claims about a population: its success rate, and that each member is as if alone."""

import copy
import math

import torch
from torch import Tensor, nn

from attnlab.display import plural
from attnlab.experiments.claims import Claim
from attnlab.experiments.experiment import Problem
from attnlab.experiments.population.population import Population
from attnlab.train.layouts.sequential import Sequential
from attnlab.train.loop import using_threads
from attnlab.train.schedule import Schedule

_STEPS_ALONE = 200
_TOLERANCE = 1e-5


def evaluate_claims(population: Population) -> list[Claim]:
    """Evaluate the claims; of the members that did not diverge, the first, middle and last are
    trained again."""
    whole = population.whole
    checked = sorted({whole[0], whole[len(whole) // 2], whole[-1]})
    names = ", ".join(map(population.name, checked))
    solved = population.problem_description.solved
    steps, difference = largest_difference_from_alone(population, checked)
    have, they = ("have", "they") if len(checked) > 1 else ("has", "it")
    return [
        Claim(
            "most_seeds_solve_it",
            f"at least half of the members solve the problem ({solved}); with the 95 % interval "
            "(Wilson)",
            population.solved_words.replace(" solved", ""),
            "at least 50 %",
            population.success.value >= 0.5,
        ),
        Claim(
            "none_broke",
            "no member's loss or gradient stopped being finite",
            f"{len(population.faults):,} of {len(population):,}",
            "0",
            not population.faults,
        ),
        Claim(
            "as_if_alone",
            f"trained again alone for {steps:,} steps, the {plural(len(checked), 'member')} "
            f"{names} {have} the losses that {they} had in the population (layout "
            f"{population.layout}); largest relative difference, over at most {_STEPS_ALONE} "
            "steps and until one rounding of the initial weights shows",
            f"{difference:.1e}",
            f"at most {_TOLERANCE:g}",
            difference <= _TOLERANCE,
            is_self_check=True,
        ),
    ]


def largest_difference_from_alone(population: Population, members: list[int]) -> tuple[int, float]:
    """Train members again one by one for some hundred steps, and compare their losses.

    Rounding errors grow while a model learns, until two orders of summation give different weights.
    So a twin of each member is trained too, whose initial weights are one rounding away, and the
    comparison ends where member and twin differ.

    Returns:
        The number of steps, and the largest relative difference of a logged loss.
    """
    problem = population.problem_of(members)
    history, last, difference = population.history, 0, 0.0
    schedule = Schedule([member.config for member in problem.members] * 2)
    sequential = _with_twins(problem)
    for first, end, noted in zip([0, *history.steps], history.steps, history.losses, strict=False):
        if end > _STEPS_ALONE and first:
            break
        batches = [member.draw(first, end - first) for member in problem.members] * 2
        with using_threads(1):  # several would wait for each other far longer than they compute
            advanced = sequential.advance(batches, schedule.rates(first, end), first, lambda: False)
        alone, twins = advanced.losses.double().mean(0).chunk(2)
        if first and _relative(alone, twins) > _TOLERANCE / 50:
            break
        goes_on = [(history.ends[index] or end) >= end for index in members]
        difference = max(difference, _relative(alone[goes_on], noted[members][goes_on]))
        last = end
    return last, difference


def _with_twins(problem: Problem) -> Sequential:
    """Train the members of a problem and, behind them, a twin of each."""
    models = [member.model for member in problem.members]
    configs = [member.config for member in problem.members]
    noises = [member.noise for member in problem.members]
    return Sequential([*models, *map(_nudged, models)], configs * 2, problem.loss, noises * 2)


def _nudged(model: nn.Module) -> nn.Module:
    """Return a copy whose every weight is the next float above."""
    twin = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.copy_(torch.nextafter(parameter, torch.full_like(parameter, math.inf)))
    return twin


def _relative(one: Tensor, other: Tensor) -> float:
    """Return the largest relative difference; infinity if a number is not finite."""
    one, other = one.double(), other.double()
    apart = (one - other).abs() / torch.maximum(one.abs(), other.abs()).clamp(min=1e-12)
    return float(apart.nan_to_num(nan=math.inf).max()) if len(apart) else 0.0
