"""What may be claimed of a population: how many solve the task, and that each member begins as it would alone."""

import math

import torch
from torch import Tensor

from attnlab.experiments.checks import nudged
from attnlab.experiments.claims import Claim
from attnlab.experiments.population.population import Population
from attnlab.train.layouts.solo import Solo
from attnlab.train.loop import using_threads
from attnlab.train.schedule import Schedule

__all__ = ["judge_claims", "largest_difference_from_alone", "largest_difference_of_kept"]

_STEPS_ALONE = 200
_TOLERANCE = 1e-5


def judge_claims(population: Population) -> list[Claim]:
    """Say what holds, and by how much."""
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
            f"at least half of the members can do the task ({population.goal.solved}); beside the share its 95 % "
            "interval (Wilson)",
            f"{solved:,} of {len(population):,}, {share:.1%} ({low:.1%} to {high:.1%})",
            "at least 50 %",
            share >= 0.5,
        ),
        Claim(
            "none_broke",
            "no member's training met a loss or gradient that is not finite",
            f"{len(population.faults):,} of {len(population):,}",
            "0",
            not population.faults,
        ),
        Claim(
            "as_if_alone",
            f"trained again alone for {steps:,} steps, {who} {have} the losses that {they} had in the "
            f"population (layout {population.layout}); largest relative difference, over at most {_STEPS_ALONE} steps "
            "and as long as one rounding of the initial weights does not tell",
            f"{apart:.1e}",
            f"at most {_TOLERANCE:.0e}",
            apart <= _TOLERANCE,
        ),
        Claim(
            "kept_weights_are_the_best",
            f"judged once more, the weights kept of {who} come to the figures of their best judgement; "
            "largest relative difference",
            f"{kept:.1e}",
            f"at most {_TOLERANCE:.0e}",
            kept <= _TOLERANCE,
        ),
    ]


def largest_difference_from_alone(population: Population, members: list[int]) -> tuple[int, float]:
    """Train members again one by one for some hundred steps, and hold their losses against those they had together.

    Rounding grows while a model learns, until no two ways of adding up come to the same weights. So beside each member
    goes a twin whose initial weights are one rounding away, and the comparison ends where the twins part.

    Returns:
        The number of steps, and the largest relative difference of a written loss.
    """
    lesson = population.learnable.lesson(
        [population.config_of(index) for index in members], [population.places[index].seed for index in members]
    )
    twice = [*lesson.members, *lesson.members]
    configs, history = [member.config for member in twice], population.history
    models = [member.model for member in lesson.members]
    solo = Solo([*models, *map(nudged, models)], configs, lesson.loss, [member.noise for member in twice])
    schedule, last, difference = Schedule(configs), 0, 0.0
    for first, end, noted in zip([0, *history.steps], history.steps, history.losses, strict=False):
        if end > _STEPS_ALONE and first:
            break
        batches = [member.draw(first, end - first) for member in lesson.members] * 2
        with using_threads(1):  # several would wait for each other far longer than they compute
            losses = solo.advance(batches, schedule.rates(first, end), first, lambda: False).losses.double().mean(0)
        alone, twins = losses.chunk(2)
        if first and _relative(alone, twins) > _TOLERANCE / 50:
            break
        goes_on = [at for at, index in enumerate(members) if (history.ends[index] or end) >= end]
        difference = max(difference, _relative(alone[goes_on], noted[members][goes_on]))
        last = end
    return last, difference


def largest_difference_of_kept(population: Population, members: list[int]) -> float:
    """Judge the kept weights of members once more, and return the largest relative difference of a figure."""
    difference = 0.0
    for index in members:
        trained = population.trained(index)
        if trained is None:
            continue
        lesson = population.learnable.lesson([population.config_of(index)], [population.places[index].seed])
        with torch.no_grad():
            again = lesson.members[0].judge(population.model_at(index))
        figures = [float(again.figures[name]) for name in trained.judgement.figures]
        difference = max(
            difference, _relative(torch.tensor(figures), torch.tensor(list(trained.judgement.figures.values())))
        )
    return difference


def _relative(one: Tensor, other: Tensor) -> float:
    """Return the largest relative difference; a number that is not finite differs from all others."""
    one, other = one.double(), other.double()
    apart = (one - other).abs() / torch.maximum(one.abs(), other.abs()).clamp(min=1e-12)
    return float(apart.nan_to_num(nan=math.inf).max()) if len(apart) else 0.0


def _checked(population: Population) -> list[int]:
    """Choose three members that did not break, if there are so many: the first, the middle one, the last."""
    whole = [index for index, fault in enumerate(population.history.faults) if fault is None]
    return sorted({whole[0], whole[len(whole) // 2], whole[-1]}) if whole else []
