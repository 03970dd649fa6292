"""A search's report: the best setting, success by trial and by setting, and every trial."""

from collections.abc import Mapping, Sequence
from typing import Any

from attnlab.experiments.experiment import ProblemDescription
from attnlab.experiments.intervals import mean_interval
from attnlab.experiments.search.space import Dimension
from attnlab.experiments.search.trial import RANDOM, Trial
from attnlab.experiments.sections import problem_section
from attnlab.experiments.sweeps.axes import shown

__all__ = ["make_document"]

_MOST_BARS = 12
_SHARE = "share of seeds that solve the problem"
_MOST_ROWS = 1_000  # of a table in the page; the CSV holds all


def make_document(
    experiment: str,
    dimensions: Sequence[Dimension],
    fixed: Mapping[str, Any],
    trials: Sequence[Trial],
    *,
    seeds: Sequence[int],
    facts: Mapping[str, str],
    problems: Sequence[ProblemDescription] = (),
) -> dict[str, Any]:
    """Make the report's document; `trials` are in the order in which they were proposed."""
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
    return {
        "title": (
            f"{experiment}: search over {', '.join(dimension.name for dimension in dimensions)}"
        ),
        "subtitle": f"{len(trials):,} trials of {len(seeds):,} seeds; {best}",
        "facts": [[name, value] for name, value in facts.items()],
        "sections": [section for section in sections if section is not None],
    }


def _best(
    experiment: str, best: Trial, fixed: Mapping[str, Any], seeds: Sequence[int]
) -> dict[str, Any]:
    settings = " ".join([best.name, *(f"{name}={shown(value)}" for name, value in fixed.items())])
    assert best.success is not None
    share, low, high = best.success
    return {
        "kind": "text",
        "title": "The best setting found",
        "text": f"{best.name}: {best.solved} of {best.seeds} seeds solved the problem, "
        f"{share:.0%} ({low:.0%} to {high:.0%}). It was chosen among many by these very seeds, so "
        f"evaluate it with others:\n`attnlab run {experiment} --seeds 100 --seed "
        f"{max(seeds) + 1} --set {settings}`",
    }


def _course(trials: Sequence[Trial]) -> dict[str, Any]:
    numbers = [trial.number for trial in trials]
    best, so_far = [], trials[0]
    for trial in trials:
        so_far = max(so_far, trial, key=lambda each: each.score)
        assert so_far.success is not None
        best.append(so_far.success.value)
    return {
        "kind": "lines",
        "title": "The course of the search",
        "caption": "The share of seeds that solved the problem in each trial, with its 95 % "
        f"interval (Wilson), and the best so far. {_how_proposed(trials)}",
        "x_label": "trial",
        "y_label": _SHARE,
        "from_zero": True,
        "series": [
            {"x": numbers, **_shares(trials)},
            {"name": "best so far", "x": numbers, "y": best, "style": "steps"},
        ],
        "figure": "trials",
    }


def _how_proposed(trials: Sequence[Trial]) -> str:
    if len(trials) <= RANDOM:
        return (
            f"All of them were drawn at random, as the first {RANDOM} trials always are. With more "
            "--trials the next ones learn from these."
        )
    return (
        f"The first {RANDOM} trials are drawn at random, the others learn from those before them."
    )


def _against(dimension: Dimension, trials: Sequence[Trial]) -> dict[str, Any]:
    """Show success against the values of one field, whatever the others are."""
    comment = dimension.comment.split(";")[0]
    words = {
        "title": f"Success against {dimension.name}",
        "y_label": _SHARE,
        "figure": f"by-{dimension.name.replace('_', '-')}"[:60],
    }
    values = dimension.choices
    if dimension.ends:
        values = tuple(sorted({trial.fields[dimension.name] for trial in trials}))
    are_few = len(values) <= _MOST_BARS and all(isinstance(value, int) for value in values)
    if not dimension.ends or are_few:
        return {
            "kind": "bars",
            **words,
            "caption": f"{comment}. The mean over all trials with a value (in brackets how many), "
            "and its 95 % interval over trials (Student's t; none for fewer than two). The other "
            "settings differ too, and a search tries good values more often, so this is a hint, "
            "not a comparison.",
            **_bars(dimension.name, values, trials),
        }
    by_value = sorted(trials, key=lambda trial: float(trial.fields[dimension.name]))
    return {
        "kind": "lines",
        **words,
        "caption": f"{comment}; searched: {dimension.words}. Every trial is a point with its 95 % "
        "interval (Wilson); the other settings differ too.",
        "x_label": dimension.name,
        "x_log": dimension.is_log,
        "from_zero": True,
        "series": [
            {"x": [trial.fields[dimension.name] for trial in by_value], **_shares(by_value)}
        ],
    }


def _bars(name: str, values: Sequence[Any], trials: Sequence[Trial]) -> dict[str, Any]:
    """Return the groups and series of bars: mean success over the trials with each value."""
    groups, intervals = [], []
    for value in values:
        own = [trial for trial in trials if trial.fields[name] == value]
        groups.append(f"{shown(value)} ({len(own):,})")
        intervals.append(_mean_share(own))
    means, low, high = (list(column) for column in zip(*intervals, strict=True))
    return {
        "groups": groups,
        "series": [{"name": "success", "values": means, "low": low, "high": high}],
    }


def _shares(trials: Sequence[Trial]) -> dict[str, Any]:
    """Return each trial's success with its interval, as the fields of a series."""
    share, low, high = zip(
        *(trial.success for trial in trials if trial.success is not None), strict=True
    )
    return {
        "name": "each trial",
        "y": list(share),
        "low": list(low),
        "high": list(high),
        "style": "points",
    }


def _mean_share(trials: Sequence[Trial]) -> tuple[float | None, float | None, float | None]:
    """Return the mean share of seeds that solved the problem, and its interval, if known."""
    shares = [trial.success.value for trial in trials if trial.success is not None]
    if not shares:
        return None, None, None
    mean, low, high = mean_interval(shares)
    if len(shares) == 1:
        return mean, None, None
    return mean, max(0.0, low), min(1.0, high)


def _table(dimensions: Sequence[Dimension], ranked: Sequence[Trial]) -> dict[str, Any]:
    rows = []
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
    return {
        "kind": "table",
        "title": "Trials, best first",
        "caption": "The share of seeds that solved the problem, with its 95 % interval (Wilson); "
        "ties are ranked by the median loss. First step: the median of the steps at which a seed "
        "had first solved the problem; n/a where half of the seeds or more never did.",
        "columns": [
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
        "rows": rows,
    }


def _refused(trials: Sequence[Trial]) -> dict[str, Any] | None:
    rows = [[trial.number, trial.name, trial.refusal] for trial in trials if trial.refusal]
    if not rows:
        return None
    return {
        "kind": "table",
        "title": "Trials that could not be trained",
        "caption": "Most often because their values cannot be combined.",
        "columns": ["trial", "setting", "why"],
        "rows": rows[:_MOST_ROWS],
    }


def _space(dimensions: Sequence[Dimension], fixed: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "kind": "table",
        "title": "The space",
        "caption": "Searched and fixed settings; the others have the experiment's defaults.",
        "columns": ["setting", "searched or set"],
        "rows": [
            *([dimension.name, dimension.words] for dimension in dimensions),
            *([name, shown(value)] for name, value in fixed.items()),
        ],
    }
