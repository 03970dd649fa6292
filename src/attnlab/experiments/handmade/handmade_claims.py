"""The claims about the designs, about learned heads, and about the two compared."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from attnlab.core.stats import mean_interval, share_interval
from attnlab.design import Design, Proof, check_record, prove
from attnlab.experiments.claims import Claim
from attnlab.experiments.handmade.cohorts import Cohort
from attnlab.experiments.handmade.comparison import Comparison, gauge_effect, largest_difference
from attnlab.experiments.handmade.config import HandmadeConfig
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


def evaluate_claims(
    config: HandmadeConfig,
    proved: Mapping[str, Proved],
    wrong: Proof,
    cohorts: Sequence[Cohort],
    comparisons: Sequence[Comparison],
    record: Mapping[str, Any],
    seed: int,
) -> list[Claim]:
    """Evaluate the claims about designs and learned heads."""
    return [
        _same_function(config.draws, seed),
        *(_proved(each) for each in proved.values()),
        _tight(proved.values()),
        _refuted(proved["identity"].design, wrong),
        *(_learned(cohort) for cohort in cohorts),
        _gauge(proved, cohorts, seed),
        _agreement(cohorts, comparisons),
        _counted(proved.values(), cohorts),
        _record(record),
    ]


def evaluate_learned_claims(cohort: Cohort, comparison: Comparison, seed: int) -> list[Claim]:
    """Evaluate the claims about learned heads alone."""
    claims = [_learned(cohort), _gauge({}, [cohort], seed), _counted([], [cohort])]
    if _is_comparable(cohort):
        claims.append(_agreement([cohort], [comparison]))
    return claims


def _same_function(draws: int, seed: int) -> Claim:
    largest = largest_difference(draws, seed)
    return Claim(
        "same_function",
        "the readable NumPy head and the PyTorch one compute the same outputs, float64: "
        f"{draws:,} random heads, half of them with positions, at every length from 1 to the "
        "longest",
        f"at most {largest:.1e} apart",
        f"{_EXACT:g}",
        largest <= _EXACT,
    )


def _proved(each: Proved) -> Claim:
    proof = each.proof
    single = "holds" if each.single.holds else f"fails on {each.single.failures:,}"
    return Claim(
        f"proved_{proof.task}",
        f"the {proof.task} design puts every output within {proof.tolerance:g} of its target on "
        "every input there is, by more than rounding can change",
        f"{proof.inputs - proof.failures:,}/{proof.inputs:,}, margin {proof.margin:.1e}, rounding "
        f"at most {proof.rounding:.0e} (float32: {single}), sha256 {proof.digest[:12]}…",
        f"{proof.inputs:,}/{proof.inputs:,}",
        proof.holds and proof.is_sure,
    )


def _tight(proved: Iterable[Proved]) -> Claim:
    smaller = [each.smaller for each in proved]
    return Claim(
        "no_smaller_gain",
        "the gains are no larger than needed: with a gain 1 % smaller each design fails for "
        "some input",
        ", ".join(f"{proof.task} {proof.failures:,} of {proof.inputs:,} fail" for proof in smaller),
        "at least 1 each",
        all(not proof.holds for proof in smaller),
    )


def _refuted(design: Design, wrong: Proof) -> Claim:
    first = wrong.counterexample
    return Claim(
        "wrong_design_refuted",
        f"an identity design whose gap is only {wrong_design(design).gap:.3g} is refuted, "
        "with a first counter-example",
        "nothing found"
        if first is None
        else f"{wrong.failures:,} of {wrong.inputs:,} fail; first {first}",
        "at least 1 fails",
        not wrong.holds and first is not None,
    )


def _learned(cohort: Cohort) -> Claim:
    least = _LEAST_SHARE.get((cohort.task.rule, cohort.has_learned_positions), 0.99)
    total = len(cohort.heads)
    mean = math.fsum(cohort.shares) / total
    success = share_interval(cohort.num_perfect, total)
    return Claim(
        cohort.name,
        f"the same head learns {cohort.title}: the share of all {cohort.task.num_inputs:,} inputs "
        f"whose every output is nearest to the right target, mean of {total} seeds",
        f"{mean:.2%}; {cohort.num_perfect} of {total} seeds get every input right "
        f"(95 %: {success.low:.0%} to {success.high:.0%})",
        f"at least {least:.0%}",
        mean >= least,
    )


def _gauge(proved: Mapping[str, Proved], cohorts: Sequence[Cohort], seed: int) -> Claim:
    models = [(each.design.model(), each.design.task) for each in proved.values()]
    models += [(head, cohort.task) for cohort in cohorts for head in cohort.finite[:1]]
    effects = [gauge_effect(model, task, seed) for model, task in models]
    least_raw = min(effect.raw for effect in effects)
    is_same = all(effect.weights <= _EXACT and effect.outputs <= _EXACT for effect in effects)
    return Claim(
        "only_the_product_counts",
        f"Km R and Qm R⁻ᵀ with a random R are other matrices of the same head: {len(effects)} "
        "heads, all inputs",
        f"Km changed by {least_raw:.0%} or more, weights by at most "
        f"{max(e.weights for e in effects):.1e}, outputs by at most "
        f"{max(e.outputs for e in effects):.1e}",
        f"Km by at least 10%, the others by at most {_EXACT:g}",
        is_same and least_raw >= 0.1,
    )


def _agreement(cohorts: Sequence[Cohort], comparisons: Sequence[Comparison]) -> Claim:
    found = [
        (
            cohort.title,
            f"{sum(value >= _LEAST_CORRELATION for value in each.table)} of {len(each.table)} "
            "heads reach the bound",
            mean_interval(each.table).value,
            mean_interval([abs(value) for value in each.raw]).value,
        )
        for cohort, each in zip(cohorts, comparisons, strict=True)
        if _is_comparable(cohort) and each.table
    ]
    return Claim(
        "agree_where_it_can_be_known",
        "the score tables of designed and learned heads correlate, in the mean over heads, "
        "although the entries of Km hardly do",
        "; ".join(
            f"{title} {table:.3f}, {heads} (Km {raw:.2f})" for title, heads, table, raw in found
        )
        or "nothing to compare",
        f"at least {_LEAST_CORRELATION}, and above that of Km",
        bool(found)
        and all(table >= _LEAST_CORRELATION and table > raw for _, _, table, raw in found),
    )


def _is_comparable(cohort: Cohort) -> bool:
    """Does training find the design's solution? With unique or learned positions it does not."""
    return cohort.task.rule != "unique" and not cohort.has_learned_positions


def _counted(proved: Iterable[Proved], cohorts: Sequence[Cohort]) -> Claim:
    models = [*(each.design.model() for each in proved), *(cohort.heads[0] for cohort in cohorts)]
    by_model = [count_from_model(model) for model in models]
    by_config = [count_from_config(model.config) for model in models]
    return Claim(
        "parameters_counted",
        f"the parameters of each part of {len(models)} heads, counted by arithmetic, are "
        "those the models hold",
        ", ".join(str(sum(counts.values())) for counts in by_model),
        ", ".join(str(sum(counts.values())) for counts in by_config),
        by_model == by_config,
    )


def _record(record: Mapping[str, Any]) -> Claim:
    problems = check_record(json.loads(json.dumps(record)))
    return Claim(
        "record_checks",
        "the submission record, read back from JSON, is confirmed from nothing but itself: its "
        "values by the NumPy reference, its designs by new proofs",
        problems[0]
        if problems
        else f"{len(record['values'])} values and {len(record['designs'])} proofs confirmed",
        "no difference",
        not problems,
    )
