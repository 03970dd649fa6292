"""A search's report: the best setting, success by trial and by setting, and every trial."""

from collections.abc import Mapping, Sequence
from typing import Any

from attnlab.configs import Fields
from attnlab.core.stats import mean_interval
from attnlab.draw.sections import Bars, BarSeries, Lines, ReportContent, Series, Text
from attnlab.experiments.experiment import ProblemDescription
from attnlab.experiments.sections import filled, problem_section
from attnlab.experiments.sweeps.axes import Axis, shown
from attnlab.experiments.sweeps.report import TALLIED, listed, run_command, setting_rows, tallied
from attnlab.experiments.tune.space import is_log, range_words
from attnlab.experiments.tune.study import RANDOM, Trial
from attnlab.experiments.words import Words

WORDS = Words("attnlab.experiments.tune")

_MOST_BARS = 12


def make_content(
    experiment: str,
    axes: Sequence[Axis],
    fixed: Fields,
    trials: Sequence[Trial],
    *,
    seeds: Sequence[int],
    facts: Mapping[str, str],
    problems: Sequence[ProblemDescription] = (),
) -> ReportContent:
    """Make the report's content; `trials` are in the order in which they were proposed."""
    names = [axis.name for axis in axes]
    whole = [trial for trial in trials if trial.seeds]
    ranked = sorted(whole, key=lambda trial: -trial.score)
    best = "no trial yet"
    if ranked:
        best = f"best: {ranked[0].name}, solved by {ranked[0].solved} of {ranked[0].seeds} seeds"
    rows = []
    for trial in ranked:
        fields = [
            trial.fields[axis.name] if axis.ends else shown(trial.fields[axis.name])
            for axis in axes
        ]
        rows.append([trial.number, *fields, *tallied(trial), trial.broken])
    refused = [[trial.number, trial.name, trial.refusal] for trial in trials if trial.refusal]
    space = [[axis.name, range_words(axis)] for axis in axes]
    sections = [
        problem_section(problems) if problems else None,
        _best(experiment, ranked[0], fixed, seeds) if ranked else None,
        _course(whole) if whole else None,
        *(_against(axis, whole) for axis in axes if whole),
        listed(WORDS, "trials", ["trial", *names, *TALLIED, "diverged"], rows),
        listed(WORDS, "refused", ["trial", "setting", "why"], refused),
        listed(WORDS, "space", ["setting", "searched or set"], [*space, *setting_rows(fixed)]),
    ]
    return ReportContent(
        title=f"{experiment}: search over {', '.join(names)}",
        subtitle=f"{len(trials):,} trials of {len(seeds):,} seeds; {best}",
        facts=list(facts.items()),
        sections=filled(sections),
    )


def _best(experiment: str, best: Trial, fixed: Fields, seeds: Sequence[int]) -> Text:
    texts = WORDS.texts("best", {"best": best})
    command = run_command(experiment, best, fixed, 100, max(seeds) + 1)
    return Text(title=texts["title"], text=f"{texts['text']}\n{command}")


def _course(trials: Sequence[Trial]) -> Lines:
    numbers = [trial.number for trial in trials]
    best, so_far = [], trials[0]
    for trial in trials:
        so_far = max(so_far, trial, key=lambda each: each.score)
        best.append(so_far.share.value)
    texts = WORDS.texts("course", {"are_random": len(trials) <= RANDOM, "random": RANDOM})
    return Lines(
        **texts,
        from_zero=True,
        series=[
            _shares(numbers, trials),
            Series(name="best so far", x=numbers, y=best, style="steps"),
        ],
    )


def _against(axis: Axis, trials: Sequence[Trial]) -> Bars | Lines:
    """Show success against the values of one field, whatever the others are."""
    name = axis.name
    numbers = {
        "name": name,
        "comment": axis.comment.split(";")[0],
        "range": range_words(axis),
    }
    figure = f"by-{name.replace('_', '-')}"[:60]
    values = axis.values or sorted({trial.fields[name] for trial in trials})
    are_few = len(values) <= _MOST_BARS and all(isinstance(value, int) for value in values)
    if axis.values or are_few:
        groups, means = [], []
        for value in values:
            own = [trial for trial in trials if trial.fields[name] == value]
            groups.append(f"{shown(value)} ({len(own):,})")
            means.append(_mean_share(own))
        success = BarSeries.of_intervals("success", means)
        texts = WORDS.texts("by_group", numbers)
        return Bars(**texts, groups=groups, series=[success], figure=figure)
    by_value = sorted(trials, key=lambda trial: float(trial.fields[name]))
    return Lines(
        **WORDS.texts("by_value", numbers),
        x_log=is_log(axis),
        from_zero=True,
        series=[_shares([trial.fields[name] for trial in by_value], by_value)],
        figure=figure,
    )


def _shares(x: Sequence[Any], trials: Sequence[Trial]) -> Series:
    """Show each trial's success with its interval as a point."""
    return Series.of_intervals("each trial", x, [trial.share for trial in trials], "points")


def _mean_share(trials: Sequence[Trial]) -> tuple[float | None, float | None, float | None]:
    """Return the mean share of seeds that solved the problem, and its interval, if known."""
    if not trials:
        return None, None, None
    mean, low, high = mean_interval([trial.share.value for trial in trials])
    if len(trials) == 1:
        return mean, None, None
    return mean, max(0.0, low), min(1.0, high)
