"""What a run of `handmade` shows: the report's sections."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from attnlab.design import Design, Proof, prove
from attnlab.experiments.handmade.comparing import Comparison, counting_way, usual_failures
from attnlab.experiments.handmade.config import NAME, HandmadeConfig
from attnlab.experiments.handmade.judging import Proved, wrong_design
from attnlab.experiments.handmade.learning import BLOCK, CLOSE, Cohort
from attnlab.experiments.handmade.panels import comparison_section, head_section, panels_section
from attnlab.experiments.intervals import mean_interval, share_interval
from attnlab.experiments.sections import parameters_section, settings_section
from attnlab.models.single_head import SingleHead

__all__ = ["make_document", "make_learned_document"]

_CURVE_POINTS = 45
_CURVE_END = 1.25  # times the needed gap


def make_document(
    config: HandmadeConfig,
    seed: int,
    model: SingleHead,
    proved: Mapping[str, Proved],
    wrong: Proof,
    cohorts: Sequence[Cohort],
    comparisons: Sequence[Comparison],
    record: Mapping[str, Any],
) -> dict[str, Any]:
    """Lay out the report."""
    designs = {rule: each.design for rule, each in proved.items()}
    shown: dict[str, Cohort] = {cohort.task.rule: cohort for cohort in reversed(cohorts)}  # the first of each task
    inputs = sum(each.proof.inputs for each in proved.values())
    num_proved = sum(each.proof.holds for each in proved.values())
    return {
        "title": NAME,
        "subtitle": (
            f"Weights of one head computed by hand for three tasks: {num_proved} of 3 proved on every input; and the "
            f"same head learned, {len(cohorts)} × {config.seeds} times."
        ),
        "facts": [
            ["seed", str(seed)],
            ["tolerance", f"{config.tolerance:g}"],
            ["inputs checked", f"{inputs:,}, all there are"],
            ["gaps", ", ".join(f"{rule} {design.gap:.2f}" for rule, design in designs.items())],
            ["learned heads", f"{config.seeds} seeds for each task"],
            ["training", f"{config.steps:,} steps of SGD at {config.learning_rate:g}, one sequence each"],
        ],
        "sections": [
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
            parameters_section(model) | {"caption": "Of the copy_first head, the run's main model, part by part."},
            settings_section(config),
        ],
    }


def make_learned_document(
    config: HandmadeConfig, seed: int, design: Design, cohort: Cohort, comparison: Comparison
) -> dict[str, Any]:
    """Lay out the report of learned heads by themselves."""
    head = cohort.heads[0]
    return {
        "title": f"{NAME}: {cohort.title}, learned",
        "subtitle": (
            f"One head learns {cohort.title}, beside the one computed by hand: {cohort.shares[0]:.2%} of all "
            f"{cohort.task.num_inputs:,} inputs right."
        ),
        "facts": [
            ["seed", str(seed)],
            ["parameters", f"{sum(parameter.numel() for parameter in head.parameters()):,}"],
            ["training", f"{config.steps:,} steps of SGD at {config.learning_rate:g}, one sequence each"],
        ],
        "sections": [
            panels_section([(design, cohort)]),
            _losses_section([cohort]),
            comparison_section([(design, cohort)]),
            _agreement_section([cohort], [comparison]),
            parameters_section(head),
            settings_section(config),
        ],
    }


def _proofs_section(proved: Mapping[str, Proved]) -> dict[str, Any]:
    return {
        "kind": "table",
        "title": "Proofs",
        "caption": (
            "Every input was tried, so these are proofs, not samples. The margin is what the worst input leaves of the "
            "tolerance; as long as it is larger than the bound on rounding, the verdict is the same on any machine. "
            "Right keys are those where the answer stands."
        ),
        "columns": [
            "task", "arithmetic", "inputs", "failures", "worst error", "at", "margin", "rounding at most",
            "right keys weigh at least", "least |output|",
        ],
        "rows": [
            [
                proof.task, proof.dtype, proof.inputs, proof.failures, f"{proof.worst_error:.4g}", proof.worst_input,
                f"{proof.margin:.2g}", f"{proof.rounding:.1g}", proof.least_right_weight,
                "" if proof.least_size is None else f"{proof.least_size:.4f}",
            ]
            for each in proved.values()
            for proof in (each.proof, each.single)
        ],
    }  # fmt: skip


def _derivation_section(designs: Mapping[str, Design], config: HandmadeConfig) -> dict[str, Any]:
    identity, copy_first, unique = (designs[rule] for rule in ("identity", "copy_first", "unique"))
    half = config.tolerance / 2
    return {
        "kind": "text",
        "title": "How large the gain must be",
        "text": (
            "A design says which keys a query prefers; one number, the gain, says how strongly. After the division by "
            "√d_qk a right key's score stands gain/√d_qk, the gap g, above a wrong one's, and weighs e^g times as "
            "much.\n\n"
            f"identity and copy_first. The worst input has one right key and n-1 wrong ones (such as ABBBBB), and the "
            f"weight on the wrong ones is (n-1)/(n-1+e^g). That this be at most the tolerance {config.tolerance:g} "
            f"needs g ≥ ln((n-1)(1-{config.tolerance:g})/{config.tolerance:g}): "
            f"{identity.gap:.3f} for n = {identity.task.longest}, so a gain of {identity.gain:.3f} with d_qk = "
            f"{len(identity.Km[0])}; {copy_first.gap:.3f} for n = {copy_first.task.longest}, so {copy_first.gain:.3f} "
            f"with d_qk = {len(copy_first.Km[0])}. (A thousandth is added, so that rounding tips no scale.)\n\n"
            "unique. One head does it: scores g · same letter - 2g · same place + g/2 · CLS, values -1 for letters and "
            "+1 for CLS. A repeated letter finds its likes at g; itself, at g - 2g, is out of the way. A letter that "
            "stands alone finds nothing above CLS at g/2. The output is an average of -1 and +1, off by twice the "
            f"weight on wrong keys, which must be at most {half:g}: g = {unique.gap:.3f}, a gain of {unique.gain:.3f} "
            f"with d_qk = {len(unique.Km[0])}."
        ),
    }


def _gain_section(designs: Mapping[str, Design], config: HandmadeConfig) -> dict[str, Any]:
    series = []
    for rule, design in designs.items():
        gaps = [design.gap * _CURVE_END * point / _CURVE_POINTS for point in range(1, _CURVE_POINTS + 1)]
        proofs = [prove(design.with_gap(gap)) for gap in gaps]
        series.append(
            {
                "name": f"{rule} (computed: {design.gap:.2f})",
                "x": gaps,
                "y": [100 * proof.failures / proof.inputs for proof in proofs],
            }
        )
    return {
        "kind": "lines",
        "figure": "gain",
        "title": "Too small a gain fails, and the computed one is the first that does not",
        "caption": (
            f"The share of all inputs with an output further than {config.tolerance:g} from its target, for designs of "
            "every gap. Each curve falls in steps, as one kind of input after the other comes right, and ends at the "
            "computed gap."
        ),
        "x_label": "gap between the scores of right and wrong keys",
        "y_label": "inputs that fail (%)",
        "series": series,
    }


def _wrong_section(design: Design, wrong: Proof) -> dict[str, Any]:
    first = wrong.counterexample
    weak = wrong_design(design)
    asked = {scale: usual_failures(design.with_gap(scale**2 / math.sqrt(len(design.Km[0])))) for scale in (5.7, 6.0)}
    return {
        "kind": "text",
        "title": "A design that is refuted",
        "text": (
            f"An identity design with a gap of {weak.gap:.3g} puts {wrong.least_right_weight or 0.0:.2%} of the weight "
            "or more on right keys, which looks fine. "
            + (
                f"But {wrong.failures:,} of {wrong.inputs:,} inputs are further than {wrong.tolerance:g} from their "
                f"targets. The first: {first}. The worst is {wrong.worst_input}, off by {wrong.worst_error:.4f}."
                if first is not None
                else "No input refutes it."
            )
            + "\n\nHow much is enough depends on what is asked. NumPy's usual comparison (within 0.001 of a one, but "
            "within 0.00000001 of a zero) is far stricter on zeros: "
            + ", ".join(
                f"with Km = Qm = {scale:g} · I (gap {scale**2 / math.sqrt(len(design.Km[0])):.2f}) it refuses "
                f"{count:,} of {wrong.inputs:,}"
                for scale, count in asked.items()
            )
            + "."
        ),
    }


def _learned_section(cohorts: Sequence[Cohort]) -> dict[str, Any]:
    measures = {
        "nearest target right": [cohort.shares for cohort in cohorts],
        f"within {CLOSE:g} of the target": [
            [1 - proof.failures / proof.inputs for proof in cohort.close] for cohort in cohorts
        ],
    }
    series = []
    for name, shares in measures.items():
        intervals = [mean_interval([100 * share for share in each]) for each in shares]
        series.append(
            {
                "name": name,
                "values": [each.value for each in intervals],
                "low": [_within(each.low) for each in intervals],
                "high": [_within(each.high) for each in intervals],
            }
        )
    return {
        "kind": "bars",
        "figure": "learned",
        "title": "The same head, learned",
        "caption": (
            "The share of all inputs whose every output is right, mean over seeds with its 95 % interval. Learned "
            "heads mean the right thing long before they say it exactly: the nearest target is the right one (for "
            f"unique: the sign is), but within {CLOSE:g} of it they are less often. A designed head is within its "
            "tolerance on all."
        ),
        "y_label": "inputs right (%)",
        "groups": [cohort.title for cohort in cohorts],
        "series": series,
    }


def _losses_section(cohorts: Sequence[Cohort]) -> dict[str, Any]:
    series = []
    for cohort in cohorts:
        # The last block may be a single step, whose loss says little.
        drawn = [index for index, step in enumerate(cohort.steps) if step % BLOCK == 0] or [len(cohort.steps) - 1]
        intervals = [mean_interval(cohort.losses[index].log().tolist()) for index in drawn]
        series.append(
            {
                "name": cohort.title,
                "x": [cohort.steps[index] for index in drawn],
                "y": [_power(each.value) for each in intervals],
                "low": [_power(each.low) for each in intervals],
                "high": [_power(each.high) for each in intervals],
            }
        )
    return {
        "kind": "lines",
        "figure": "losses",
        "title": "Loss while learning",
        "caption": (
            f"Mean squared error of {BLOCK} steps: geometric mean over seeds with its 95 % interval, as suits a "
            "logarithmic axis."
        ),
        "x_label": "step",
        "y_label": "mean squared error",
        "series": series,
        "y_log": True,
    }


def _seeds_section(cohorts: Sequence[Cohort]) -> dict[str, Any]:
    rows: list[list[Any]] = []
    for cohort in cohorts:
        total = len(cohort.heads)
        success = share_interval(cohort.num_perfect, total)
        rows.append(
            [
                cohort.title,
                f"{cohort.num_perfect} of {total}",
                f"{success.low:.0%} to {success.high:.0%}",
                f"{math.fsum(cohort.shares) / total:.2%}",
                f"{min(cohort.shares):.2%}",
                f"{math.fsum(1 - proof.failures / proof.inputs for proof in cohort.close) / total:.2%}",
            ]
        )
    return {
        "kind": "table",
        "title": "Seeds",
        "caption": (
            "Each learned head was put to every input, as the designs were. One-hot positions are those of the design; "
            "learned ones start as normal numbers and are trained with the matrices."
        ),
        "columns": [
            "task", "seeds with every input right", "95 % interval", "mean share", "least share",
            f"mean share within {CLOSE:g}",
        ],
        "rows": rows,
    }  # fmt: skip


def _agreement_section(cohorts: Sequence[Cohort], comparisons: Sequence[Comparison]) -> dict[str, Any]:
    def mean(values: Sequence[float]) -> str:
        return f"{math.fsum(values) / len(values):.3f}" if values else "n/a"

    rows = [
        [
            cohort.title,
            mean([abs(value) for value in each.raw]),
            mean(each.table),
            mean([abs(value) for value in each.raw_among]),
            mean(each.table_among),
            mean(each.attention),
            f"{max(each.largest_attention):.3f}" if each.largest_attention else "n/a",
            mean(each.output),
        ]
        for cohort, each in zip(cohorts, comparisons, strict=True)
    ]
    return {
        "kind": "table",
        "title": "By hand and learned, in numbers",
        "caption": (
            "Correlations of the entries of Km (their size alone, |r|) and of the score tables, between the design and "
            "each learned head, and between learned heads; then how far the attention weights are apart (total "
            "variation: 0 the same, 1 on other keys altogether) and the outputs, over all inputs. Means over heads."
            + _other_way(cohorts, comparisons)
        ),
        "columns": [
            "task", "Km, |r|", "score table, r", "Km among learned, |r|", "score table among learned, r",
            "attention apart, mean", "largest", "outputs apart, mean",
        ],
        "rows": rows,
    }  # fmt: skip


def _other_way(cohorts: Sequence[Cohort], comparisons: Sequence[Comparison]) -> str:
    """Say so where learned heads agree among themselves, but not with the design."""
    for cohort, each in zip(cohorts, comparisons, strict=True):
        if each.table_among:
            beside, among = math.fsum(each.table) / len(each.table), math.fsum(each.table_among) / len(each.table_among)
            if among >= 0.9 > 0.7 > beside:
                said = (
                    f" In {cohort.title}, the score tables of learned heads agree with each other ({among:.3f}) and "
                    f"not with the design's ({beside:.3f}): learning found a way of its own, again and again the same."
                )
                return said + (_counting(cohort) if cohort.task.rule == "unique" else "")
    return ""


def _counting(cohort: Cohort) -> str:
    """Say how the learned heads solve unique, if it is by counting: a letter sees itself, and CLS outvotes one."""
    way = counting_way(cohort)
    if not (way.itself > way.others and way.cls_value > 0 > way.letter_value):
        return ""
    return (
        f" They count: a letter sees itself too (scores {way.itself:.1f} for itself, {way.likes:.1f} for its likes, "
        f"{way.cls:.1f} for CLS, {way.others:.1f} for others, means over heads), and CLS, with a value of "
        f"{way.cls_value:+.1f} against {way.letter_value:+.1f} of a letter, outvotes one letter but not two."
    )


def _record_section(proved: Mapping[str, Proved], record: Mapping[str, Any]) -> dict[str, Any]:
    rows = [
        [each.proof.task, f"{each.design.gain:.6f}", f"{each.design.gap:.4f}", each.proof.digest]
        for each in proved.values()
    ]
    return {
        "kind": "table",
        "title": "Submission record",
        "caption": (
            f"submission.json, of {record['time']}, holds these designs with their shapes, matrices and proofs, the "
            f"values of the class {record['class']} for {len(record['values'])} seeded cases, and the source of its "
            "two methods. The SHA-256 is over the tolerance, the arithmetic, the matrices, every input and its target: "
            "who checks the same gets the same."
        ),
        "columns": ["task", "gain", "gap", "sha256"],
        "rows": rows,
    }


def _power(logarithm: float) -> float | None:
    return math.exp(logarithm) if math.isfinite(logarithm) else None


def _within(share: float) -> float | None:
    return min(100.0, max(0.0, share)) if math.isfinite(share) else None
