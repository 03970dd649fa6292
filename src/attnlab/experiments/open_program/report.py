"""The claims and the report of `open_program`."""

import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from attnlab.core import stats
from attnlab.draw.sections import Lines, ReportContent, Section, Series, Table
from attnlab.experiments.claims import Claim
from attnlab.experiments.open_program.cohorts import Cohort
from attnlab.experiments.open_program.config import NAME, WORDS, OpenProgramConfig
from attnlab.experiments.open_program.targets import Target
from attnlab.experiments.sections import filled, parameters_section, settings_section
from attnlab.programs.side_by_side import Comparison

_LEVEL = 0.05  # of the sign test


@dataclass(frozen=True)
class TargetResult:
    """The models of one program by kind, and the first of some beside the compiled program."""

    target: Target
    cohorts: Mapping[str, Cohort]
    beside: Mapping[str, Comparison]


@dataclass(frozen=True)
class Race:
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


def race(one: Cohort, other: Cohort) -> Race:
    """Compare two kinds, seed by seed."""
    sooner = sum(map(operator.lt, one.steps, other.steps))
    later = sum(map(operator.gt, one.steps, other.steps))
    return Race(sooner, later)


def need(cohort: Cohort) -> stats.Interval:
    """Return how much more of the inputs fail without the compiled heads than without learned
    ones, on average over seeds."""
    return stats.mean_interval(list(map(operator.sub, cohort.without_learned, cohort.without_part)))


def make_claims(results: Sequence[TargetResult]) -> list[Claim]:
    """Evaluate the claims: four about each program, and one about all."""
    moved = models = 0
    for result in results:
        for arm in ("frozen", "decoy"):
            moved += result.cohorts[arm].moved
            models += len(result.cohorts[arm].models)
    claims = WORDS.claims({"moved": moved, "models": models}, {"frozen_stays": moved == 0})
    for result in results:
        claims += _claims_of(result)
    return claims


def _claims_of(result: TargetResult) -> list[Claim]:
    name, source = result.target.name, result.target.source
    best = result.cohorts[source.best]
    against = {arm: race(best, each) for arm, each in result.cohorts.items()}
    decoy = race(result.cohorts["decoy"], result.cohorts["scratch"])
    needed = need(best)
    is_used = stats.is_above(needed, 0.0)
    (other,) = {"frozen", "trainable"} - {source.best}
    passed = {"saves_steps": against["scratch"].passed, "best_kind": against[other].passed}
    if source.is_of_use:
        passed |= {"beats_decoy": against["decoy"].passed, "is_used": is_used}
    else:
        is_ignored = None if is_used is None else not is_used
        passed |= {"decoy_saves_too": decoy.passed, "is_ignored": is_ignored}
    numbers = {
        "name": name,
        "source": source,
        "other": other,
        "against": against,
        "decoy": decoy,
        "medians": {arm: steps_text(each) for arm, each in result.cohorts.items()},
        "needed": needed,
        "level": _LEVEL,
    }
    found = []
    for claim, holds in passed.items():
        texts = WORDS.texts(f"claim.{claim}", numbers)
        found.append(Claim(f"{name}_{claim}", **texts, passed=holds))
    return found


def steps_text(cohort: Cohort) -> str:
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
    sections += [_beside(results), _differences(results)]
    sections += [parameters_section(results[0].cohorts["frozen"].models[0])]
    sections += [settings_section(config)]
    facts = [
        ("seed", str(seed)),
        ("models of each kind", f"{config.seeds:,}"),
        ("inputs", f"all {len(results[0].target.domain.ids):,} of up to {config.length} letters"),
    ]
    return ReportContent(
        title=NAME,
        subtitle=WORDS.text("subtitle"),
        facts=facts,
        sections=filled(sections),
    )


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


def _beside(results: Sequence[TargetResult]) -> Table:
    rows: list[list[str]] = []
    for result in results:
        for arm, comparison in result.beside.items():
            for match in comparison.matches:
                apart = [f"{match.distance:.2f}", f"{match.chance:.2f}"]
                head = f"{match.head}  {match.line}"
                rows.append([result.target.name, arm, head, match.learned, *apart])
    return Table(rows=rows, **WORDS.texts("beside"))


def _differences(results: Sequence[TargetResult]) -> Table:
    rows: list[list[str]] = []
    for result in results:
        for arm, comparison in result.beside.items():
            count = f"{comparison.differing:,} of {comparison.inputs:,}"
            rows.append([result.target.name, arm, count, "; ".join(map(str, comparison.examples))])
    return Table(rows=rows, **WORDS.texts("differences"))
