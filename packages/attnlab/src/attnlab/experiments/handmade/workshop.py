"""`handmade` from start to finish: design, prove, refute, learn, compare, make claims."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from attnlab.design import Design, design_for, prove, submission_record
from attnlab.errors import WrongUsage
from attnlab.experiments.experiment import Findings, Problem, ProblemDescription, Run
from attnlab.experiments.handmade.cohorts import (
    blocks,
    cohort_of,
    initial_head,
    loss,
    make_draw,
    make_evaluation,
    train_cohort,
)
from attnlab.experiments.handmade.comparison import compare
from attnlab.experiments.handmade.config import NAME, RULES, WORDS, HandmadeConfig
from attnlab.experiments.handmade.handmade_claims import (
    HandmadeResult,
    evaluate_claims,
    evaluate_learned_claims,
    prove_design,
    wrong_design,
)
from attnlab.experiments.handmade.programs import certificate_files, compile_task
from attnlab.experiments.handmade.report import make_content, make_learned_content
from attnlab.look.questions import Vectors
from attnlab.models.single_head import SingleHead
from attnlab.train import Member, Trained
from attnlab.train.loop import using_threads

VARYING = frozenset({"learning_rate"})
"""The fields in which the members of one population may differ."""

_JUDGED_EVERY = 500  # steps between two evaluations of a population


def run(config: HandmadeConfig, context: Run) -> Findings:
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
    """Put letters to the head of a task, which the text may name first: `CAB`, `unique CAC`.

    The heads of a run are the designed ones; a population's member has one head, learned for one
    task.
    """
    if not isinstance(model, SingleHead):
        raise WrongUsage(f"{NAME} asks a SingleHead; got {type(model).__name__}.")
    first, _, rest = text.strip().partition(" ")
    is_designed = folder is None or (folder / "models").is_dir()
    answered: str = "copy_first" if is_designed else config.learned
    rule, letters = answered, text
    if first.lower() in RULES:
        rule, letters = first.lower(), rest
    if rule != answered and not is_designed:
        raise WrongUsage(f"this head has learned {answered}, not {rule}; type letters such as CAB.")
    design = design_for(rule, config.tolerance)
    task = design.task
    ids = task.parse(letters)
    head = model if rule == answered else design.model()
    x = task.vectors(ids.unsqueeze(0), next(head.parameters()).dtype)
    counted = task.counted(ids)
    target = task.target(ids.unsqueeze(0))[0][counted]
    answers, right = task.names[: task.letters], target.argmax(-1)
    if rule == "unique":
        answers, right = ("repeated", "once"), (target[:, 0] > 0).int()
    expected = [answers[place] for place in right.tolist()]
    return Vectors(head, x, task.tokens(ids), answers, counted.tolist(), expected=expected)


def describe_problem(config: HandmadeConfig) -> ProblemDescription:
    """Describe what the head learns, and when it counts as solved."""
    design, has_learned_positions = _trained_design(config)
    positions = ""
    if design.pos is not None:
        positions = ", positions learned too" if has_learned_positions else ", positions given"
    return ProblemDescription(
        f"the task {config.learned} (one head that learns it{positions}; the designed ones are not "
        "trained)",
        "every output of every input right at one evaluation",
        "mean squared error",
        tuple(WORDS.texts("meanings").items()),
    )


def problem(configs: Sequence[HandmadeConfig], seeds_: Sequence[int]) -> Problem:
    """Make a head for each config and seed, to learn the task that `learned` names."""
    design, has_learned_positions = _trained_design(configs[0])
    judge = make_evaluation(design.task)
    members = []
    for config, seed in zip(configs, seeds_, strict=True):
        head = initial_head(design, has_learned_positions, seed, 0)
        every = min(_JUDGED_EVERY, config.steps)
        settings = replace(config.train_config(), evaluate_every=every)
        members.append(Member(head, settings, make_draw(design.task, seed, 0), judge))
    return Problem(members, loss, None, lambda evaluation: evaluation.figures["accuracy"] == 1.0)


def conclude(model: nn.Module, trained: Trained, config: HandmadeConfig, context: Run) -> Findings:
    """Evaluate one learned head on every input, and compare it with the design."""
    assert isinstance(model, SingleHead)
    design, _ = _trained_design(config)
    logged, means = list[int](), list[torch.Tensor]()
    for line in trained.metrics:
        if "loss" in line:
            logged.append(int(line["step"]))
            means.append(torch.tensor([line["loss"]]))
    steps, losses = blocks(logged, means)
    cohort = cohort_of(design.task, [model], steps, losses)
    comparison = compare(design, cohort)
    claims = evaluate_learned_claims(cohort, comparison, context.seed)
    content = make_learned_content(config, context.seed, design, cohort)
    return Findings(model, claims, content)


def _trained_design(config: HandmadeConfig) -> tuple[Design, bool]:
    """Return the design whose head a population learns, and whether it learns positions too."""
    design = design_for(config.learned, config.tolerance)
    return design, design.pos is not None and config.positions == "learned"


def _kinds(design: Design, config: HandmadeConfig) -> list[bool]:
    """Return the kinds of positions to train with: one-hot (False) or learned (True)."""
    if design.pos is None:
        return [False]
    return {"one_hot": [False], "learned": [True], "both": [False, True]}[config.positions]
