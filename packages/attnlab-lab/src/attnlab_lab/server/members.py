"""What the rooms Populations and Sweeps ask: members, with figures, groups and attention; cells.

Weights are NaN where a pair is masked; where they would be large, they are sent as codes.
"""

import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from attnlab.configs import Config
from attnlab.draw.wire import LEVELS, pack
from attnlab.errors import CouldNotRun, WrongUsage, typed
from attnlab.experiments.population.blocks import padded
from attnlab.experiments.population.heads_sections import (
    attention_name,
    axis_names,
    groups_note,
    unpadded,
)
from attnlab.experiments.population.population import Population
from attnlab.experiments.population.population_heads import (
    MOST_COMPARED,
    AttentionHeads,
    PopulationHeads,
    record_heads,
    trained_models,
)
from attnlab.experiments.population.storage import open_population
from attnlab.experiments.report import Report
from attnlab.experiments.sweeps import open_sweep
from attnlab.experiments.sweeps.axes import all_shown
from attnlab.experiments.sweeps.outcome import CellOutcome
from attnlab.look.heads import head_at
from attnlab.look.questions import recorded

_MOST_EXACT = 2**19  # weights that are sent as float32, which take 2 MB
_MOST_WEIGHTS = 2**24
_MOST_MODELS = 100_000  # of a sweep


class _Maps(NamedTuple):
    """Weights (member, head, query, key), NaN where masked; the names of the queries and keys."""

    weights: Tensor
    queries: Sequence[str]
    keys: Sequence[str]


def _members(folder: str, text: str) -> dict[str, object]:
    """Describe the members; the maps are of a text, or means over the same inputs without one."""
    population, heads = _opened(folder, os.stat(f"{folder}/claims.json").st_mtime_ns)
    figures = _figures(population, text.strip())
    if heads is None:
        return figures
    maps = list(_on_text(heads, text) if text.strip() else _means(heads))
    number = sum(head_maps.weights.numel() for head_maps in maps)
    if number > _MOST_WEIGHTS:
        raise CouldNotRun(
            f"the heads of this population have {number:,} weights, and {_MOST_WEIGHTS:,} are "
            f"shown here at most: look at its report with attnlab open {typed(folder)}"
        )
    levels = LEVELS if number > _MOST_EXACT else 0
    pairs = zip(heads.parts, maps, strict=True)
    return figures | {
        "looked": heads.members,
        "typical": population.name(heads.middle),
        "oddest": population.name(heads.ranking[-1]),
        "distances": heads.distances.tolist(),
        "percentiles": heads.percentiles.tolist(),
        "kinds": [heads.kind(row) for row in range(len(heads.members))],
        "attentions": [_described(part, maps, levels) for part, maps in pairs],
    }


def _figures(population: Population, text: str) -> dict[str, object]:
    """Describe all that is known of the first members but their attention."""
    number, steps, words = min(len(population), MOST_COMPARED), population.steps, str(population)
    if number < len(population):
        words += f"; the first {number:,} are shown here"

    def first_of(name: str) -> Any:
        return next(population.blocks.column(name))[:number]  # a block has no fewer members

    losses = padded(first_of("loss_by_step"), len(steps))
    last = [next(filter(math.isfinite, reversed(values)), None) for values in losses.tolist()]
    figures: dict[str, list[object]] = {}
    for name in population.figures:
        figures[name] = list(map(_known, first_of(name).tolist()))
    return {
        "experiment": population.experiment,
        "text": text,
        "settings": population.config.to_mapping(),
        "told": words,
        "problem": asdict(population.problem_description),
        "names": list(map(population.name, range(number))),
        "solvedAt": population.solved_at[:number],
        "faults": [text or None for text in first_of("diverged")],
        "loss": last,
        "figures": figures,
        "steps": steps,
        "losses": pack(losses),
        "looked": [],
        "attentions": [],
    }


def _member(folder: str, member: str) -> dict[str, object]:
    """Describe one member as a run is described: its config and the course of its training."""
    population = open_population(folder)
    index = population.index(member)
    member_config = {"seed": population.seeds[index], "settings": population.config.to_mapping()}
    block, row = divmod(index, population.blocks.size)
    metrics = population.blocks[block].history.lines(row)
    return {"config": {**population.description, **member_config}, "claims": [], "metrics": metrics}


