"""The report of `handmade`."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from attnlab.core.stats import mean_interval, share_interval
from attnlab.design import Design, Proof, prove
from attnlab.draw.sections import Bars, BarSeries, Lines, ReportContent, Series, Table, Text
from attnlab.experiments.handmade.cohorts import BLOCK, CLOSE, Cohort
from attnlab.experiments.handmade.comparison import Comparison, counting_way, usual_failures
from attnlab.experiments.handmade.config import NAME, HandmadeConfig
from attnlab.experiments.handmade.handmade_claims import Proved, wrong_design
from attnlab.experiments.handmade.panels import comparison_section, head_section, panels_section
from attnlab.experiments.sections import parameters_section, settings_section
from attnlab.models.single_head import SingleHead

_CURVE_POINTS = 45
_CURVE_END = 1.25  # times the needed gap


def make_content(
    config: HandmadeConfig,
    seed: int,
    model: SingleHead,
    proved: Mapping[str, Proved],
    wrong: Proof,
    cohorts: Sequence[Cohort],
    comparisons: Sequence[Comparison],
    record: Mapping[str, Any],
) -> ReportContent:
    """Make the report's content."""
    designs = {rule: each.design for rule, each in proved.items()}
    # The first cohort of each task.
    shown: dict[str, Cohort] = {cohort.task.rule: cohort for cohort in reversed(cohorts)}
    inputs = sum(each.proof.inputs for each in proved.values())
    num_proved = sum(each.proof.holds for each in proved.values())
    return ReportContent(
        title=NAME,
        subtitle=f"Weights of one head computed by hand for three tasks: {num_proved} of 3 proved "
        f"on every input; and the same head learned, {len(cohorts)} × {config.seeds} times.",
        facts=[
            ("seed", str(seed)),
            ("tolerance", f"{config.tolerance:g}"),
            ("inputs checked", f"{inputs:,}, all there are"),
            ("gaps", ", ".join(f"{rule} {design.gap:.2f}" for rule, design in designs.items())),
            ("learned heads", f"{config.seeds} seeds for each task"),
            (
                "training",
                f"{config.steps:,} steps of SGD at {config.learning_rate:g}, one sequence each",
            ),
        ],
        sections=[
            panels_section([(design, shown[rule]) for rule, design in designs.items()]),
            head_section(designs["copy_first"]),
            _proofs_section(proved),
            _derivation_section(designs, config),
            _gain_section(designs, config),
            _wrong_section(designs["identity"], wrong),
            _learned_section(cohorts),
            _losses_section(cohorts),
            _seeds_section(cohorts),
            comparison_section([(designs[cohort.task.rule], cohort) for cohort in cohorts]),
            _agreement_section(cohorts, comparisons),
            _record_section(proved, record),
            replace(
                parameters_section(model),
                caption="Of the copy_first head, the run's main model, part by part.",
            ),
            settings_section(config),
        ],
    )


def make_learned_content(
    config: HandmadeConfig, seed: int, design: Design, cohort: Cohort, comparison: Comparison
) -> ReportContent:
    """Make the content of a report on one learned head."""
    head = cohort.heads[0]
    return ReportContent(
        title=f"{NAME}: {cohort.title}, learned",
        subtitle=f"One head learns {cohort.title}, beside the one computed by hand: "
        f"{cohort.shares[0]:.2%} of all {cohort.task.num_inputs:,} inputs right.",
        facts=[
            ("seed", str(seed)),
            ("parameters", f"{sum(parameter.numel() for parameter in head.parameters()):,}"),
            (
                "training",
                f"{config.steps:,} steps of SGD at {config.learning_rate:g}, one sequence each",
            ),
        ],
        sections=[
            panels_section([(design, cohort)]),
            _losses_section([cohort]),
            comparison_section([(design, cohort)]),
            _agreement_section([cohort], [comparison]),
            parameters_section(head),
            settings_section(config),
        ],
    )


def _proofs_section(proved: Mapping[str, Proved]) -> Table:
    return Table.of_records(
        title="Proofs",
        caption="Every input was tried, so these are proofs, not samples. The margin is the "
        "tolerance less the error of the worst input; as long as it is larger than the bound on "
        "rounding, the verdict is the same on any machine. Right keys are those that hold the "
        "answer.",
        records=[
            {
                "task": proof.task,
                "arithmetic": proof.dtype,
                "inputs": proof.inputs,
                "failures": proof.failures,
                "worst error": f"{proof.worst_error:.4g}",
                "at": proof.worst_input,
                "margin": f"{proof.margin:.2g}",
                "rounding at most": f"{proof.rounding:.1g}",
                "right keys weigh at least": proof.least_right_weight,
                "least |output|": "" if proof.least_size is None else f"{proof.least_size:.4f}",
            }
            for each in proved.values()
            for proof in (each.proof, each.single)
        ],
    )


