"""A population's report: success, loss and figures over the steps, heads, typical members."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from attnlab.core.stats import Interval, share_interval
from attnlab.draw.sections import Band, Lines, ReportContent, Scalar, Section, Series, Table
from attnlab.experiments.experiment import Findings, MetricLine
from attnlab.experiments.population.files import MEMBERS, files_of
from attnlab.experiments.population.heads_sections import heads_sections
from attnlab.experiments.population.members import TrainedMembers
from attnlab.experiments.population.population_claims import evaluate_claims
from attnlab.experiments.population.population_heads import PopulationHeads, record_heads
from attnlab.experiments.population.typical import (
    Typicality,
    measure_typicality,
    ranked_members,
    typical_section,
)
from attnlab.experiments.report import Report
from attnlab.experiments.sections import (
    csv_text,
    parameters_section,
    problem_section,
    settings_section,
)
from attnlab.train.history import summary

_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
_BANDS = {"nine in ten members": (0, 4), "the middle half": (1, 3)}  # indices of quantiles
_FAN = (
    "The median of the members; one band holds nine in ten of them, the darker one the middle half."
)
_LAYOUTS = {
    "simd": "lanes (each member an element of the processor's vectors)",
    "batched": "batched (members are a batch of matrices)",
    "vmap": "vmap (torch.func maps one member's step over all)",
    "sequential": "sequential (one member after the other)",
}


def make_report(population: TrainedMembers) -> Report:
    """Make the report; its model is that of the first variant's most typical member."""
    heads = record_heads(population)
    typicality = measure_typicality(population, heads) if heads is not None else None
    claims = evaluate_claims(population)
    content = _lay_out(population, heads, typicality)
    ranking = [] if typicality is None else typicality.ranking
    of_first_variant = (index for index in ranking if population.member_ids[index].variant == 0)
    model = population.model_at(next(of_first_variant, 0))
    files = files_of(population)
    if typicality is not None:
        files[MEMBERS] = csv_text(*ranked_members(population, typicality)).encode()
    findings = Findings(model, claims, content, files=files)
    metrics = _metrics(population)
    return Report.of(population.experiment, population.description, findings, claims, metrics)


def _metrics(population: TrainedMembers) -> list[MetricLine]:
    """Summarize the history by step: quartiles of the loss, means of the figures."""
    history = population.history
    noted = zip(history.steps, history.losses, strict=True)
    lines: dict[int, MetricLine] = {
        step: {"step": step, **summary(losses.tolist())} for step, losses in noted
    }
    for figure in history.figures():
        for step, values in zip(history.judged_steps, history.table(figure), strict=True):
            known = values[torch.isfinite(values)]
            if len(known):
                lines[step][figure] = float(known.mean())
    for step in history.judged_steps:
        solved = sum(at is not None and at <= step for at in population.solved_at)
        lines[step]["solved"] = solved / len(population)
    return list(lines.values())


def _lay_out(
    population: TrainedMembers, heads: PopulationHeads | None, typicality: Typicality | None
) -> ReportContent:
    """Lay out the report."""
    sections: list[Section] = [
        problem_section([population.problem_description]),
        _success_section(population),
    ]
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
    return ReportContent(
        title=f"{population.experiment}, {len(population):,} members",
        subtitle=_subtitle(population),
        facts=_facts(population, typicality),
        sections=sections,
    )


def _subtitle(population: TrainedMembers) -> str:
    solved = sum(step is not None for step in population.solved_at)
    share, low, high = population.success
    what = f"{len(population.seeds):,} seeds"
    if len(population.variants) > 1:
        what = f"{len(population.variants):,} variants of {what} each"
    return (
        f"{what[0].upper()}{what[1:]} of one small model, trained side by side, each as if it "
        f"were alone but for rounding: {solved:,} of {len(population):,} solve the problem, "
        f"{share:.1%} ({low:.1%} to {high:.1%})."
    )


