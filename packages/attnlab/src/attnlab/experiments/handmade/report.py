"""The report of `handmade`."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import fmean

from attnlab.core.stats import mean_interval
from attnlab.design import Proof
from attnlab.draw.sections import Bars, BarSeries, Lines, ReportContent, Scalar, Series, Table, Text
from attnlab.experiments.handmade.cohorts import BLOCK, CLOSE, HeadCohort
from attnlab.experiments.handmade.comparison import CohortComparison
from attnlab.experiments.handmade.config import NAME, WORDS
from attnlab.experiments.handmade.handmade_claims import HandmadeResult, ProvedDesign
from attnlab.experiments.handmade.panels import comparison_section, panels_section
from attnlab.experiments.handmade.programs import program_maps, programs_section
from attnlab.experiments.sections import parameters_section, settings_section


def make_content(result: HandmadeResult) -> ReportContent:
    """Make the report's content."""
    config, cohorts, proved = result.config, result.cohorts, list(result.proved.values())
    designs = {rule: design_proof.design for rule, design_proof in result.proved.items()}
    # The first cohort of each task.
    shown: dict[str, HeadCohort] = {cohort.task.rule: cohort for cohort in reversed(cohorts)}
    numbers = {
        "config": config,
        "num_proved": sum(design_proof.proof.holds for design_proof in proved),
        "num_cohorts": len(cohorts),
    }
    parameters = parameters_section(designs["copy_first"].model())
    pairs = [(design, shown[rule]) for rule, design in designs.items()]
    return ReportContent(
        title=NAME,
        subtitle=WORDS.text("subtitle", numbers),
        facts=[
            ("seed", str(result.seed)),
            ("tolerance", f"{config.tolerance:g}"),
            (
                "inputs checked",
                f"{sum(design_proof.proof.inputs for design_proof in proved):,}, all there are",
            ),
            ("gaps", ", ".join(f"{rule} {design.gap:.2f}" for rule, design in designs.items())),
            ("learned heads", f"{config.seeds} seeds for each task"),
            ("training", WORDS.text("training", numbers)),
        ],
        sections=[
            panels_section(pairs),
            _proofs_section(proved),
            programs_section(result.compiled),
            program_maps(result.compiled, pairs),
            Text(**WORDS.texts("derivation", {**designs, "tolerance": config.tolerance})),
            _learned_section(cohorts),
            _losses_section(cohorts),
            comparison_section([(designs[cohort.task.rule], cohort) for cohort in cohorts]),
            _agreement_section(cohorts, result.comparisons),
            replace(parameters, caption=WORDS.text("parameters")),
            settings_section(config),
        ],
    )


def _proofs_section(proved: Iterable[ProvedDesign]) -> Table:
    records = []
    for design_proof in proved:
        records += [_proof_record(design_proof.proof), _proof_record(design_proof.single)]
    return Table.of_records(records=records, **WORDS.texts("proofs"))


def _proof_record(proof: Proof) -> dict[str, Scalar]:
    min_output_size = ""
    if proof.min_output_size is not None:
        min_output_size = f"{proof.min_output_size:.4f}"
    return {
        "task": proof.task,
        "arithmetic": proof.dtype,
        "inputs": proof.inputs,
        "failures": proof.failures,
        "worst error": f"{proof.worst_error:.4g}",
        "at": proof.worst_input,
        "margin": f"{proof.margin:.2g}",
        "rounding at most": f"{proof.rounding:.1g}",
        "right keys weigh at least": proof.min_right_weight,
        "least |output|": min_output_size,
    }


def _learned_section(cohorts: Sequence[HeadCohort]) -> Bars:
    right = [_percent(cohort.shares) for cohort in cohorts]
    close = [_percent(cohort.close) for cohort in cohorts]
    series = [
        BarSeries.of_intervals("nearest target right", right),
        BarSeries.of_intervals(f"within {CLOSE:g} of the target", close),
    ]
    groups = [cohort.title for cohort in cohorts]
    return Bars(groups=groups, series=series, **WORDS.texts("learned", {"close": CLOSE}))


def _percent(shares: Sequence[float]) -> tuple[float, float | None, float | None]:
    """Return the mean of shares and its interval in percent, clipped to 0 and 100."""
    mean, low, high = mean_interval([100 * share for share in shares])
    if math.isnan(low):
        return mean, None, None
    return mean, max(0.0, low), min(100.0, high)


def _losses_section(cohorts: Sequence[HeadCohort]) -> Lines:
    series = []
    for cohort in cohorts:
        # The last block may be a single step, whose loss says little.
        drawn = [index for index, step in enumerate(cohort.steps) if step % BLOCK == 0]
        drawn = drawn or [len(cohort.steps) - 1]
        steps, ends = [], []
        for index in drawn:
            value, low, high = mean_interval(cohort.losses[index].log().tolist())
            steps.append(cohort.steps[index])
            ends.append((_power(value), _power(low), _power(high)))
        series.append(Series.of_intervals(cohort.title, steps, ends))
    return Lines(series=series, y_log=True, **WORDS.texts("losses", {"block": BLOCK}))


def _agreement_section(
    cohorts: Sequence[HeadCohort], comparisons: Sequence[CohortComparison]
) -> Table:
    remark, records = "", []
    for cohort, comparison in zip(cohorts, comparisons, strict=True):
        record = {
            "task": cohort.title,
            "Km, |r|": _mean(comparison.raw),
            "score table, r": _mean(comparison.table),
            "Km among learned, |r|": _mean(comparison.raw_among),
            "score table among learned, r": _mean(comparison.table_among),
            "attention distance, mean": _mean(comparison.attention),
            "largest": _mean(sorted(comparison.largest_attention)[-1:]),
            "output distance, mean": _mean(comparison.output),
        }
        records.append(record)
        # Do learned heads agree among themselves, but not with the design?
        if comparison.table_among and not remark:
            beside, among = fmean(comparison.table), fmean(comparison.table_among)
            if among >= 0.9 > 0.7 > beside:
                remark = (
                    f" In {cohort.title}, the score tables of learned heads agree with each other "
                    f"({among:.3f}) and not with the design's ({beside:.3f}): training finds "
                    "another solution, the same with every seed."
                )
    return Table.of_records(records=records, **WORDS.texts("agreement", {"remark": remark}))


def _mean(values: Sequence[float]) -> str:
    return f"{fmean(values):.3f}" if values else "n/a"


def _power(logarithm: float) -> float | None:
    return math.exp(logarithm) if math.isfinite(logarithm) else None