def _derivation_section(designs: Mapping[str, Design], config: HandmadeConfig) -> Text:
    identity, copy_first, unique = (designs[rule] for rule in ("identity", "copy_first", "unique"))
    half = config.tolerance / 2
    return Text(
        title="How large the gain must be",
        text="A design says which keys a query prefers; one number, the gain, says how strongly. "
        "After the division by √d_qk a right key's score is gain/√d_qk, the gap g, above "
        "a wrong one's, and weighs e^g times as much.\n\nidentity and copy_first. The worst "
        "input has one right key and n-1 wrong ones (such as ABBBBB), and the weight on the "
        "wrong ones is (n-1)/(n-1+e^g). That this be at most the tolerance "
        f"{config.tolerance:g} needs g ≥ "
        f"ln((n-1)(1-{config.tolerance:g})/{config.tolerance:g}): {identity.gap:.3f} for n = "
        f"{identity.task.longest}, so a gain of {identity.gain:.3f} with d_qk = "
        f"{len(identity.Km[0])}; {copy_first.gap:.3f} for n = {copy_first.task.longest}, so "
        f"{copy_first.gain:.3f} with d_qk = {len(copy_first.Km[0])}. (A thousandth is added, "
        "so that rounding tips no scale.)\n\nunique. One head does it: scores g · same "
        "letter - 2g · same place + g/2 · CLS, values -1 for letters and +1 for CLS. A "
        "repeated letter scores g with the same letter elsewhere, and g - 2g with itself. A "
        "single letter has no score above g/2, that of CLS. The output is an average "
        "of -1 and +1, off by twice the weight on wrong keys, which must be at most "
        f"{half:g}: g = {unique.gap:.3f}, a gain of {unique.gain:.3f} with d_qk = "
        f"{len(unique.Km[0])}.",
    )


def _gain_section(designs: Mapping[str, Design], config: HandmadeConfig) -> Lines:
    series = []
    for rule, design in designs.items():
        gaps = [
            design.gap * _CURVE_END * point / _CURVE_POINTS for point in range(1, _CURVE_POINTS + 1)
        ]
        proofs = [prove(design.with_gap(gap)) for gap in gaps]
        series.append(
            Series(
                name=f"{rule} (computed: {design.gap:.2f})",
                x=gaps,
                y=[100 * proof.failures / proof.inputs for proof in proofs],
            )
        )
    return Lines(
        figure="gain",
        title="Too small a gain fails, and the computed one is the first that does not",
        caption=f"The share of all inputs with an output further than {config.tolerance:g} from "
        "its target, for designs of every gap. Each curve falls in steps, as one kind of input "
        "after the other comes right, and ends at the computed gap.",
        x_label="gap between the scores of right and wrong keys",
        y_label="inputs that fail (%)",
        series=series,
    )


def _wrong_section(design: Design, wrong: Proof) -> Text:
    first = wrong.counterexample
    weak = wrong_design(design)
    verdict = "No input refutes it."
    if first is not None:
        verdict = (
            f"But {wrong.failures:,} of {wrong.inputs:,} inputs are further than "
            f"{wrong.tolerance:g} from their targets. The first: {first}. The worst is "
            f"{wrong.worst_input}, off by {wrong.worst_error:.4f}."
        )
    refusals = []
    for scale in (5.7, 6.0):
        gap = scale**2 / math.sqrt(len(design.Km[0]))
        count = usual_failures(design.with_gap(gap))
        refusals.append(
            f"with Km = Qm = {scale:g} · I (gap {gap:.2f}) it refuses {count:,} of {wrong.inputs:,}"
        )
    return Text(
        title="A design that is refuted",
        text=f"An identity design with a gap of {weak.gap:.3g} puts "
        f"{wrong.least_right_weight or 0.0:.2%} of the weight or more on right keys, which "
        f"looks fine. {verdict}\n\nThe gap that is enough depends on the comparison. NumPy's "
        "usual one (within 0.001 of a one, but within 0.00000001 of a zero) is far stricter on "
        f"zeros: {', '.join(refusals)}.",
    )


def _learned_section(cohorts: Sequence[Cohort]) -> Bars:
    measures = {
        "nearest target right": [cohort.shares for cohort in cohorts],
        f"within {CLOSE:g} of the target": [
            [1 - proof.failures / proof.inputs for proof in cohort.close] for cohort in cohorts
        ],
    }
    series = []
    for name, shares in measures.items():
        means = [mean_interval([100 * share for share in each]) for each in shares]
        ends = [(each.value, _within(each.low), _within(each.high)) for each in means]
        series.append(BarSeries.of_intervals(name, ends))
    return Bars(
        figure="learned",
        title="The same head, learned",
        caption="The share of all inputs whose every output is right, mean over seeds with its 95 "
        "% interval. The outputs of learned heads are nearest to the right target (for unique: "
        f"have the right sign) long before they are within {CLOSE:g} of it. A designed head is "
        "within its tolerance on all inputs.",
        y_label="inputs right (%)",
        groups=[cohort.title for cohort in cohorts],
        series=series,
    )


