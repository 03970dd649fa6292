"""Look-up from start to finish: train, scramble, record, recall, make claims."""

from collections.abc import Sequence
from pathlib import Path

from torch import nn

from attnlab.draw.numbers import plural
from attnlab.errors import CouldNotRun, WrongUsage
from attnlab.experiments.experiment import Findings, Problem, ProblemDescription, Run
from attnlab.experiments.lookup.config import NAME, LookupConfig
from attnlab.experiments.lookup.fixed_table import (
    FixedFound,
    Member,
    build_model,
    learner,
    make_loss,
    measure_masses,
    probe,
    scramble,
    split_of,
    stop_after,
    train_members,
)
from attnlab.experiments.lookup.lookup_claims import fixed_claims, model_claims, recall_claims
from attnlab.experiments.lookup.recall import (
    WATCHED,
    Recalled,
    build_recall_model,
    evaluate_variant,
    recall_learner,
    recall_loss,
    recall_stop,
    train_variant,
)
from attnlab.experiments.lookup.report import make_content
from attnlab.experiments.lookup.traces import ask_facts, ask_source
from attnlab.look.questions import Translation
from attnlab.models.encoder_decoder import EncoderDecoder
from attnlab.models.storage import load_model
from attnlab.tasks import lookup as task
from attnlab.tasks.recall import Variant
from attnlab.train import Trained

VARYING = frozenset({"learning_rate", "samples", "recall_learning_rate", "recall_ramp"})
"""The fields in which the members of one population may differ."""


def run(config: LookupConfig, context: Run) -> Findings:
    """Train, scramble, record, recall, and make claims."""
    shown = _shown_variant(config)
    if config.has_fixed:
        main = build_model(config, context.seed)
    else:
        main = build_recall_model(config, shown, context.seed)
    context.start(main)
    claims, models = [], {}
    fixed: FixedFound | None = None
    if config.has_fixed:
        fixed = _fixed(config, context, main)
        models["with-positions"] = fixed.controls[0].model
        claims += fixed_claims(fixed)
    claims += model_claims(main, is_fixed=config.has_fixed)
    recalled = []
    for variant in config.variants:
        is_main = not config.has_fixed and variant == shown
        found = _recalled(config, context, variant, main if is_main else None)
        recalled.append(found)
        if found.models[0] is not main:
            models[variant] = found.models[0]
    claims += recall_claims(config, recalled) if recalled else []
    content = make_content(config, context.seed, main, fixed=fixed, recalled=recalled)
    return Findings(main, claims, content, models)


def describe_problem(config: LookupConfig) -> ProblemDescription:
    """Describe what the model learns, and when it counts as solved."""
    if config.has_fixed:
        task_words = "name what belongs to a key of a fixed table, whatever the order of the words"
        others = (
            "; the models that read new facts are not trained here (--set part=recall trains those)"
        )
        solved = "every validation sample answered right at one evaluation"
        meanings: tuple[tuple[str, str], ...] = (
            ("accuracy", "The share of validation samples answered right."),
            ("validation_loss", "The mean loss over the validation samples, in nats."),
        )
        return ProblemDescription(
            task_words + (others if config.variants else ""), solved, meanings=meanings
        )
    variant = _shown_variant(config)
    task_words = (
        f"answer questions about {config.recall_facts:,} new facts, written as {variant} words"
    )
    if variant == "loose":
        solved = (
            f"every question about {WATCHED:,} new samples answered with one of the values shown, "
            "which is the best possible"
        )
    else:
        solved = f"every question about {WATCHED:,} new samples answered right at one evaluation"
    meanings = (
        ("accuracy", "The share of questions about new facts answered right."),
        ("watched_loss", "The mean loss over these questions, in nats."),
        (
            "named",
            "The share of them answered with one of the values shown, right or wrong.",
        ),
    )
    return ProblemDescription(task_words, solved, meanings=meanings)


def problem(configs: Sequence[LookupConfig], seeds_: Sequence[int]) -> Problem:
    """Make a member for each config and seed: a fixed-table model or, without one, a recall model.

    It is trained until it has solved its problem, like the run's further models.
    """
    first, variant = configs[0], _shown_variant(configs[0])
    if first.has_fixed:
        loss, stop = make_loss(first, reads_sets=True), stop_after(first.patience)
        learners = [
            learner(build_model(each, seed), each, seed)
            for each, seed in zip(configs, seeds_, strict=True)
        ]
        places = [f"word {number}" for number in range(1, task.all_sources().shape[1] + 1)]
        return Problem(
            learners,
            loss,
            stop,
            lambda evaluation: evaluation.figures["accuracy"] == 1.0,
            positions=("start", "answer"),
            sources=places,
        )
    members = [
        recall_learner(build_recall_model(each, variant, seed), each, variant, seed)
        for each, seed in zip(configs, seeds_, strict=True)
    ]
    facts = range(1, first.recall_facts + 1)
    if variant == "bound":
        places = [f"fact {n}" for n in facts]
    else:
        places = [f"{word} {n}" for n in facts for word in ("key", "value")]
    return Problem(
        members,
        recall_loss,
        recall_stop(variant),
        lambda evaluation: evaluation.score[0] == 1.0,
        positions=[f"asks {n}" for n in facts],
        sources=places,
    )


