"""`handmade` from start to finish: design, prove, refute, learn, compare, make claims."""

import json
import math
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn

from attnlab.design import Design, design_for, prove, submission_record
from attnlab.errors import WrongUsage
from attnlab.experiments.experiment import Findings, Problem, ProblemDescription, Run
from attnlab.experiments.handmade.cohorts import (
    Cohort,
    blocks,
    cohort_of,
    initial_head,
    loss,
    make_draw,
    make_evaluation,
    train_cohort,
)
from attnlab.experiments.handmade.comparison import compare
from attnlab.experiments.handmade.config import NAME, RULES, HandmadeConfig
from attnlab.experiments.handmade.handmade_claims import (
    evaluate_claims,
    evaluate_learned_claims,
    prove_design,
    wrong_design,
)
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
        cohorts = [
            _learned(design, config, context, is_learned)
            for design in designs.values()
            for is_learned in _kinds(design, config)
        ]
        context.stage("comparison")
        comparisons = []
        for cohort in cohorts:
            comparisons.append(compare(designs[cohort.task.rule], cohort))
            context.step(len(comparisons), len(cohorts))
        record = submission_record(SingleHead, list(designs.values()))
        claims = evaluate_claims(config, proved, wrong, cohorts, comparisons, record, context.seed)
        content = make_content(
            config, context.seed, model, proved, wrong, cohorts, comparisons, record
        )
    models: dict[str, torch.nn.Module] = {
        rule: design.model() for rule, design in designs.items() if rule != "copy_first"
    }
    models |= {cohort.name: cohort.finite[0] for cohort in cohorts if cohort.finite}
    submission = json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    return Findings(
        model, claims, content, models=models, files={"submission.json": submission.encode()}
    )


def prompt_words(config: HandmadeConfig) -> str:
    """Describe the texts that the model answers."""
    return (
        "letters A to C for the head that copies the first, such as CAB, or a task and letters: "
        f"{', '.join(RULES)}"
    )


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
    own = "copy_first" if is_designed else config.learned
    rule, letters = (first.lower(), rest) if first.lower() in RULES else (own, text)
    if rule != own and not is_designed:
        raise WrongUsage(f"this head has learned {own}, not {rule}; type letters such as CAB.")
    design = design_for(rule, config.tolerance)
    task = design.task
    ids = task.parse(letters)
    x = task.vectors(ids.unsqueeze(0), next(model.parameters()).dtype)
    answers = ("repeated", "once") if rule == "unique" else task.names[: task.letters]
    head = model if rule == own else design.model()
    counted = task.counted(ids)
    target = task.target(ids.unsqueeze(0))[0][counted]
    right = (target[:, 0] > 0).int() if rule == "unique" else target.argmax(-1)
    expected = [answers[place] for place in right.tolist()]
    return Vectors(
        head,
        x.to(next(head.parameters()).dtype),
        task.tokens(ids),
        answers,
        counted.tolist(),
        expected=expected,
    )


def describe_problem(config: HandmadeConfig) -> ProblemDescription:
    """Describe what the head learns, and when it counts as solved."""
    design, has_learned_positions = _trained_design(config)
    positions = ""
    if design.pos is not None:
        positions = f", positions {'learned too' if has_learned_positions else 'given'}"
    what = (
        f"the task {config.learned} (one head that learns it{positions}; the designed ones are "
        "not trained)"
    )
    meanings = (
        ("accuracy", "The share of inputs whose every output is right."),
        ("error", "The mean error of an output, over all inputs."),
    )
    return ProblemDescription(
        what, "every output of every input right at one evaluation", "mean squared error", meanings
    )


def problem(configs: Sequence[HandmadeConfig], seeds_: Sequence[int]) -> Problem:
    """Make a head for each config and seed, to learn the task that `learned` names."""
    design, has_learned_positions = _trained_design(configs[0])
    judge = make_evaluation(design.task)
    members = [
        Member(
            initial_head(design, has_learned_positions, seed, 0),
            config.train_config(evaluate_every=min(_JUDGED_EVERY, config.steps)),
            make_draw(design.task, seed, 0),
            judge,
        )
        for config, seed in zip(configs, seeds_, strict=True)
    ]
    return Problem(members, loss, None, lambda evaluation: evaluation.figures["accuracy"] == 1.0)


def conclude(model: nn.Module, trained: Trained, config: HandmadeConfig, context: Run) -> Findings:
    """Evaluate one learned head on every input, and compare it with the design."""
    assert isinstance(model, SingleHead)
    design, _ = _trained_design(config)
    lines = [line for line in trained.metrics if "loss" in line]
    steps, losses = blocks(
        [line["step"] for line in lines], [torch.tensor([line["loss"]]) for line in lines]
    )
    cohort = cohort_of(design.task, [model], steps, losses)
    comparison = compare(design, cohort)
    claims = evaluate_learned_claims(cohort, comparison, context.seed)
    return Findings(
        model, claims, make_learned_content(config, context.seed, design, cohort, comparison)
    )


def _trained_design(config: HandmadeConfig) -> tuple[Design, bool]:
    """Return the design whose head a population learns, and whether it learns positions too."""
    design = design_for(config.learned, config.tolerance)
    return design, design.pos is not None and config.positions == "learned"


def _kinds(design: Design, config: HandmadeConfig) -> list[bool]:
    """Return the kinds of positions to train with: one-hot (False) or learned (True)."""
    if design.pos is None:
        return [False]
    return {"one_hot": [False], "learned": [True], "both": [False, True]}[config.positions]


def _learned(
    design: Design, config: HandmadeConfig, context: Run, has_learned_positions: bool
) -> Cohort:
    kind = ""
    if design.pos is not None:
        kind = f", {'learned' if has_learned_positions else 'one-hot'} positions"
    context.stage(f"{design.name}{kind}, {config.seeds} seeds")
    cohort = train_cohort(design, config, context, has_learned_positions=has_learned_positions)
    for step, losses in zip(cohort.steps, cohort.losses.tolist(), strict=True):
        loss = math.fsum(losses) / len(losses)
        context.record(
            {
                "step": step,
                "task": design.name,
                "learned_positions": has_learned_positions,
                "loss": loss if math.isfinite(loss) else None,
            }
        )
    return cohort
