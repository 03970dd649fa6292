"""The claims about the designs, about learned heads, and about the two compared."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import torch

from attnlab.core.stats import share_interval
from attnlab.design import Design, Proof, prove
from attnlab.experiments.claims import Claim
from attnlab.experiments.handmade.cohorts import HeadCohort
from attnlab.experiments.handmade.comparison import CohortComparison, gauge_effect
from attnlab.experiments.handmade.config import HandmadeConfig
from attnlab.experiments.handmade.programs import CompiledTask

WRONG_GAP = 5.7
"""The gap of the wrong design, which looks large enough."""

_EXACT = 1e-12
_LEAST_SHARE = {
    ("identity", False): 0.99,
    ("copy_first", False): 0.99,
    ("unique", False): 0.99,
    ("copy_first", True): 0.95,
    ("unique", True): 0.85,
}
_LEAST_CORRELATION = 0.9
_LEAST_RAW_CHANGE = 0.1


@dataclass(frozen=True)
class ProvedDesign:
    """A design with its proof in float64, the one in float32, and the one of a gain 1 % smaller."""

    design: Design
    proof: Proof
    single: Proof
    smaller: Proof


def prove_design(design: Design) -> ProvedDesign:
    """Prove a design, in float64 and float32, and with a gain 1 % smaller."""
    return ProvedDesign(
        design,
        prove(design),
        prove(design, dtype=torch.float32),
        prove(design.with_gain(0.99 * design.gain)),
    )


def wrong_design(design: Design) -> Design:
    """Return the design with too small a gap: 5.7, or a tenth less than needed if 5.7 is enough."""
    return design.with_gap(min(WRONG_GAP, 0.9 * design.gap))


@dataclass(frozen=True)
class HandmadeResult:
    """All that a run has designed, proved, learned and compared.

    wrong: the proof of the wrong design. compiled: the tasks as programs.
    """

    config: HandmadeConfig
    seed: int
    proved: Mapping[str, ProvedDesign]
    wrong: Proof
    cohorts: Sequence[HeadCohort]
    comparisons: Sequence[CohortComparison]
    compiled: Sequence[CompiledTask]


def evaluate_claims(result: HandmadeResult) -> list[Claim]:
    """Evaluate the claims about designs and learned heads."""
    proofs = list(result.proved.values())
    wrong_gap = wrong_design(result.proved["identity"].design).gap
    return [
        *map(_proved, proofs),
        _no_smaller_gain([proved.smaller for proved in proofs]),
        _wrong_design_refuted(result.wrong, wrong_gap),
        *map(_learned, result.cohorts),
        _gauge(proofs, result.cohorts, result.seed),
        _agreement(result.cohorts, result.comparisons),
    ]


def _proved(proved: ProvedDesign) -> Claim:
    proof, single = proved.proof, proved.single
    in_float32 = "holds" if single.holds else f"fails on {single.failures:,}"
    return Claim(
        f"proved_{proof.task}",
        f"the {proof.task} design puts every output within {proof.tolerance:g} of its target on "
        "every input there is, by more than rounding can change",
        f"{proof.inputs - proof.failures:,}/{proof.inputs:,}, margin {proof.margin:.1e}, rounding "
        f"at most {proof.rounding:.0e} (float32: {in_float32}), sha256 {proof.digest[:12]}…",
        f"{proof.inputs:,}/{proof.inputs:,}",
        proof.holds and proof.is_sure,
    )


def _no_smaller_gain(smaller: Sequence[Proof]) -> Claim:
    failures = [f"{proof.task} {proof.failures:,} of {proof.inputs:,} fail" for proof in smaller]
    return Claim(
        "no_smaller_gain",
        "the gains are no larger than needed: with a gain 1 % smaller each design fails for some "
        "input",
        ", ".join(failures),
        "at least 1 each",
        not any(proof.holds for proof in smaller),
    )


def _wrong_design_refuted(wrong: Proof, gap: float) -> Claim:
    measured = "nothing found"
    if wrong.counterexample is not None:
        measured = f"{wrong.failures:,} of {wrong.inputs:,} fail; first {wrong.counterexample}"
    return Claim(
        "wrong_design_refuted",
        f"an identity design whose gap is only {gap:.3g} is refuted, with a first counter-example",
        measured,
        "at least 1 fails",
        not wrong.holds and wrong.counterexample is not None,
    )


def _learned(cohort: HeadCohort) -> Claim:
    least = _LEAST_SHARE.get((cohort.task.rule, cohort.has_learned_positions), 0.99)
    total, mean = len(cohort.heads), fmean(cohort.shares)
    success = share_interval(cohort.num_perfect, total)
    return Claim(
        cohort.name,
        f"the same head learns {cohort.title}: the share of all {cohort.task.num_inputs:,} inputs "
        f"whose every output is nearest to the right target, mean of {total:,} seeds",
        f"{mean:.2%}; {cohort.num_perfect:,} of {total:,} seeds get every input right (95 %: "
        f"{success.low:.0%} to {success.high:.0%})",
        f"at least {least:.0%}",
        mean >= least,
    )


def _gauge(proved: Sequence[ProvedDesign], cohorts: Sequence[HeadCohort], seed: int) -> Claim:
    effects = [
        gauge_effect(design_proof.design.model(), design_proof.design.task, seed)
        for design_proof in proved
    ]
    for cohort in cohorts:
        effects += [gauge_effect(head, cohort.task, seed) for head in cohort.finite[:1]]
    least_raw = min(effect.raw for effect in effects)
    weights = max(effect.weights for effect in effects)
    outputs = max(effect.outputs for effect in effects)
    return Claim(
        "only_the_product_counts",
        f"Km R and Qm R⁻ᵀ with a random R are other matrices of the same head: {len(effects)} "
        "heads, all inputs",
        f"Km changed by {least_raw:.0%} or more, weights by at most {weights:.1e}, outputs by at "
        f"most {outputs:.1e}",
        f"Km by at least {_LEAST_RAW_CHANGE:.0%}, the others by at most {_EXACT:g}",
        weights <= _EXACT and outputs <= _EXACT and least_raw >= _LEAST_RAW_CHANGE,
    )


def _agreement(cohorts: Sequence[HeadCohort], comparisons: Sequence[CohortComparison]) -> Claim:
    measured, agree = [], []
    for cohort, comparison in zip(cohorts, comparisons, strict=True):
        if not _is_comparable(cohort) or not comparison.table:
            continue
        table, raw = fmean(comparison.table), fmean(comparison.raw)
        reaching = sum(score >= _LEAST_CORRELATION for score in comparison.table)
        agree.append(table >= _LEAST_CORRELATION and table > raw)
        measured.append(
            f"{cohort.title} {table:.3f}, {reaching} of {len(comparison.table)} heads reach the "
            f"bound (Km {raw:.2f})"
        )
    return Claim(
        "agree_where_it_can_be_known",
        "the score tables of designed and learned heads correlate, in the mean over heads, "
        "although the entries of Km hardly do",
        "; ".join(measured) or "nothing to compare",
        f"at least {_LEAST_CORRELATION}, and above that of Km",
        bool(agree) and all(agree),
    )


def _is_comparable(cohort: HeadCohort) -> bool:
    """Does training find the design's solution? With unique or learned positions it does not."""
    return cohort.task.rule != "unique" and not cohort.has_learned_positions
