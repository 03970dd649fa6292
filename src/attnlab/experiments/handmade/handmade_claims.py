"""The claims about the designs, about learned heads, and about the two compared."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import torch

from attnlab.configs import Fields
from attnlab.core.stats import share_interval
from attnlab.design import Design, Proof, check_record, prove
from attnlab.experiments.claims import Claim
from attnlab.experiments.handmade.cohorts import Cohort
from attnlab.experiments.handmade.comparison import Comparison, gauge_effect, largest_difference
from attnlab.experiments.handmade.config import WORDS, HandmadeConfig
from attnlab.experiments.handmade.programs import CompiledTask
from attnlab.experiments.words import Numbers
from attnlab.models.parameters import count_from_config, count_from_model

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


@dataclass(frozen=True)
class Proved:
    """A design with its proof in float64, the one in float32, and the one of a gain 1 % smaller."""

    design: Design
    proof: Proof
    single: Proof
    smaller: Proof


def prove_design(design: Design) -> Proved:
    """Prove a design, in float64 and float32, and with a gain 1 % smaller."""
    return Proved(
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

    wrong: the proof of the wrong design. record: the submission record. compiled: the tasks as
    programs.
    """

    config: HandmadeConfig
    seed: int
    proved: Mapping[str, Proved]
    wrong: Proof
    cohorts: Sequence[Cohort]
    comparisons: Sequence[Comparison]
    record: Fields
    compiled: Sequence[CompiledTask]


def evaluate_claims(result: HandmadeResult) -> list[Claim]:
    """Evaluate the claims about designs and learned heads."""
    largest = largest_difference(result.config.draws, result.seed)
    proofs = list(result.proved.values())
    smaller = [each.smaller for each in proofs]
    problems = check_record(json.loads(json.dumps(result.record)))
    numbers: Numbers = {
        "exact": _EXACT,
        "draws": result.config.draws,
        "largest": largest,
        "smaller": smaller,
        "gap": wrong_design(result.proved["identity"].design).gap,
        "wrong": result.wrong,
        "problems": problems,
        "num_values": len(result.record["values"]),
        "num_designs": len(result.record["designs"]),
    }
    refuted = {
        "no_smaller_gain": not any(proof.holds for proof in smaller),
        "wrong_design_refuted": not result.wrong.holds and result.wrong.counterexample is not None,
    }
    return [
        *WORDS.claims(numbers, {"same_function": largest <= _EXACT}),
        *map(_proved, proofs),
        *WORDS.claims(numbers, refuted),
        *map(_learned, result.cohorts),
        *_gauge(proofs, result.cohorts, result.seed),
        *_agreement(result.cohorts, result.comparisons),
        *_counted(proofs, result.cohorts),
        *WORDS.claims(numbers, {"record_checks": not problems}),
    ]


def evaluate_learned_claims(cohort: Cohort, comparison: Comparison, seed: int) -> list[Claim]:
    """Evaluate the claims about learned heads alone."""
    claims = [_learned(cohort), *_gauge([], [cohort], seed), *_counted([], [cohort])]
    if _is_comparable(cohort):
        claims += _agreement([cohort], [comparison])
    return claims


def _proved(each: Proved) -> Claim:
    proof = each.proof
    texts = WORDS.texts("claim.proved", {"proof": proof, "single": each.single})
    return Claim(f"proved_{proof.task}", **texts, passed=proof.holds and proof.is_sure)


def _learned(cohort: Cohort) -> Claim:
    least = _LEAST_SHARE.get((cohort.task.rule, cohort.has_learned_positions), 0.99)
    total, mean = len(cohort.heads), fmean(cohort.shares)
    numbers: Numbers = {
        "title": cohort.title,
        "num_inputs": cohort.task.num_inputs,
        "total": total,
        "mean": mean,
        "perfect": cohort.num_perfect,
        "success": share_interval(cohort.num_perfect, total),
        "least": least,
    }
    return Claim(cohort.name, **WORDS.texts("claim.learned", numbers), passed=mean >= least)


def _gauge(proved: Sequence[Proved], cohorts: Sequence[Cohort], seed: int) -> list[Claim]:
    effects = [gauge_effect(each.design.model(), each.design.task, seed) for each in proved]
    for cohort in cohorts:
        effects += [gauge_effect(head, cohort.task, seed) for head in cohort.finite[:1]]
    least_raw = min(each.raw for each in effects)
    is_same = all(each.weights <= _EXACT and each.outputs <= _EXACT for each in effects)
    numbers: Numbers = {"exact": _EXACT, "effects": effects}
    return WORDS.claims(numbers, {"only_the_product_counts": is_same and least_raw >= 0.1})


def _agreement(cohorts: Sequence[Cohort], comparisons: Sequence[Comparison]) -> list[Claim]:
    comparable, agree = {}, []
    for cohort, each in zip(cohorts, comparisons, strict=True):
        if _is_comparable(cohort) and each.table:
            comparable[cohort.title] = each
            table, raw = fmean(each.table), fmean(each.raw)
            agree.append(table >= _LEAST_CORRELATION and table > raw)
    numbers: Numbers = {"mean": fmean, "comparable": comparable, "least": _LEAST_CORRELATION}
    passed = {"agree_where_it_can_be_known": bool(agree) and all(agree)}
    return WORDS.claims(numbers, passed)


def _is_comparable(cohort: Cohort) -> bool:
    """Does training find the design's solution? With unique or learned positions it does not."""
    return cohort.task.rule != "unique" and not cohort.has_learned_positions


def _counted(proved: Sequence[Proved], cohorts: Sequence[Cohort]) -> list[Claim]:
    models = [*(each.design.model() for each in proved), *(cohort.heads[0] for cohort in cohorts)]
    held = list(map(count_from_model, models))
    counted = [count_from_config(model.config) for model in models]
    numbers = {"held": held, "counted": counted}
    return WORDS.claims(numbers, {"parameters_counted": held == counted})