def conclude(model: nn.Module, trained: Trained, config: LookupConfig, context: Run) -> Findings:
    """Evaluate one trained model alone, without a control or other variants."""
    assert isinstance(model, EncoderDecoder)
    seed, variant = context.seed, _shown_variant(config)
    claims = model_claims(model, is_fixed=config.has_fixed)
    fixed, recalled = None, list[Recalled]()
    if config.has_fixed:
        member = Member(0, model, split_of(config, seed), trained)
        masses = measure_masses(model, member.split.test)
        fixed = FixedFound([member], [scramble(model)], [masses], [], [], probe([model]))
        claims = fixed_claims(fixed) + claims
    else:
        recalled.append(evaluate_variant(config, variant, seed, [model], [trained]))
        claims += recall_claims(config, recalled)
    return Findings(
        model, claims, make_content(config, seed, model, fixed=fixed, recalled=recalled)
    )


def prompt_words(config: LookupConfig) -> str:
    """Describe the texts that the model answers."""
    fixed = f"words in any order, such as {task.EXAMPLE}"
    facts = "facts and a question, such as k1 v5 k2 v7 ? k2"
    return {"all": f"{fixed}; or {facts}", "fixed": fixed, "recall": facts}[config.part]


def ask(
    model: nn.Module, config: LookupConfig, text: str, *, folder: Path | None = None
) -> Translation:
    """Put a text to the model; facts with a question go to the model that reads new facts."""
    if not isinstance(model, EncoderDecoder):
        raise WrongUsage(f"{NAME} asks an EncoderDecoder; got {type(model).__name__}.")
    variant = _shown_variant(config)
    if config.has_fixed and "?" not in text:
        return ask_source(model, task.parse(text))
    if not config.variants:
        raise WrongUsage(
            "this run has no model for new facts (part=fixed); type words such as "
            f"{task.EXAMPLE!r}."
        )
    if config.has_fixed:
        if folder is None:
            raise CouldNotRun(
                "the models for new facts are kept in the run's folder; save the report first."
            )
        if not (folder / "models" / variant).is_dir():  # a member of a population
            raise WrongUsage(
                f"{folder} has no model for new facts; type words such as {task.EXAMPLE!r}."
            )
        reader = load_model(folder / "models" / variant)
        assert isinstance(reader, EncoderDecoder)
        model = reader
    return ask_facts(model, config.recall_task(variant), text)


def _shown_variant(config: LookupConfig) -> Variant:
    """Return the variant whose model answers facts that a person types."""
    return "bound" if "bound" in config.variants else next(iter(config.variants), "bound")


def _fixed(config: LookupConfig, context: Run, main: EncoderDecoder) -> FixedFound:
    context.stage("a fixed table, this run's model")
    members = train_members(config, context, "fixed", [main], patience=config.own_patience)
    others = [build_model(config, context.seed, index) for index in range(1, config.seeds)]
    if others:
        context.stage(f"the same table, {len(others)} more {plural(len(others), 'seed')}")
        members += train_members(
            config, context, "fixed-others", others, patience=config.patience, first=1
        )
    context.stage("the control, with positions")
    told = [
        build_model(config, context.seed, index, encoder_positions=config.control_positions)
        for index in range(config.control_seeds)
    ]
    controls = train_members(config, context, "fixed-control", told, patience=config.patience)
    context.stage("every order of every source")
    scrambled, masses = [], []
    for done, member in enumerate(members, 1):
        scrambled.append(scramble(member.model))
        masses.append(measure_masses(member.model, member.split.test))
        context.step(done, len(members))
    control_scrambled = [scramble(each.model) for each in controls]
    return FixedFound(
        members,
        scrambled,
        masses,
        controls,
        control_scrambled,
        probe([each.model for each in members]),
    )


def _recalled(
    config: LookupConfig, context: Run, variant: Variant, main: EncoderDecoder | None
) -> Recalled:
    first = build_recall_model(config, variant, context.seed) if main is None else main
    others = [
        build_recall_model(config, variant, context.seed, index)
        for index in range(1, config.recall_seeds)
    ]
    return train_variant(config, variant, context, [first, *others])