def _losses_section(cohorts: Sequence[Cohort]) -> Lines:
    series = []
    for cohort in cohorts:
        # The last block may be a single step, whose loss says little.
        drawn = [index for index, step in enumerate(cohort.steps) if step % BLOCK == 0]
        drawn = drawn or [len(cohort.steps) - 1]
        means = [mean_interval(cohort.losses[index].log().tolist()) for index in drawn]
        ends = [(_power(each.value), _power(each.low), _power(each.high)) for each in means]
        steps = [cohort.steps[index] for index in drawn]
        series.append(Series.of_intervals(cohort.title, steps, ends))
    return Lines(
        figure="losses",
        title="Loss while learning",
        caption=f"Mean squared error of {BLOCK} steps: geometric mean over seeds with its 95 % "
        "interval, as suits a logarithmic axis.",
        x_label="step",
        y_label="mean squared error",
        series=series,
        y_log=True,
    )


def _seeds_section(cohorts: Sequence[Cohort]) -> Table:
    records = []
    for cohort in cohorts:
        total = len(cohort.heads)
        success = share_interval(cohort.num_perfect, total)
        close = [1 - proof.failures / proof.inputs for proof in cohort.close]
        records.append(
            {
                "task": cohort.title,
                "seeds with every input right": f"{cohort.num_perfect} of {total}",
                "95 % interval": f"{success.low:.0%} to {success.high:.0%}",
                "mean share": f"{math.fsum(cohort.shares) / total:.2%}",
                "least share": f"{min(cohort.shares):.2%}",
                f"mean share within {CLOSE:g}": f"{math.fsum(close) / total:.2%}",
            }
        )
    return Table.of_records(
        title="Seeds",
        caption="Each learned head was evaluated on every input, like the designs. One-hot "
        "positions are those of the design; learned ones start as normal random numbers and are "
        "trained with the matrices.",
        records=records,
    )


def _agreement_section(cohorts: Sequence[Cohort], comparisons: Sequence[Comparison]) -> Table:
    def mean(values: Sequence[float]) -> str:
        return f"{math.fsum(values) / len(values):.3f}" if values else "n/a"

    records = [
        {
            "task": cohort.title,
            "Km, |r|": mean([abs(value) for value in each.raw]),
            "score table, r": mean(each.table),
            "Km among learned, |r|": mean([abs(value) for value in each.raw_among]),
            "score table among learned, r": mean(each.table_among),
            "attention distance, mean": mean(each.attention),
            "largest": mean([max(each.largest_attention)] if each.largest_attention else []),
            "output distance, mean": mean(each.output),
        }
        for cohort, each in zip(cohorts, comparisons, strict=True)
    ]
    return Table.of_records(
        title="By hand and learned, in numbers",
        caption=(
            "Correlations of the entries of Km (absolute, |r|) and of the score tables, between "
            "the design and each learned head, and between learned heads; then the distances of "
            "the attention weights (total variation: 0 the same, 1 no common key) and of the "
            "outputs, over all inputs. Means over heads." + _other_way(cohorts, comparisons)
        ),
        records=records,
    )


def _other_way(cohorts: Sequence[Cohort], comparisons: Sequence[Comparison]) -> str:
    """Report a task whose learned heads agree among themselves, but not with the design."""
    for cohort, each in zip(cohorts, comparisons, strict=True):
        if not each.table_among:
            continue
        beside = math.fsum(each.table) / len(each.table)
        among = math.fsum(each.table_among) / len(each.table_among)
        if among >= 0.9 > 0.7 > beside:
            return (
                f" In {cohort.title}, the score tables of learned heads agree with each other "
                f"({among:.3f}) and not with the design's ({beside:.3f}): training finds another "
                f"solution, the same with every seed.{_counting(cohort)}"
            )
    return ""


def _counting(cohort: Cohort) -> str:
    """Report that learned heads solve unique by counting, if they do: CLS outvotes one letter."""
    if cohort.task.rule != "unique":
        return ""
    way = counting_way(cohort)
    if not (way.itself > way.others and way.cls_value > 0 > way.letter_value):
        return ""
    return (
        f" They count: a letter attends to itself too (scores {way.itself:.1f} for itself, "
        f"{way.likes:.1f} for the same letter elsewhere, {way.cls:.1f} for CLS, {way.others:.1f} "
        f"for others, means over heads), and CLS, with a value of {way.cls_value:+.1f} against "
        f"{way.letter_value:+.1f} of a letter, outvotes one letter but not two."
    )


def _record_section(proved: Mapping[str, Proved], record: Mapping[str, Any]) -> Table:
    rows = [
        [each.proof.task, f"{each.design.gain:.6f}", f"{each.design.gap:.4f}", each.proof.digest]
        for each in proved.values()
    ]
    return Table(
        title="Submission record",
        caption=f"submission.json, of {record['time']}, holds these designs with their shapes, "
        f"matrices and proofs, the values of the class {record['class']} for "
        f"{len(record['values'])} seeded cases, and the source of its two methods. The "
        "SHA-256 is over the tolerance, the arithmetic, the matrices, every input and its "
        "target, so that the same check gives the same digest.",
        columns=["task", "gain", "gap", "sha256"],
        rows=rows,
    )


def _power(logarithm: float) -> float | None:
    return math.exp(logarithm) if math.isfinite(logarithm) else None


def _within(share: float) -> float | None:
    return min(100.0, max(0.0, share)) if math.isfinite(share) else None
