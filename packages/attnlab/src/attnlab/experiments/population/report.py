"""A population's report: its claims, files and sections, and its model, the most typical one."""

import json
import math
import statistics
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from attnlab.core.stats import share_interval
from attnlab.core.store import pack
from attnlab.draw.sections import Band, Lines, ReportContent, Section, Series, Table
from attnlab.experiments.claims import Claim
from attnlab.experiments.experiment import Findings, MetricLine
from attnlab.experiments.population.blocks import StoredBlocks
from attnlab.experiments.population.heads_sections import heads_sections, ranked_members
from attnlab.experiments.population.population import WORDS, Population
from attnlab.experiments.population.population_heads import PopulationHeads, record_heads
from attnlab.experiments.report import Report
from attnlab.experiments.sections import (
    csv_text,
    filled,
    finite_or_none,
    parameters_section,
    problem_section,
    settings_section,
)
from attnlab.train.history import summary

WEIGHTS, HISTORY, TABLE = "population.safetensors", "history.safetensors", "table.csv"
MEMBERS = "members.csv"
"""The files that a population has beside those of every run: the best weights of all members,
stacked, (member, …); the course of the training, exactly, and as a table for people, a line for
each seed and step, where these are not in blocks; and the members by how typical they are."""

_LAYOUTS = {
    "simd": "each member an element of the processor's vectors",
    "vmap": "torch.func maps one member's step over all",
    "sequential": "one member after the other",
}
_MOST_FAULTS = 100  # of a table that a person reads
_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
_BANDS = {"nine in ten members": (0, 4), "the middle half": (1, 3)}  # indices of quantiles


def make_report(population: Population) -> Report:
    """Make the report; its model is that of the most typical member."""
    heads, claims, typical = record_heads(population), success_claims(population), 0
    files = {} if isinstance(population.blocks, StoredBlocks) else _files(population)
    if heads is not None:
        files[MEMBERS] = csv_text(*ranked_members(heads)).encode()
        typical = heads.ranking[0]
    content = _lay_out(population, heads)
    findings = Findings(population.model_at(typical), claims, content, files=files)
    metrics = _metrics(population)
    return Report.of(population.experiment, population.description, findings, metrics)


def success_claims(population: Population) -> list[Claim]:
    """Evaluate the claims: at least half of the members solve the problem, and none diverged."""
    solved = population.problem_description.solved
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
    ]


def _files(population: Population) -> dict[str, bytes]:
    history = population.history
    names = ["loss", "learning_rate", "gradient_norm", *history.figures()]
    rows: list[list[float | None]] = []
    for index, seed in enumerate(population.seeds):
        merged: dict[float, dict[str, float]] = {}
        for line in history.lines(index):
            merged.setdefault(line["step"], {}).update(line)
        for step, line in merged.items():
            rows.append([seed, step, *map(line.get, names)])
    tensors, facts = history.to_state()
    return {
        WEIGHTS: pack(population.weights),
        HISTORY: pack(tensors, {"facts": json.dumps({**facts, "layout": population.layout})}),
        TABLE: csv_text(["seed", "step", *names], rows).encode(),
    }


def _solved_so_far(population: Population) -> list[int]:
    """Count the members that solved the problem up to each evaluated step."""
    return [int(count) for count in population.solved.byte().cummax(1).values.sum(0)]


def _metrics(population: Population) -> list[MetricLine]:
    """Summarize the history by step: quartiles of the loss, means of the figures."""
    lines = {}
    for step, losses in population.by_step("loss"):
        lines[step] = {"step": step, **summary(losses)}
    for figure in population.figures:
        for step, values in population.by_step(figure):
            known = values[torch.isfinite(values)]
            if len(known):
                lines[step][figure] = float(known.mean())
    for step, solved in zip(population.evaluated_steps, _solved_so_far(population), strict=True):
        lines[step]["solved"] = solved / len(population)
    return list(lines.values())


