"""A search's report: the best setting, success by trial and by setting, and every trial."""

from collections.abc import Mapping, Sequence
from typing import Any

from attnlab.configs import Fields
from attnlab.core.stats import mean_interval
from attnlab.draw.sections import Bars, BarSeries, Lines, ReportContent, Scalar, Series, Table, Text
from attnlab.experiments.experiment import ProblemDescription
from attnlab.experiments.search.space import Dimension
from attnlab.experiments.search.trial import RANDOM, Trial
from attnlab.experiments.sections import filled, problem_section
from attnlab.experiments.sweeps.axes import shown

_MOST_BARS = 12
_SHARE = "share of seeds that solve the problem"
_MOST_ROWS = 1_000  # of a table in the page; the CSV holds all


def make_content(
    experiment: str,
    dimensions: Sequence[Dimension],
    fixed: Fields,
    trials: Sequence[Trial],
    *,
    seeds: Sequence[int],
    facts: Mapping[str, str],
    problems: Sequence[ProblemDescription] = (),
) -> ReportContent:
    """Make the report's content; `trials` are in the order in which they were proposed."""
    whole = [trial for trial in trials if trial.seeds]
    ranked = sorted(whole, key=lambda trial: -trial.score)
    best = "no trial yet"
    if ranked:
        best = f"best: {ranked[0].name}, solved by {ranked[0].solved} of {ranked[0].seeds} seeds"
    sections = [
        problem_section(problems) if problems else None,
        _best(experiment, ranked[0], fixed, seeds) if ranked else None,
        _course(whole) if whole else None,
        *(_against(dimension, whole) for dimension in dimensions if whole),
        _table(dimensions, ranked),
        _refused(trials),
        _space(dimensions, fixed),
    ]
    return ReportContent(
        title=f"{experiment}: search over {', '.join(dimension.name for dimension in dimensions)}",
        subtitle=f"{len(trials):,} trials of {len(seeds):,} seeds; {best}",
        facts=list(facts.items()),
        sections=filled(sections),
    )


def _best(experiment: str, best: Trial, fixed: Fields, seeds: Sequence[int]) -> Text:
    settings = " ".join([best.name, *(f"{name}={shown(value)}" for name, value in fixed.items())])
    assert best.success is not None
    share, low, high = best.success
    return Text(
        title="The best setting found",
        text=f"{best.name}: {best.solved} of {best.seeds} seeds solved the problem, "
        f"{share:.0%} ({low:.0%} to {high:.0%}). It was chosen among many by these very seeds, so "
        f"evaluate it with others:\n`attnlab run {experiment} --seeds 100 --seed "
        f"{max(seeds) + 1} --set {settings}`",
    )


def _course(trials: Sequence[Trial]) -> Lines:
    numbers = [trial.number for trial in trials]
    best, so_far = [], trials[0]
    for trial in trials:
        so_far = max(so_far, trial, key=lambda each: each.score)
        assert so_far.success is not None
        best.append(so_far.success.value)
    return Lines(
        title="The course of the search",
        caption="The share of seeds that solved the problem in each trial, with its 95 % "
        f"interval (Wilson), and the best so far. {_how_proposed(trials)}",
        x_label="trial",
        y_label=_SHARE,
        from_zero=True,
        series=[
            _shares(numbers, trials),
            Series(name="best so far", x=numbers, y=best, style="steps"),
        ],
        figure="trials",
    )


def _how_proposed(trials: Sequence[Trial]) -> str:
    if len(trials) <= RANDOM:
        return (
            f"All of them were drawn at random, as the first {RANDOM} trials always are. With more "
            "--trials the next ones learn from these."
        )
    return (
        f"The first {RANDOM} trials are drawn at random, the others learn from those before them."
    )


