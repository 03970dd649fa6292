"""The claims and the report of `open_program`."""

import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from attnlab.core import stats
from attnlab.draw.sections import Lines, ReportContent, Section, Series, Table
from attnlab.experiments.claims import Claim
from attnlab.experiments.open_program.cohorts import ModelCohort
from attnlab.experiments.open_program.config import NAME, WORDS, OpenProgramConfig
from attnlab.experiments.open_program.targets import ProgramTarget
from attnlab.experiments.sections import parameters_section, settings_section

_LEVEL = 0.05  # of the sign test


@dataclass(frozen=True)
class TargetResult:
    """The models of one program by kind."""

    target: ProgramTarget
    cohorts: Mapping[str, ModelCohort]


@dataclass(frozen=True)
class SpeedComparison:
    """How often one kind is right on every input sooner than another, seed by seed.

    Equal steps, and seeds that neither solves, count for neither. p: of the sign test.
    """

    sooner: int
    later: int

    @property
    def p(self) -> float:
        """The two-sided chance of so uneven a race between equals."""
        return stats.sign_test(self.sooner, self.later)

    @property
    def passed(self) -> bool | None:
        """True if the first is sooner, False if it is later, None if that is undecided."""
        return None if self.p > _LEVEL else self.sooner > self.later

    def __str__(self) -> str:
        return f"{self.sooner} sooner, {self.later} later (p = {self.p:.2g})"


def race(one: ModelCohort, other: ModelCohort) -> SpeedComparison:
    """Compare two kinds, seed by seed."""
    sooner = sum(map(operator.lt, one.steps, other.steps))
    later = sum(map(operator.gt, one.steps, other.steps))
    return SpeedComparison(sooner, later)


def need(cohort: ModelCohort) -> stats.Interval:
    """Return how much more of the inputs fail without the compiled heads than without learned
    ones, on average over seeds."""
    return stats.mean_interval(list(map(operator.sub, cohort.without_learned, cohort.without_part)))


def make_claims(results: Sequence[TargetResult]) -> list[Claim]:
    """Evaluate the claims: four about each program, and one about all."""
    claims = [claim for result in results for claim in _claims_of(result)]
    return [_frozen_stays(results), *claims]


def _frozen_stays(results: Sequence[TargetResult]) -> Claim:
    cohorts = [result.cohorts[arm] for result in results for arm in ("frozen", "decoy")]
    moved = sum(cohort.moved for cohort in cohorts)
    models = sum(len(cohort.models) for cohort in cohorts)
    return Claim(
        "frozen_stays",
        f"no frozen entry of a part or a decoy moves in training ({models:,} models)",
        f"{moved:,} moved",
        "0",
        moved == 0,
        is_self_check=True,
    )


def _claims_of(result: TargetResult) -> list[Claim]:
    source, cohorts = result.target.source, result.cohorts
    (other,) = {"frozen", "trainable"} - {source.best}
    part, decoy = source.part_words, source.decoy_words
    claims = [
        _race_claim(
            result,
            "saves_steps",
            f"with {part} compiled and {source.best}, a model is right on every input in fewer "
            "steps than from scratch, seed by seed",
            (source.best, "scratch"),
        ),
        _race_claim(
            result,
            "best_kind",
            f"and in fewer steps than with {part} compiled and {other}",
            (source.best, other),
        ),
    ]
    needed = need(cohorts[source.best])
    is_used = stats.is_above(needed, 0.0)
    if source.is_of_use:
        beats_decoy = _race_claim(
            result,
            "beats_decoy",
            f"and in fewer steps than with {decoy} compiled and frozen, which has the same shape",
            (source.best, "decoy"),
        )
        return [*claims, beats_decoy, _need_claim(result, needed, "is_used", is_used)]
    saves_too = _race_claim(
        result,
        "decoy_saves_too",
        f"with {decoy}, compiled and frozen in the same shape, it also takes fewer steps than from "
        "scratch: it is not what the part knows that saves them",
        ("decoy", "scratch"),
    )
    is_ignored = None if is_used is None else not is_used
    return [*claims, saves_too, _need_claim(result, needed, "is_ignored", is_ignored)]


