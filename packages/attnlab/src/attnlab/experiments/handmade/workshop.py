"""`handmade` from start to finish: design, prove, refute, learn, compare, make claims."""

import json
from pathlib import Path

from torch import nn

from attnlab.design import Design, design_for, prove, submission_record
from attnlab.errors import WrongUsage
from attnlab.experiments.experiment import Findings, RunContext
from attnlab.experiments.handmade.cohorts import train_cohort
from attnlab.experiments.handmade.comparison import compare
from attnlab.experiments.handmade.config import NAME, RULES, WORDS, HandmadeConfig
from attnlab.experiments.handmade.handmade_claims import (
    HandmadeResult,
    evaluate_claims,
    prove_design,
    wrong_design,
)
from attnlab.experiments.handmade.programs import certificate_files, compile_task
from attnlab.experiments.handmade.report import make_content
from attnlab.look.questions import Vectors
from attnlab.models.single_head import SingleHead
from attnlab.train.loop import using_threads


def run(config: HandmadeConfig, context: RunContext) -> Findings:
    """Design, prove, refute, learn, compare, and make claims."""
    designs = {rule: design_for(rule, config.tolerance) for rule in RULES}
    model = designs["copy_first"].model()
    context.start(model)
    with using_threads(1):  # the heads are tiny
        context.stage("proofs")
        proved = {rule: prove_design(design) for rule, design in designs.items()}
        wrong = prove(wrong_design(designs["identity"]))
        cohorts = []
        for design in designs.values():
            for is_learned in _kinds(design, config):
                cohort = train_cohort(design, config, context, has_learned_positions=is_learned)
                cohorts.append(cohort)
        context.stage("comparison")
        comparisons = []
        for cohort in cohorts:
            comparisons.append(compare(designs[cohort.task.rule], cohort))
            context.step(len(comparisons), len(cohorts))
        record = submission_record(SingleHead, list(designs.values()))
        compiled = [compile_task(design.task, config.tolerance) for design in designs.values()]
        result = HandmadeResult(config, context.seed, proved, wrong, cohorts, comparisons, compiled)
        claims, content = evaluate_claims(result), make_content(result)
    models = {rule: designs[rule].model() for rule in ("identity", "unique")}
    models |= {cohort.name: cohort.finite[0] for cohort in cohorts if cohort.finite}
    submission = json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    files = {"submission.json": submission.encode(), **certificate_files(compiled)}
    return Findings(model, claims, content, models=models, files=files)


def prompt_words(config: HandmadeConfig) -> str:
    """Describe the texts that the model answers."""
    return WORDS.text("prompt", {"rules": RULES})


def example(config: HandmadeConfig) -> str:
    """Return a text that the model answers."""
    return "CAB"


def ask(
    model: nn.Module, config: HandmadeConfig, text: str, *, folder: Path | None = None
) -> Vectors:
    """Put letters to the head of a task, which the text may name first: `CAB`, `unique CAC`."""
    if not isinstance(model, SingleHead):
        raise WrongUsage(f"{NAME} asks a SingleHead; got {type(model).__name__}.")
    first, _, rest = text.strip().partition(" ")
    rule, letters = "copy_first", text
    if first.lower() in RULES:
        rule, letters = first.lower(), rest
    design = design_for(rule, config.tolerance)
    task = design.task
    ids = task.parse(letters)
    head = model if rule == "copy_first" else design.model()
    x = task.vectors(ids.unsqueeze(0), next(head.parameters()).dtype)
    counted = task.counted(ids)
    target = task.target(ids.unsqueeze(0))[0][counted]
    answers, right = task.names[: task.letters], target.argmax(-1)
    if rule == "unique":
        answers, right = ("repeated", "once"), (target[:, 0] > 0).int()
    expected = [answers[place] for place in right.tolist()]
    return Vectors(head, x, task.tokens(ids), answers, counted.tolist(), expected=expected)


def _kinds(design: Design, config: HandmadeConfig) -> list[bool]:
    """Return the kinds of positions to train with: one-hot (False) or learned (True)."""
    if design.pos is None:
        return [False]
    return {"one_hot": [False], "learned": [True], "both": [False, True]}[config.positions]