def _lay_out(population: Population, heads: PopulationHeads | None) -> ReportContent:
    """Lay out the report."""
    faults = list(map(list, population.faults.items()))
    cut = ""
    if len(faults) > _MOST_FAULTS:
        cut = f"These are the first {_MOST_FAULTS} of {len(faults):,}."
    sections: list[Section] = [
        problem_section([population.problem_description]),
        _success_section(population),
        _loss_section(population),
    ]
    for figure in population.figures:
        sections.append(_figure_section(population, figure))
    if heads is not None:
        sections += heads_sections(heads)
    sections += [
        Table(rows=faults[:_MOST_FAULTS], **WORDS.texts("faults", {"cut": cut})),
        parameters_section(population.model_at(0)),
        settings_section(population.config),
    ]
    return ReportContent(
        title=f"{population.experiment}, {len(population):,} members",
        subtitle=f"{len(population):,} seeds of one small model, trained side by side, each as if "
        f"it were alone but for rounding: {population.solved_words}.",
        facts=list(_facts(population, heads).items()),
        sections=filled(sections),
    )


def _facts(population: Population, heads: PopulationHeads | None) -> dict[str, str]:
    steps, at_step = population.solved_steps, "never"
    if steps:
        middle = statistics.median_low(steps)
        at_step = f"{min(steps):,} to {max(steps):,}, median {middle:,}"
    facts = {
        "members": f"{len(population):,}",
        "solved": f"{len(steps):,}",
        "solved at step": at_step,
        "steps": f"{population.steps[-1]:,}",
        "layout": f"{population.layout} ({_LAYOUTS[population.layout]})",
    }
    if heads is not None:
        if len(heads.members) < len(population):
            facts["heads compared"] = heads.number_words
        facts["most typical"] = f"seed {population.name(heads.middle)}"
        facts["oddest"] = f"seed {population.name(heads.ranking[-1])}"
    return facts


def _success_section(population: Population) -> Lines:
    so_far, then = _solved_so_far(population), population.solved.sum(0).tolist()
    series = [
        _percents("solved by then", population, so_far),
        _percents("solved at that step", population, then),
    ]
    words = WORDS.texts("success", {"solved": population.problem_description.solved})
    return Lines(figure="success", from_zero=True, series=series, **words)


def _percents(name: str, population: Population, counts: Sequence[int]) -> Series:
    """Draw counts of the members as shares in percent."""
    percents = []
    for count in counts:
        share, low, high = share_interval(count, len(population))
        percents.append((100 * share, 100 * low, 100 * high))
    return Series.of_intervals(name, population.evaluated_steps, percents)


def _loss_section(population: Population) -> Lines:
    return Lines(
        figure="loss-fan",
        series=_fan(population.by_step("loss")),
        y_label="loss (nats)",
        **WORDS.texts("loss"),
    )


def _figure_section(population: Population, figure: str) -> Lines:
    meanings = dict(population.problem_description.meanings)
    name = figure.replace("_", " ")
    numbers = {"name": name, "title": name[:1].upper() + name[1:], "meaning": meanings.get(figure)}
    return Lines(
        figure=f"fan-{figure.lower().replace('_', '-')}"[:60],
        series=_fan(population.by_step(figure)),
        **WORDS.texts("figure", numbers),
    )


def _fan(by_step: Iterable[tuple[int, Tensor]]) -> list[Series]:
    """Turn the members' values at each step into the median with two bands.

    Where no member has a number (all but those that diverged had stopped), there is a gap.
    """
    steps, quantiles = [], []
    for step, values in by_step:
        known = values.masked_fill(~torch.isfinite(values), math.nan)
        steps.append(step)
        quantiles.append(known.nanquantile(torch.tensor(_QUANTILES, dtype=values.dtype)))
    ends = [list(map(finite_or_none, quantile)) for quantile in torch.stack(quantiles, 1).tolist()]
    bands = []
    for name, (low, high) in _BANDS.items():
        bands.append(Band(name=name, low=ends[low], high=ends[high]))
    return [Series(name="median", x=steps, y=ends[2], bands=bands)]
