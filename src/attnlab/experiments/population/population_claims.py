"""The claims about a population: its success rate, and that each member is as if alone."""

import math

import torch
from torch import Tensor

from attnlab.experiments.checks import nudged
from attnlab.experiments.claims import Claim
from attnlab.experiments.population.members import TrainedMembers
from attnlab.train.layouts.sequential import Sequential
from attnlab.train.loop import using_threads
from attnlab.train.schedule import Schedule

_STEPS_ALONE = 200
_TOLERANCE = 1e-5


def evaluate_claims(population: TrainedMembers) -> list[Claim]:
    """Evaluate the claims."""
    solved = sum(step is not None for step in population.solved_at)
    share, low, high = population.success
    checked = _checked(population)
    names = ", ".join(population.name(index) for index in checked)
    who = f"the members {names}" if len(checked) > 1 else f"the member {names}"
    have, they = ("have", "they") if len(checked) > 1 else ("has", "it")
    steps, apart = largest_difference_from_alone(population, checked)
    kept = largest_difference_of_kept(population, checked)
    return [
        Claim(
            "most_seeds_solve_it",
            "at least half of the members solve the problem "
            f"({population.problem_description.solved}); with the 95 % interval (Wilson)",
            f"{solved:,} of {len(population):,}, {share:.1%} ({low:.1%} to {high:.1%})",
            "at least 50 %",
            share >= 0.5,
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
            f"trained again alone for {steps:,} steps, {who} {have} the losses that {they} had in "
            f"the population (layout {population.layout}); largest relative difference, over at "
            f"most {_STEPS_ALONE} steps and until one rounding of the initial weights shows",
            f"{apart:.1e}",
            f"at most {_TOLERANCE:.0e}",
            apart <= _TOLERANCE,
        ),
        Claim(
            "kept_weights_are_the_best",
            f"evaluated once more, the saved weights of {who} give the figures of their best "
            "evaluation; largest relative difference",
            f"{kept:.1e}",
            f"at most {_TOLERANCE:.0e}",
            kept <= _TOLERANCE,
        ),
    ]


def largest_difference_from_alone(
    population: TrainedMembers, members: list[int]
) -> tuple[int, float]:
    """Train members again one by one for some hundred steps, and compare their losses.

    Rounding errors grow while a model learns, until two orders of summation give different weights.
    So a twin of each member is trained too, whose initial weights are one rounding away, and the
    comparison ends where member and twin differ.

    Returns:
        The number of steps, and the largest relative difference of a logged loss.
    """
    problem = population.learnable.problem(
        [population.config_of(index) for index in members],
        [population.member_ids[index].seed for index in members],
    )
    twice = [*problem.members, *problem.members]
    configs, history = [member.config for member in twice], population.history
    models = [member.model for member in problem.members]
    sequential = Sequential(
        [*models, *map(nudged, models)], configs, problem.loss, [member.noise for member in twice]
    )
    schedule, last, difference = Schedule(configs), 0, 0.0
    for first, end, noted in zip([0, *history.steps], history.steps, history.losses, strict=False):
        if end > _STEPS_ALONE and first:
            break
        batches = [member.draw(first, end - first) for member in problem.members] * 2
        with using_threads(1):  # several would wait for each other far longer than they compute
            found = sequential.advance(batches, schedule.rates(first, end), first, lambda: False)
        alone, twins = found.losses.double().mean(0).chunk(2)
        if first and _relative(alone, twins) > _TOLERANCE / 50:
            break
        goes_on = [at for at, index in enumerate(members) if (history.ends[index] or end) >= end]
        difference = max(difference, _relative(alone[goes_on], noted[members][goes_on]))
        last = end
    return last, difference


def largest_difference_of_kept(population: TrainedMembers, members: list[int]) -> float:
    """Evaluate the saved weights once more; return the largest relative difference of a figure."""
    difference = 0.0
    for index in members:
        trained = population.trained(index)
        if trained is None:
            continue
        problem = population.learnable.problem(
            [population.config_of(index)], [population.member_ids[index].seed]
        )
        with torch.no_grad():
            again = problem.members[0].judge(population.model_at(index))
        known = trained.evaluation.figures
        figures = torch.tensor([float(again.figures[name]) for name in known])
        difference = max(difference, _relative(figures, torch.tensor(list(known.values()))))
    return difference


def _relative(one: Tensor, other: Tensor) -> float:
    """Return the largest relative difference; infinity if a number is not finite."""
    one, other = one.double(), other.double()
    apart = (one - other).abs() / torch.maximum(one.abs(), other.abs()).clamp(min=1e-12)
    return float(apart.nan_to_num(nan=math.inf).max()) if len(apart) else 0.0


def _checked(population: TrainedMembers) -> list[int]:
    """Choose the first, middle and last of the members that did not diverge."""
    whole = [index for index, fault in enumerate(population.history.faults) if fault is None]
    return sorted({whole[0], whole[len(whole) // 2], whole[-1]}) if whole else []