def _facts(population: TrainedMembers, typicality: Typicality | None) -> list[tuple[str, str]]:
    steps = [step for step in population.solved_at if step is not None]
    facts = [
        ("members", f"{len(population):,}"),
        ("solved", f"{len(steps):,}"),
        ("solved at step", _range_words(steps)),
        ("steps", f"{population.history.steps[-1]:,}"),
        ("layout", _LAYOUTS.get(population.layout, population.layout)),
    ]
    if typicality is not None:
        facts += [
            ("most typical", _called(population, typicality.middle)),
            ("oddest", _called(population, typicality.ranking[-1])),
        ]
    return facts


def _range_words(steps: Sequence[int]) -> str:
    if not steps:
        return "never"
    middle = int(torch.tensor(steps).median())
    return f"{min(steps):,} to {max(steps):,}, median {middle:,}"


def _success_section(population: TrainedMembers) -> Lines:
    steps, num_members = population.judged_steps, len(population)
    is_solved = population.problem.is_solved
    now = [0] * len(steps)
    for fault, evaluations in zip(
        population.history.faults, population.history.evaluations, strict=True
    ):
        verdicts = [is_solved(evaluation) for evaluation in evaluations] if fault is None else []
        # A member that stopped early stays as it was.
        verdicts += verdicts[-1:] * (len(steps) - len(verdicts))
        for at, verdict in enumerate(verdicts):
            now[at] += verdict
    by_then = [sum(at is not None and at <= step for at in population.solved_at) for step in steps]
    series = []
    for name, counts in (("solved by then", by_then), ("solved at that step", now)):
        shares = [share_interval(count, num_members) for count in counts]
        percents = [Interval(*(100 * end for end in share)) for share in shares]
        series.append(Series.of_intervals(name, steps, percents))
    return Lines(
        figure="success",
        title="Success rate",
        caption="The share of members that solve the problem "
        f"({population.problem_description.solved}), with 95 % intervals (Wilson). The best "
        "weights are kept, so a member that solved it once stays in the first line; the "
        "second counts the members that solve it at that very step.",
        x_label="step",
        y_label="members that solve the problem (%)",
        from_zero=True,
        series=series,
    )


def _variants_section(population: TrainedMembers) -> Table:
    rows: list[list[Scalar]] = []
    for number, fields in enumerate(population.variants):
        part = population.variant(number)
        steps = [step for step in part.solved_at if step is not None]
        share, low, high = part.success
        settings = [
            f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}"
            for name, value in fields.items()
        ]
        rows.append(
            [
                number,
                ", ".join(settings) or "as set",
                f"{len(steps):,} of {len(part):,}",
                f"{share:.1%} ({low:.1%} to {high:.1%})",
                _range_words(steps),
            ]
        )
    return Table(
        title="Variants",
        caption="Members that differ in their settings; all variants have the same seeds. 95 % "
        "intervals (Wilson).",
        columns=["variant", "settings", "solved", "share", "solved at step"],
        rows=rows,
    )


def _loss_section(population: TrainedMembers) -> Lines:
    history = population.history
    losses = torch.stack(history.losses).clone()
    for member, end in enumerate(history.ends):
        if end is not None:  # losses after a member's end are not its training
            losses[torch.tensor(history.steps) > end, member] = math.nan
    return Lines(
        figure="loss-fan",
        title="Loss",
        caption=f"Training loss since the step before, over all members still in training. {_FAN}",
        x_label="step",
        y_label=population.problem_description.loss,
        series=_fan(history.steps, losses),
    )


def _figure_section(population: TrainedMembers, figure: str) -> Lines:
    words, meaning = (
        figure.replace("_", " "),
        dict(population.problem_description.meanings).get(figure, ""),
    )
    return Lines(
        figure=f"fan-{figure.lower().replace('_', '-')}"[:60],
        title=f"{words[0].upper()}{words[1:]} over the training",
        caption=f"{meaning} {_FAN}".strip(),
        x_label="step",
        y_label=words,
        series=_fan(population.judged_steps, population.table(figure).T),
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


def _faults_section(population: TrainedMembers) -> Table:
    return Table(
        title="Diverged members",
        caption="Their loss or gradient was no longer finite; they were stopped there, and "
        "changed no other member.",
        columns=["seed", "diverged"],
        rows=[[name, fault] for name, fault in population.faults.items()],
    )


def _called(population: TrainedMembers, index: int) -> str:
    return f"seed {population.name(index)}"
