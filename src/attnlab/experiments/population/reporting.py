"""A population's report."""

from typing import Any

import torch

from attnlab.experiments.population.document import make_document
from attnlab.experiments.population.heads import look_at_heads
from attnlab.experiments.population.judging import judge_claims
from attnlab.experiments.population.population import Population
from attnlab.experiments.population.storing import MEMBERS, csv_bytes, files_of
from attnlab.experiments.population.typical import judge_typicality, ranked_members
from attnlab.experiments.report import Report
from attnlab.train.history import summary

__all__ = ["make_report"]


def make_report(population: Population) -> Report:
    """Judge a population and lay out what it shows; its model is that of the first variant's most typical member."""
    heads = look_at_heads(population)
    typicality = judge_typicality(population, heads) if heads is not None else None
    claims = judge_claims(population)
    document = make_document(population, heads, typicality)
    ranking = [] if typicality is None else typicality.ranking
    model = population.model_at(next((index for index in ranking if population.places[index].variant == 0), 0))
    files = files_of(population)
    if typicality is not None:
        files[MEMBERS] = csv_bytes(*ranked_members(population, typicality))
    return Report(
        population.experiment,
        population.description,
        tuple(claims),
        _metrics(population),
        document,
        None,
        model,
        {},
        files,
    )


def _metrics(population: Population) -> list[dict[str, Any]]:
    """Sum the course up, as an ordinary run's `metrics.jsonl` has it: quartiles of the loss, means of the figures."""
    history = population.history
    noted = zip(history.steps, history.losses, strict=True)
    lines: dict[int, dict[str, Any]] = {step: {"step": step, **summary(losses.tolist())} for step, losses in noted}
    for figure in history.figures():
        for step, values in zip(history.judged_steps, history.table(figure), strict=True):
            known = values[torch.isfinite(values)]
            if len(known):
                lines[step][figure] = float(known.mean())
    for step in history.judged_steps:
        lines[step]["solved"] = sum(at is not None and at <= step for at in population.solved_at) / len(population)
    return list(lines.values())