def open_member(path: Path) -> tuple[Report, nn.Module, Config]:
    """Open the population of a member, and the member's model and config."""
    population = open_population(path.parent)
    index = population.index(path.name)
    return population.report, population.model_at(index), population.config


@lru_cache(maxsize=2)
def _opened(folder: str, written: int) -> tuple[Population, PopulationHeads | None]:
    """Open a population and compare its heads, which takes seconds."""
    population = open_population(folder)
    return population, record_heads(population)


def _described(part: AttentionHeads, maps: _Maps, levels: int) -> dict[str, object]:
    """Describe one attention: its maps, the groups of its heads, and the mean of each group."""
    weights, groups = maps.weights, part.groups
    flat = weights.flatten(0, 1)
    means = [flat[groups.of == group].mean(0) for group in range(len(groups.centers))]
    return {
        "name": attention_name(part.site),
        "headNames": [head_at(part.site, head) for head in range(weights.shape[1])],
        "heads": weights.shape[1],
        "queries": maps.queries,
        "keys": maps.keys,
        "maps": pack(weights, levels),
        "groups": groups.of.view(weights.shape[:2]).tolist(),
        "order": part.order.tolist(),
        "means": pack(torch.stack(means)),
        "note": groups_note(groups),
    }


def _means(heads: PopulationHeads) -> Iterator[_Maps]:
    """Yield the mean weights of each attention over the same inputs, without padding."""
    for part in heads.parts:
        cut = unpadded(heads.parts, part)
        means = part.means.masked_fill(part.blocked, math.nan)[..., *cut]
        yield _Maps(means, *axis_names(heads.population, part.site, *means.shape[2:]))


def _on_text(heads: PopulationHeads, text: str) -> Iterator[_Maps]:
    """Yield the weights of each attention while all members read a text and the answer that the
    most typical member gives."""
    population = heads.population
    reader = population.report.reader
    question: Any = reader.ask(population.model_at(heads.middle), text)
    inputs = question.pass_inputs()
    weights_by_site: dict[str, list[Tensor]] = {}
    for member in trained_models(population, heads.members):
        recording = recorded(replace(question, model=member), inputs=inputs)
        for site in recording:
            mask, weights = recording.blocked(site), recording[site][0]
            if mask is not None:
                weights = weights.masked_fill(mask, math.nan)
            weights_by_site.setdefault(site, []).append(weights)
        number = sum(tensors[0].numel() for tensors in weights_by_site.values())
        if len(heads.members) * number > _MOST_WEIGHTS:
            raise WrongUsage("this text is too long for so many seeds: type a shorter one.")
    for site, weights in weights_by_site.items():
        yield _Maps(torch.stack(weights), *recording.tokens(site))


def _known(value: float) -> float | None:
    """Return a number that JSON can say."""
    return value if math.isfinite(value) else None


def _sweep(folder: str) -> dict[str, object]:
    """Describe a sweep, finished or not: its axes, and every cell, the last axis moving fastest."""
    sweep = open_sweep(folder)
    outcome, config = sweep.outcome, sweep.report.config
    axes = []
    for axis in outcome.axes:
        axes.append({"name": axis.name, "comment": axis.comment, "labels": axis.labels()})
    if len(outcome.expected) > _MOST_MODELS:
        raise CouldNotRun(
            f"this sweep has {len(outcome.expected):,} models, and {_MOST_MODELS:,} are shown here "
            f"at most: look at its report with attnlab open {typed(folder)}"
        )
    return {
        "experiment": config["experiment"],
        "told": str(sweep.report.content.subtitle),
        "models": len(outcome.members),
        "expected": len(outcome.expected),
        "axes": axes,
        "seeds": list(outcome.seeds),
        "fixed": all_shown(config["settings"]),
        "figures": outcome.figures,
        "cells": list(map(_cell, outcome.cells)),
    }


def _cell(cell: CellOutcome) -> dict[str, object]:
    """Describe a cell; without `solved` if none of its models is trained."""
    values = all_shown(cell.fields)
    facts: dict[str, object] = {"name": cell.name, "values": values, "refusal": cell.refusal}
    if not cell.seeds:
        return facts
    facts |= {"solved": cell.solved, "share": list(cell.share), "solvedAt": cell.solved_at}
    members = [[member.seed, member.solved_at, member.fault] for member in cell.members]
    return facts | {"loss": cell.loss, "figures": cell.figures, "members": members}


WORK: dict[str, Callable[..., object]] = {"members": _members, "member": _member, "sweep": _sweep}
