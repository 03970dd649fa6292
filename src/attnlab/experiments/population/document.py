"""What a population shows: its course, its heads, and who is typical."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from attnlab.experiments.intervals import share_interval
from attnlab.experiments.population.heads import Heads
from attnlab.experiments.population.heads_sections import heads_sections
from attnlab.experiments.population.population import Population
from attnlab.experiments.population.typical import Typicality, typical_section
from attnlab.experiments.sections import goal_section, parameters_section, settings_section

__all__ = ["make_document"]

_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
_BANDS = {"nine in ten members": (0, 4), "the middle half": (1, 3)}  # ends, by their place among the quantiles
_FAN = "The median of the members; one band holds nine in ten of them, the darker one the middle half."
_LAYOUTS = {
    "lanes": "lanes (each member an element of the processor's vectors)",
    "batched": "batched (members are a batch of matrices)",
    "vmap": "vmap (torch.func maps one member's step over all)",
    "solo": "solo (one member after the other)",
}


def make_document(population: Population, heads: Heads | None, typicality: Typicality | None) -> dict[str, Any]:
    """Lay out the report."""
    sections = [goal_section([population.goal]), _success_section(population)]
    if len(population.variants) > 1:
        sections.append(_variants_section(population))
    sections.append(_loss_section(population))
    sections += [_figure_section(population, figure) for figure in population.history.figures()]
    if heads is not None:
        sections += heads_sections(population, heads)
    if typicality is not None:
        sections.append(typical_section(population, typicality))
    if population.faults:
        sections.append(_faults_section(population))
    sections += [parameters_section(population.model_at(0)), settings_section(population.config)]
    return {
        "title": f"{population.experiment}, {len(population):,} members",
        "subtitle": _subtitle(population),
        "facts": _facts(population, typicality),
        "sections": sections,
    }


def _subtitle(population: Population) -> str:
    solved = sum(step is not None for step in population.solved_at)
    share, low, high = population.success
    what = f"{len(population.seeds):,} seeds"
    if len(population.variants) > 1:
        what = f"{len(population.variants):,} variants of {what} each"
    return (
        f"{what[0].upper()}{what[1:]} of one small model, trained side by side, each as if it were alone but for "
        f"rounding: {solved:,} of {len(population):,} can do the task, {share:.1%} ({low:.1%} to {high:.1%})."
    )


def _facts(population: Population, typicality: Typicality | None) -> list[list[str]]:
    steps = [step for step in population.solved_at if step is not None]
    facts = [
        ["members", f"{len(population):,}"],
        ["solved", f"{len(steps):,}"],
        ["solved at step", _range_words(steps)],
        ["steps", f"{population.history.steps[-1]:,}"],
        ["layout", _LAYOUTS.get(population.layout, population.layout)],
    ]
    if typicality is not None:
        facts += [
            ["most typical", _called(population, typicality.middle)],
            ["oddest", _called(population, typicality.ranking[-1])],
        ]
    return facts


def _range_words(steps: Sequence[int]) -> str:
    if not steps:
        return "never"
    middle = int(torch.tensor(steps).median())
    return f"{min(steps):,} to {max(steps):,}, median {middle:,}"


def _success_section(population: Population) -> dict[str, Any]:
    steps, num_members = population.judged_steps, len(population)
    is_solved = population.lesson.is_solved
    now = [0] * len(steps)
    for fault, judgements in zip(population.history.faults, population.history.judgements, strict=True):
        verdicts = [is_solved(judgement) for judgement in judgements] if fault is None else []
        verdicts += verdicts[-1:] * (len(steps) - len(verdicts))  # who had enough stays as it was
        now = [count + verdict for count, verdict in zip(now, verdicts or [False] * len(steps), strict=True)]
    by_then = [sum(at is not None and at <= step for at in population.solved_at) for step in steps]
    series = []
    for name, counts in (("solved by then", by_then), ("solved at that step", now)):
        shares = [share_interval(count, num_members) for count in counts]
        series.append(
            {
                "name": name,
                "x": steps,
                "y": [100 * each.value for each in shares],
                "low": [100 * each.low for each in shares],
                "high": [100 * each.high for each in shares],
            }
        )
    return {
        "kind": "lines",
        "figure": "success",
        "title": "Success rate",
        "caption": (
            f"The share of members that can do the task ({population.goal.solved}), with 95 % intervals (Wilson). The "
            "best weights are kept, so who can do it once stays in the first line; the second says who can at that "
            "very step."
        ),
        "x_label": "step",
        "y_label": "members that can do the task (%)",
        "from_zero": True,
        "series": series,
    }


def _variants_section(population: Population) -> dict[str, Any]:
    rows = []
    for number, fields in enumerate(population.variants):
        part = population.variant(number)
        steps = [step for step in part.solved_at if step is not None]
        share, low, high = part.success
        rows.append(
            [
                number,
                ", ".join(
                    f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}"
                    for name, value in fields.items()
                )
                or "as set",
                f"{len(steps):,} of {len(part):,}",
                f"{share:.1%} ({low:.1%} to {high:.1%})",
                _range_words(steps),
            ]
        )
    return {
        "kind": "table",
        "title": "Variants",
        "caption": "Members that differ in their settings; all variants have the same seeds. 95 % intervals (Wilson).",
        "columns": ["variant", "settings", "solved", "share", "solved at step"],
        "rows": rows,
    }


def _loss_section(population: Population) -> dict[str, Any]:
    history = population.history
    losses = torch.stack(history.losses).clone()
    for member, end in enumerate(history.ends):
        if end is not None:  # what is written after a member's end is no training of it
            losses[torch.tensor(history.steps) > end, member] = math.nan
    return {
        "kind": "lines",
        "figure": "loss-fan",
        "title": "Loss",
        "caption": f"Training loss since the mark before, over all members that are still trained. {_FAN}",
        "x_label": "step",
        "y_label": population.goal.loss,
        "series": _fan(history.steps, losses),
    }


def _figure_section(population: Population, figure: str) -> dict[str, Any]:
    words, meaning = figure.replace("_", " "), dict(population.goal.meanings).get(figure, "")
    return {
        "kind": "lines",
        "figure": f"fan-{figure.lower().replace('_', '-')}"[:60],
        "title": f"{words[0].upper()}{words[1:]} over the training",
        "caption": f"{meaning} {_FAN}".strip(),
        "x_label": "step",
        "y_label": words,
        "series": _fan(population.judged_steps, population.table(figure).T),
    }


def _fan(steps: Sequence[int], values: Tensor) -> list[dict[str, Any]]:
    """Turn (times, member) into the median with two bands: nine in ten members, and the middle half.

    At a time at which nobody has a number (all had enough, but for one that broke) there is a gap.
    """
    finite = values.masked_fill(~torch.isfinite(values), math.nan)
    quantiles = finite.nanquantile(torch.tensor(_QUANTILES, dtype=values.dtype), dim=1).tolist()
    ends = [[None if math.isnan(each) else each for each in quantile] for quantile in quantiles]
    bands = [{"name": name, "low": ends[low], "high": ends[high]} for name, (low, high) in _BANDS.items()]
    return [{"name": "median", "x": list(steps), "y": ends[2], "bands": bands}]


def _faults_section(population: Population) -> dict[str, Any]:
    return {
        "kind": "table",
        "title": "Broken members",
        "caption": "Their loss or gradient was no longer finite; they were stopped there, and disturbed nobody.",
        "columns": ["seed", "broke"],
        "rows": [[name, fault] for name, fault in population.faults.items()],
    }


def _called(population: Population, index: int) -> str:
    return f"seed {population.name(index)}"
