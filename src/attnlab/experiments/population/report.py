"""A population's report: its claims, files and sections, and its model, the most typical one."""

import json
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from attnlab.core.stats import Interval, share_interval
from attnlab.core.store import pack
from attnlab.draw.sections import Band, Lines, ReportContent, Scalar, Section, Series, Table
from attnlab.experiments.experiment import Findings, MetricLine
from attnlab.experiments.population.heads_sections import heads_sections, ranked_members
from attnlab.experiments.population.population import WORDS, Population
from attnlab.experiments.population.population_claims import evaluate_claims
from attnlab.experiments.population.population_heads import PopulationHeads, record_heads
from attnlab.experiments.report import Report
from attnlab.experiments.sections import (
    csv_text,
    filled,
    parameters_section,
    problem_section,
    settings_section,
)
from attnlab.train.history import summary

WEIGHTS, HISTORY, TABLE = "population.safetensors", "history.safetensors", "table.csv"
MEMBERS = "members.csv"
"""The files that a population has beside those of every run: the best weights of all members,
stacked, (member, …); the course of the training, exactly, and as a table for people, a line for
each seed and step; and the members by how typical they are."""

_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
_BANDS = {"nine in ten members": (0, 4), "the middle half": (1, 3)}  # indices of quantiles


def make_report(population: Population) -> Report:
    """Make the report; its model is that of the first variant's most typical member."""
    heads, claims, model_of = record_heads(population), evaluate_claims(population), 0
    files = _files(population)
    if heads is not None:
        files[MEMBERS] = csv_text(*ranked_members(heads)).encode()
        of_first = (index for index in heads.ranking if population.member_ids[index][1] == 0)
        model_of = next(of_first, 0)
    content = _lay_out(population, heads)
    findings = Findings(population.model_at(model_of), claims, content, files=files)
    metrics = _metrics(population)
    return Report.of(population.experiment, population.description, findings, claims, metrics)


def _files(population: Population) -> dict[str, bytes]:
    history, names = population.history, ["loss", "learning_rate", "gradient_norm"]
    names += history.figures()
    rows: list[list[Any]] = []
    for index, member in enumerate(population.member_ids):
        merged: dict[int, MetricLine] = {}
        for line in history.lines(index):
            merged.setdefault(line["step"], {}).update(line)
        rows += [[*member, step, *map(line.get, names)] for step, line in merged.items()]
    tensors, facts = history.to_state()
    return {
        WEIGHTS: pack(population.weights),
        HISTORY: pack(tensors, {"facts": json.dumps({**facts, "layout": population.layout})}),
        TABLE: csv_text(["seed", "variant", "step", *names], rows).encode(),
    }


def _solved_so_far(population: Population) -> list[int]:
    """Count the members that solved the problem up to each evaluated step."""
    return [sum(at <= step for at in population.solved_steps) for step in population.judged_steps]


def _metrics(population: Population) -> list[MetricLine]:
    """Summarize the history by step: quartiles of the loss, means of the figures."""
    history = population.history
    noted = zip(history.steps, history.losses, strict=True)
    lines = {step: {"step": step, **summary(losses.tolist())} for step, losses in noted}
    for figure in history.figures():
        for step, values in zip(history.judged_steps, history.table(figure), strict=True):
            known = values[torch.isfinite(values)]
            if len(known):
                lines[step][figure] = float(known.mean())
    for step, solved in zip(history.judged_steps, _solved_so_far(population), strict=True):
        lines[step]["solved"] = solved / len(population)
    return list(lines.values())


def _lay_out(population: Population, heads: PopulationHeads | None) -> ReportContent:
    """Lay out the report."""
    numbers, figures = population.numbers, population.history.figures()
    facts = WORDS.texts("facts", numbers)
    if heads is not None:
        ends = {"first": population.name(heads.middle), "last": population.name(heads.ranking[-1])}
        facts |= WORDS.texts("extremes", ends)
    faults = [[name, fault] for name, fault in population.faults.items()]
    sections: list[Section] = [
        problem_section([population.problem_description]),
        _success_section(population),
        _variants_table(population),
        _loss_section(population),
        *(_figure_section(population, figure) for figure in figures),
        *(heads_sections(heads) if heads is not None else []),
        Table(rows=faults, **WORDS.texts("faults")),
        parameters_section(population.model_at(0)),
        settings_section(population.config),
    ]
    return ReportContent(
        title=WORDS.text("title", numbers),
        subtitle=WORDS.text("subtitle", numbers),
        facts=list(facts.items()),
        sections=filled(sections),
    )


def _success_section(population: Population) -> Lines:
    steps, series = population.judged_steps, []
    for name, counts in (
        ("solved by then", _solved_so_far(population)),
        ("solved at that step", population.solved.sum(0).tolist()),
    ):
        shares = [share_interval(count, len(population)) for count in counts]
        percents = [Interval(*(100 * end for end in share)) for share in shares]
        series.append(Series.of_intervals(name, steps, percents))
    words = WORDS.texts("success", population.numbers)
    return Lines(figure="success", from_zero=True, series=series, **words)


def _variants_table(population: Population) -> Table:
    """Compare the variants; the table is empty where there is only one."""
    rows: list[list[Scalar]] = []
    if len(population.variants) > 1:
        for number, fields in enumerate(population.variants):
            numbers = {**population.variant(number).numbers, "fields": fields}
            rows.append([number, *WORDS.texts("variant", numbers).values()])
    return Table(rows=rows, **WORDS.texts("variants"))


def _loss_section(population: Population) -> Lines:
    history = population.history
    losses = torch.stack(history.losses).clone()
    for member, end in enumerate(history.ends):
        if end is not None:  # losses after a member's end are not its training
            losses[torch.tensor(history.steps) > end, member] = math.nan
    words = WORDS.texts("loss", population.numbers)
    return Lines(figure="loss-fan", series=_fan(history.steps, losses), **words)


def _figure_section(population: Population, figure: str) -> Lines:
    meanings = dict(population.problem_description.meanings)
    numbers = {"words": figure.replace("_", " "), "meaning": meanings.get(figure, "")}
    return Lines(
        figure=f"fan-{figure.lower().replace('_', '-')}"[:60],
        series=_fan(population.judged_steps, population.table(figure).T),
        **WORDS.texts("figure", numbers),
    )


def _fan(steps: Sequence[int], values: Tensor) -> list[Series]:
    """Turn (times, member) into the median with two bands.

    Where no member has a number (all but those that diverged had stopped), there is a gap.
    """
    finite = values.masked_fill(~torch.isfinite(values), math.nan)
    quantiles = finite.nanquantile(torch.tensor(_QUANTILES, dtype=values.dtype), dim=1).tolist()
    ends = [[None if math.isnan(each) else each for each in quantile] for quantile in quantiles]
    bands = [
        Band(name=name, low=ends[low], high=ends[high]) for name, (low, high) in _BANDS.items()
    ]
    return [Series(name="median", x=list(steps), y=ends[2], bands=bands)]
