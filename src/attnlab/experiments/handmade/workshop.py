"""`handmade` from start to finish: design, prove, refute, learn, compare, say what holds."""

import json
import math
from collections.abc import Sequence

import torch

from attnlab.design import Design, design_for, prove, submission_record
from attnlab.experiments.experiment import Findings, Run
from attnlab.experiments.handmade.comparing import compare
from attnlab.experiments.handmade.config import RULES, HandmadeConfig
from attnlab.experiments.handmade.document import make_document
from attnlab.experiments.handmade.judging import judge_claims, prove_design, wrong_design
from attnlab.experiments.handmade.learning import Cohort, train_cohort
from attnlab.models.single_head import SingleHead
from attnlab.train.loop import using_threads

__all__ = ["run"]


def run(config: HandmadeConfig, context: Run) -> Findings:
    """Design, prove, refute, learn, compare, and say what holds."""
    designs = {rule: design_for(rule, config.tolerance) for rule in RULES}
    model = designs["copy_first"].model()
    context.start(model)
    with using_threads(1):  # the heads are tiny
        context.stage("proofs")
        proved = {rule: prove_design(design) for rule, design in designs.items()}
        wrong = prove(wrong_design(designs["identity"]))
        cohorts = [
            _learned(design, config, context, is_learned)
            for design in designs.values()
            for is_learned in _kinds(design, config)
        ]
        context.stage("comparison")
        comparisons = [compare(designs[cohort.task.rule], cohort) for cohort in cohorts]
        record = submission_record(SingleHead, list(designs.values()))
        claims = judge_claims(config, proved, wrong, cohorts, comparisons, record, context.seed)
        document = make_document(config, context.seed, model, proved, wrong, cohorts, comparisons, record)
    models: dict[str, torch.nn.Module] = {
        rule: design.model() for rule, design in designs.items() if rule != "copy_first"
    }
    models |= {cohort.name: cohort.finite[0] for cohort in cohorts if cohort.finite}
    submission = json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    return Findings(model, claims, document, models=models, files={"submission.json": submission.encode()})


def _kinds(design: Design, config: HandmadeConfig) -> list[bool]:
    """Say of which kinds the learned positions shall be: given as one-hot (False), learned (True)."""
    if design.pos is None:
        return [False]
    return {"one_hot": [False], "learned": [True], "both": [False, True]}[config.positions]


def _learned(design: Design, config: HandmadeConfig, context: Run, has_learned_positions: bool) -> Cohort:
    kind = "" if design.pos is None else f", {'learned' if has_learned_positions else 'one-hot'} positions"
    context.stage(f"{design.name}{kind}, {config.seeds} seeds")

    def tell(step: int, losses: Sequence[float]) -> None:
        loss = math.fsum(losses) / len(losses)
        context.record(
            {
                "step": step,
                "task": design.name,
                "learned_positions": has_learned_positions,
                "loss": loss if math.isfinite(loss) else None,
            }
        )
        context.step(step, config.steps, {"loss": loss})

    return train_cohort(design, config, context.seed, has_learned_positions=has_learned_positions, tell=tell)
