"""A search's report: the best setting, the course of the search, each setting against success, every trial."""

from collections.abc import Mapping, Sequence
from typing import Any

from attnlab.experiments.experiment import Goal
from attnlab.experiments.intervals import mean_interval
from attnlab.experiments.search.space import Dimension
from attnlab.experiments.search.trial import RANDOM, Trial
from attnlab.experiments.sections import goal_section
from attnlab.experiments.sweeps.axes import shown

__all__ = ["make_document"]

_MOST_BARS = 12
_MOST_ROWS = 1_000  # of a table in the page; the CSV holds all


def make_document(
    experiment: str,
    dimensions: Sequence[Dimension],
    fixed: Mapping[str, Any],
    trials: Sequence[Trial],
    *,
    seeds: Sequence[int],
    facts: Mapping[str, str],
    goals: Sequence[Goal] = (),
) -> dict[str, Any]:
    """Lay out what was found; `trials` are in the order in which they were made."""
    whole = [trial for trial in trials if trial.seeds]
    ranked = sorted(whole, key=lambda trial: -trial.score)
    best = (
        f"best: {ranked[0].name}, learned by {ranked[0].solved} of {ranked[0].seeds} seeds"
        if ranked
        else "no trial yet"
    )
    sections = [
        goal_section(goals) if goals else None,
        _best(experiment, ranked[0], fixed, seeds) if ranked else None,
        _course(whole) if whole else None,
        *(_against(dimension, whole) for dimension in dimensions if whole),
        _table(dimensions, ranked),
        _refused(trials),
        _space(dimensions, fixed),
    ]
    return {
        "title": f"{experiment}: search over {', '.join(dimension.name for dimension in dimensions)}",
        "subtitle": f"{len(trials):,} trials of {len(seeds):,} seeds; {best}",
        "facts": [[name, value] for name, value in facts.items()],
        "sections": [section for section in sections if section is not None],
    }


def _best(experiment: str, best: Trial, fixed: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    settings = " ".join([best.name, *(f"{name}={shown(value)}" for name, value in fixed.items())])
    assert best.success is not None
    share, low, high = best.success
    return {
        "kind": "text",
        "title": "The best setting found",
        "text": f"{best.name}: {best.solved} of {best.seeds} seeds learned the task, {share:.0%} ({low:.0%} to "
        f"{high:.0%}). It was chosen among many by these very seeds, so judge it by others:\n`attnlab run {experiment} "
        f"--seeds 100 --seed {max(seeds) + 1} --set {settings}`",
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
        "caption": "The share of seeds that learned the task in each trial, with its 95 % interval (Wilson), and the "
        f"best so far. {_how_proposed(trials)}",
        "x_label": "trial",
        "y_label": "share of seeds that learn it",
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
            f"All of them were drawn at random, as the first {RANDOM} trials always are: nothing was searched yet. "
            f"With more --trials the next ones learn from these."
        )
    return f"The first {RANDOM} trials are drawn at random, the others learn from those before them."


def _against(dimension: Dimension, trials: Sequence[Trial]) -> dict[str, Any]:
    """Show what came of each value of one field, whatever the others were."""
    comment = dimension.comment.split(";")[0]
    words = {
        "title": f"Success against {dimension.name}",
        "y_label": "share of seeds that learn it",
        "figure": f"by-{dimension.name.replace('_', '-')}"[:60],
    }
    values = sorted({trial.fields[dimension.name] for trial in trials}) if dimension.ends else dimension.choices
    if not dimension.ends or (len(values) <= _MOST_BARS and all(isinstance(value, int) for value in values)):
        own = [[trial for trial in trials if trial.fields[dimension.name] == value] for value in values]
        intervals = [_mean_share(each) for each in own]
        return {
            "kind": "bars",
            **words,
            "caption": f"{comment}. The mean over all trials with a value (in brackets how many), and its 95 % "
            "interval over trials (Student's t; none for fewer than two): the other settings differ too, and a search "
            "tries what does well more often, so this is a hint and no comparison.",
            "groups": [f"{shown(value)} ({len(each):,})" for value, each in zip(values, own, strict=True)],
            "series": [
                {
                    "name": "success",
                    "values": [value for value, _, _ in intervals],
                    "low": [low for _, low, _ in intervals],
                    "high": [high for _, _, high in intervals],
                }
            ],
        }
    by_value = sorted(trials, key=lambda trial: float(trial.fields[dimension.name]))
    return {
        "kind": "lines",
        **words,
        "caption": f"{comment}; searched: {dimension.words}. Every trial is a point with its 95 % interval (Wilson); "
        "the other settings differ too.",
        "x_label": dimension.name,
        "x_log": dimension.is_log,
        "from_zero": True,
        "series": [{"x": [trial.fields[dimension.name] for trial in by_value], **_shares(by_value)}],
    }


def _shares(trials: Sequence[Trial]) -> dict[str, Any]:
    """Return each trial's success with its interval, as a series of lines has it."""
    share, low, high = zip(*(trial.success for trial in trials if trial.success is not None), strict=True)
    return {"name": "each trial", "y": list(share), "low": list(low), "high": list(high), "style": "points"}


def _mean_share(trials: Sequence[Trial]) -> tuple[float | None, float | None, float | None]:
    """Return the mean share of seeds that learned the task, and its interval; None for what is not known."""
    shares = [trial.success.value for trial in trials if trial.success is not None]
    if not shares:
        return None, None, None
    mean, low, high = mean_interval(shares)
    return (mean, max(0.0, low), min(1.0, high)) if len(shares) > 1 else (mean, None, None)


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
        rows.append([trial.number, *plain, learned, *trial.success, trial.solved_at, trial.loss, trial.broken])
    return {
        "kind": "table",
        "title": "Trials, best first",
        "caption": "The share of seeds that learned the task, with its 95 % interval (Wilson); of equals the one with "
        "the smaller median loss stands first. First step: the median of the steps at which a seed was first judged "
        "able to do the task; n/a where half of the seeds or more never were.",
        "columns": [
            "trial",
            *(dimension.name for dimension in dimensions),
            "learned",
            "share",
            "low",
            "high",
            "first step",
            "loss",
            "broken",
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
        "caption": "Most often because their values do not go together.",
        "columns": ["trial", "setting", "why"],
        "rows": rows[:_MOST_ROWS],
    }


def _space(dimensions: Sequence[Dimension], fixed: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "kind": "table",
        "title": "The space",
        "caption": "What was searched, and what was set; all else is as the experiment has it.",
        "columns": ["setting", "searched or set"],
        "rows": [
            *([dimension.name, dimension.words] for dimension in dimensions),
            *([name, shown(value)] for name, value in fixed.items()),
        ],
    }
