"""A search's report: the best setting, success by trial and by setting, and every trial."""

from collections.abc import Mapping, Sequence
from typing import Any

from attnlab.configs import Fields
from attnlab.core.stats import mean_interval
from attnlab.draw import sections as draw
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
) -> draw.ReportContent:
    """Make the report's content; `trials` are in the order in which they were proposed."""
    names = [axis.name for axis in axes]
    whole = [trial for trial in trials if trial.seeds]
    words = "no trial yet"
    space = [[axis.name, range_words(axis)] for axis in axes]
    sections: list[draw.Section] = []
    if problems:
        sections.append(problem_section(problems))
    if whole:
        best = max(whole, key=lambda trial: trial.score)
        words = f"best: {best.name}, solved by {best.solved} of {best.seeds} seeds"
        sections.append(_best(experiment, best, fixed, seeds))
        sections.append(_course(whole))
        sections += [_against(axis, whole) for axis in axes]
    sections += [
        _trials(axes, whole),
        _refused(trials),
        listed(WORDS, "space", ["setting", "searched or set"], [*space, *setting_rows(fixed)]),
    ]
    return draw.ReportContent(
        title=f"{experiment}: search over {', '.join(names)}",
        subtitle=f"{len(trials):,} trials of {len(seeds):,} seeds; {words}",
        facts=list(facts.items()),
        sections=filled(sections),
    )


def _trials(axes: Sequence[Axis], trials: Sequence[Trial]) -> draw.Table:
    """List the trials, the best first."""
    rows = []
    for trial in sorted(trials, key=lambda trial: -trial.score):
        fields = []
        for axis in axes:
            value = trial.fields[axis.name]
            fields.append(value if axis.ends else shown(value))
        rows.append([trial.number, *fields, *tallied(trial), trial.broken])
    names = [axis.name for axis in axes]
    return listed(WORDS, "trials", ["trial", *names, *TALLIED, "diverged"], rows)


def _refused(trials: Sequence[Trial]) -> draw.Table:
    rows = [[trial.number, trial.name, trial.refusal] for trial in trials if trial.refusal]
    return listed(WORDS, "refused", ["trial", "setting", "why"], rows)


def _best(experiment: str, best: Trial, fixed: Fields, seeds: Sequence[int]) -> draw.Text:
    texts = WORDS.texts("best", {"best": best})
    command = run_command(experiment, best, fixed, 100, max(seeds) + 1)
    return draw.Text(title=texts["title"], text=f"{texts['text']}\n{command}")


def _course(trials: Sequence[Trial]) -> draw.Lines:
    numbers = [trial.number for trial in trials]
    best, so_far = [], trials[0]
    for trial in trials:
        so_far = max(so_far, trial, key=lambda trial: trial.score)
        best.append(so_far.share.value)
    texts = WORDS.texts("course", {"are_random": len(trials) <= RANDOM, "random": RANDOM})
    return draw.Lines(
        **texts,
        from_zero=True,
        series=[
            _shares(numbers, trials),
            draw.Series(name="best so far", x=numbers, y=best, style="steps"),
        ],
    )


def _against(axis: Axis, trials: Sequence[Trial]) -> draw.Bars | draw.Lines:
    """Show success against the values of one field, whatever the others are."""
    name = axis.name
    numbers = {
        "name": name,
        "comment": axis.comment.split(";")[0],
        "range": range_words(axis),
    }
    figure = f"by-{name.replace('_', '-')}"[:60]
    values = axis.values or _few_integers(axis, trials)
    if values:
        groups, means = [], []
        for value in values:
            same_value = [trial for trial in trials if trial.fields[name] == value]
            groups.append(f"{shown(value)} ({len(same_value):,})")
            means.append(_mean_share(same_value))
        success = draw.BarSeries.of_intervals("success", means)
        texts = WORDS.texts("by_group", numbers)
        return draw.Bars(**texts, groups=groups, series=[success], figure=figure)
    by_value = sorted(trials, key=lambda trial: float(trial.fields[name]))
    x = [trial.fields[name] for trial in by_value]
    return draw.Lines(
        **WORDS.texts("by_value", numbers),
        x_log=is_log(axis),
        from_zero=True,
        series=[_shares(x, by_value)],
        figure=figure,
    )


def _few_integers(axis: Axis, trials: Sequence[Trial]) -> Sequence[int]:
    """Return the values of a field in order if they are few integers, else nothing."""
    values = sorted({trial.fields[axis.name] for trial in trials})
    if len(values) > _MOST_BARS or not all(isinstance(value, int) for value in values):
        return []
    return values


def _shares(x: Sequence[Any], trials: Sequence[Trial]) -> draw.Series:
    """Show each trial's success with its interval as a point."""
    return draw.Series.of_intervals("each trial", x, [trial.share for trial in trials], "points")


def _mean_share(trials: Sequence[Trial]) -> tuple[float | None, float | None, float | None]:
    """Return the mean share of seeds that solved the problem, and its interval, if known."""
    if not trials:
        return None, None, None
    mean, low, high = mean_interval([trial.share.value for trial in trials])
    if len(trials) == 1:
        return mean, None, None
    return mean, max(0.0, low), min(1.0, high)