def _against(dimension: Dimension, trials: Sequence[Trial]) -> Bars | Lines:
    """Show success against the values of one field, whatever the others are."""
    comment = dimension.comment.split(";")[0]
    title = f"Success against {dimension.name}"
    figure = f"by-{dimension.name.replace('_', '-')}"[:60]
    values = dimension.choices
    if dimension.ends:
        values = tuple(sorted({trial.fields[dimension.name] for trial in trials}))
    are_few = len(values) <= _MOST_BARS and all(isinstance(value, int) for value in values)
    if not dimension.ends or are_few:
        groups, success = _mean_success(dimension.name, values, trials)
        return Bars(
            title=title,
            caption=f"{comment}. The mean over all trials with a value (in brackets how many), "
            "and its 95 % interval over trials (Student's t; none for fewer than two). The other "
            "settings differ too, and a search tries good values more often, so this is a hint, "
            "not a comparison.",
            y_label=_SHARE,
            groups=groups,
            series=[success],
            figure=figure,
        )
    by_value = sorted(trials, key=lambda trial: float(trial.fields[dimension.name]))
    return Lines(
        title=title,
        caption=f"{comment}; searched: {dimension.words}. Every trial is a point with its 95 % "
        "interval (Wilson); the other settings differ too.",
        x_label=dimension.name,
        y_label=_SHARE,
        x_log=dimension.is_log,
        from_zero=True,
        series=[_shares([trial.fields[dimension.name] for trial in by_value], by_value)],
        figure=figure,
    )


def _mean_success(
    name: str, values: Sequence[Any], trials: Sequence[Trial]
) -> tuple[list[str], BarSeries]:
    """Return a name for each value, and the mean success over the trials with it."""
    groups, means = [], []
    for value in values:
        own = [trial for trial in trials if trial.fields[name] == value]
        groups.append(f"{shown(value)} ({len(own):,})")
        means.append(_mean_share(own))
    return groups, BarSeries.of_intervals("success", means)


def _shares(x: Sequence[float], trials: Sequence[Trial]) -> Series:
    """Show each trial's success with its interval as a point."""
    known = [trial.success for trial in trials if trial.success is not None]
    return Series.of_intervals("each trial", x, known, "points")


def _mean_share(trials: Sequence[Trial]) -> tuple[float | None, float | None, float | None]:
    """Return the mean share of seeds that solved the problem, and its interval, if known."""
    shares = [trial.success.value for trial in trials if trial.success is not None]
    if not shares:
        return None, None, None
    mean, low, high = mean_interval(shares)
    if len(shares) == 1:
        return mean, None, None
    return mean, max(0.0, low), min(1.0, high)


def _table(dimensions: Sequence[Dimension], ranked: Sequence[Trial]) -> Table:
    rows: list[list[Scalar]] = []
    for trial in ranked[:_MOST_ROWS]:
        values = [trial.fields[dimension.name] for dimension in dimensions]
        plain = [
            value if dimension.ends is not None else shown(value)
            for dimension, value in zip(dimensions, values, strict=True)
        ]
        assert trial.success is not None
        learned = f"{trial.solved}/{trial.seeds}"
        rows.append(
            [
                trial.number,
                *plain,
                learned,
                *trial.success,
                trial.solved_at,
                trial.loss,
                trial.broken,
            ]
        )
    return Table(
        title="Trials, best first",
        caption="The share of seeds that solved the problem, with its 95 % interval (Wilson); "
        "ties are ranked by the median loss. First step: the median of the steps at which a seed "
        "had first solved the problem; n/a where half of the seeds or more never did.",
        columns=[
            "trial",
            *(dimension.name for dimension in dimensions),
            "solved",
            "share",
            "low",
            "high",
            "first step",
            "loss",
            "diverged",
        ],
        rows=rows,
    )


def _refused(trials: Sequence[Trial]) -> Table:
    rows: list[list[Scalar]] = [
        [trial.number, trial.name, trial.refusal] for trial in trials if trial.refusal
    ]
    return Table(
        title="Trials that could not be trained",
        caption="Most often because their values cannot be combined.",
        columns=["trial", "setting", "why"],
        rows=rows[:_MOST_ROWS],
    )


def _space(dimensions: Sequence[Dimension], fixed: Fields) -> Table:
    return Table(
        title="The space",
        caption="Searched and fixed settings; the others have the experiment's defaults.",
        columns=["setting", "searched or set"],
        rows=[
            *([dimension.name, dimension.words] for dimension in dimensions),
            *([name, shown(value)] for name, value in fixed.items()),
        ],
    )
