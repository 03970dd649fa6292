"""A search's report: the best setting, success by trial and by setting, and every trial."""

from collections.abc import Mapping, Sequence
from typing import Any

from attnlab.draw import sections as draw
from attnlab.experiments.sections import filled, problem_section
from attnlab.experiments.sweeps.axes import Axis, typed_value
from attnlab.experiments.sweeps.outcome import CellOutcome, SweepOutcome
from attnlab.experiments.sweeps.plan import Plan
from attnlab.experiments.sweeps.report import TALLIED, listed, run_command, setting_rows, tallied
from attnlab.experiments.tune.study import RANDOM, is_log, range_words

_SHARE = "share of seeds that solve the problem"


def make_content(plan: Plan, outcome: SweepOutcome, facts: Mapping[str, str]) -> draw.ReportContent:
    """Make the report's content; the cells of the outcome are the trials."""
    trials, axes = outcome.trained, plan.axes
    words = "no trial yet"
    sections: list[draw.Section] = [problem_section(plan.problems(outcome.grid))]
    if trials:
        best = max(trials, key=lambda trial: trial.score)
        words = f"best: {best.name}, solved by {best.solved} of {best.seeds} seeds"
        sections += [_best(plan, best), _course(trials)]
        sections += [_against(axis, trials) for axis in axes if axis.ends]
    space = [[axis.name, range_words(axis)] for axis in axes]
    refused = [[trial.number, trial.name, trial.refusal] for trial in outcome.refused]
    sections += [
        _trials(axes, trials),
        listed(
            "Trials that could not be trained",
            "Most often because their values cannot be combined.",
            ["trial", "setting", "why"],
            refused,
        ),
        listed(
            "The space",
            "Searched and fixed settings; the others have the experiment's defaults.",
            ["setting", "searched or set"],
            [*space, *setting_rows(plan.fixed)],
        ),
    ]
    return draw.ReportContent(
        title=f"{plan.experiment}: search over {', '.join(axis.name for axis in axes)}",
        subtitle=f"{len(outcome.finished):,} trials of {len(plan.seeds):,} seeds; {words}",
        facts=list(facts.items()),
        sections=filled(sections),
    )


def _trials(axes: Sequence[Axis], trials: Sequence[CellOutcome]) -> draw.Table:
    """List the trials, the best first."""
    rows = []
    for trial in sorted(trials, key=lambda trial: -trial.score):
        fields = []
        for axis in axes:
            value = trial.fields[axis.name]
            fields.append(value if axis.ends else typed_value(value))
        rows.append([trial.number, *fields, *tallied(trial), trial.broken])
    return listed(
        "Trials, best first",
        "The share of seeds that solved the problem, with its 95 % interval (Wilson); ties are "
        "ranked by the median loss. First step: the median of the steps at which a seed had first "
        "solved the problem; n/a where half of the seeds or more never did.",
        ["trial", *(axis.name for axis in axes), *TALLIED, "diverged"],
        rows,
    )


def _best(plan: Plan, best: CellOutcome) -> draw.Text:
    share, low, high = best.share
    command = run_command(plan, best, 100, max(plan.seeds) + 1)
    return draw.Text(
        title="The best setting found",
        text=f"{best.name}: {best.solved} of {best.seeds} seeds solved the problem, {share:.0%} "
        f"({low:.0%} to {high:.0%}). It was chosen among many by these very seeds, so evaluate it "
        f"with others:\n{command}",
    )


def _course(trials: Sequence[CellOutcome]) -> draw.Lines:
    numbers = [trial.number for trial in trials]
    best, so_far = [], trials[0]
    for trial in trials:
        so_far = max(so_far, trial, key=lambda trial: trial.score)
        best.append(so_far.share.value)
    learning = (
        f"The first {RANDOM} trials are drawn at random, the others learn from those before them."
    )
    if len(trials) <= RANDOM:
        learning = (
            f"All of them were drawn at random, as the first {RANDOM} trials always are. With more "
            "--trials the next ones learn from these."
        )
    return draw.Lines(
        title="The course of the search",
        caption="The share of seeds that solved the problem in each trial, with its 95 % interval "
        f"(Wilson), and the best so far. {learning}",
        x_label="trial",
        y_label=_SHARE,
        figure="trials",
        from_zero=True,
        series=[
            _shares(numbers, trials),
            draw.Series(name="best so far", x=numbers, y=best, style="steps"),
        ],
    )


def _against(axis: Axis, trials: Sequence[CellOutcome]) -> draw.Lines:
    """Show success against the values of a range, whatever the other settings are."""
    name = axis.name
    by_value = sorted(trials, key=lambda trial: float(trial.fields[name]))
    x = [trial.fields[name] for trial in by_value]
    return draw.Lines(
        title=f"Success against {name}",
        caption=f"{axis.comment.split(';')[0]}; searched: {range_words(axis)}. Every trial is a "
        "point with its 95 % interval (Wilson); the other settings differ too.",
        x_label=name,
        y_label=_SHARE,
        figure=f"by-{name.replace('_', '-')}"[:60],
        x_log=is_log(axis),
        from_zero=True,
        series=[_shares(x, by_value)],
    )


def _shares(x: Sequence[Any], trials: Sequence[CellOutcome]) -> draw.Series:
    """Show each trial's success with its interval as a point."""
    return draw.Series.of_intervals("each trial", x, [trial.share for trial in trials], "points")