def _race_claim(result: TargetResult, name: str, words: str, arms: tuple[str, str]) -> Claim:
    """Claim that one kind is right on every input sooner than another."""
    one, other = (result.cohorts[arm] for arm in arms)
    outcome = race(one, other)
    return Claim(
        f"{result.target.name}_{name}",
        f"{result.target.name}: {words}",
        f"{outcome}; median {steps_text(one)} against {steps_text(other)} steps",
        f"sign test, p at most {_LEVEL}",
        outcome.passed,
    )


def _need_claim(
    result: TargetResult, needed: stats.Interval, name: str, passed: bool | None
) -> Claim:
    """Claim that a model needs the compiled heads more, or less, than as many learned ones."""
    more, bound = ("more", "above") if name == "is_used" else ("fewer", "below")
    value, low, high = (f"{100 * share:+.0f}" for share in needed)
    return Claim(
        f"{result.target.name}_{name}",
        f"{result.target.name}: {more} inputs fail without the compiled heads than without as many "
        "learned ones of the same layers (each says its mean; mean over seeds with its 95 % "
        "interval)",
        f"{value} points ({low} to {high})",
        f"interval {bound} 0",
        passed,
    )


def steps_text(cohort: ModelCohort) -> str:
    """Write the median steps of a kind with their interval."""
    value, low, high = map(_steps, stats.median_interval(cohort.steps))
    return f"{value} ({low} to {high})"


def _steps(steps: float) -> str:
    if math.isnan(steps):
        return "?"
    if math.isinf(steps):
        return "not reached"
    return f"{steps:,.0f}"


def make_content(
    config: OpenProgramConfig, seed: int, results: Sequence[TargetResult]
) -> ReportContent:
    """Lay the report out."""
    sections: list[Section] = []
    for result in results:
        sections += [_solved(result, config), _kinds(result, config)]
    sections += [parameters_section(results[0].cohorts["frozen"].models[0])]
    sections += [settings_section(config)]
    facts = [
        ("seed", str(seed)),
        ("models of each kind", f"{config.seeds:,}"),
        ("inputs", "; ".join(_inputs_of(result, config) for result in results)),
    ]
    return ReportContent(
        title=NAME, subtitle=WORDS.text("subtitle"), facts=facts, sections=sections
    )


def _inputs_of(result: TargetResult, config: OpenProgramConfig) -> str:
    name, number = result.target.name, len(result.target.domain.ids)
    return f"{name}: all {number:,} of up to {config.length_of(name)} letters"


def _solved(result: TargetResult, config: OpenProgramConfig) -> Lines:
    steps = list(range(0, config.steps + 1, config.evaluate_every))
    series = []
    for arm, cohort in result.cohorts.items():
        shares = list(map(cohort.solved_by, steps))
        series.append(Series(name=arm, x=steps, y=shares, style="steps"))
    numbers = {"name": result.target.name, "source": result.target.source}
    return Lines(
        series=series,
        from_zero=True,
        figure=f"{result.target.name}-solved",
        **WORDS.texts("solved", numbers),
    )


def _kinds(result: TargetResult, config: OpenProgramConfig) -> Table:
    rows: list[list[str]] = []
    for arm, cohort in result.cohorts.items():
        solved, against = stats.share_interval(cohort.solved, len(cohort.steps)), ""
        if arm != "scratch":
            against = str(race(cohort, result.cohorts["scratch"]))
        rows.append(
            [
                arm,
                f"{cohort.solved} of {len(cohort.steps)} ({solved.low:.0%} to {solved.high:.0%})",
                steps_text(cohort),
                against,
                _share(cohort.without_part),
                _share(cohort.without_learned),
            ]
        )
    numbers = {"name": result.target.name, "steps": config.steps}
    return Table(rows=rows, **WORDS.texts("kinds", numbers))


def _share(shares: Sequence[float]) -> str:
    if not shares:
        return ""
    mean, low, high = stats.mean_interval(shares)
    return f"{mean:.0%} ({low:.0%} to {high:.0%})"
