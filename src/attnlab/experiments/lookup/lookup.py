"""Look-up from start to finish: train, scramble, look, recall, say what holds."""

from pathlib import Path
from typing import Any

from torch import nn

from attnlab.draw.markup import plural
from attnlab.errors import CouldNotRun, WrongUsage
from attnlab.experiments.experiment import Findings, Run
from attnlab.experiments.lookup.config import NAME, LookupConfig
from attnlab.experiments.lookup.document import make_document
from attnlab.experiments.lookup.fixed import FixedFound, build_model, measure_masses, probe, scramble, train_members
from attnlab.experiments.lookup.judging import fixed_claims, model_claims, recall_claims
from attnlab.experiments.lookup.recall import Recalled, build_recall_model, train_variant
from attnlab.experiments.lookup.traces import trace_facts, trace_sources
from attnlab.look.trace import Trace
from attnlab.models.encoder_decoder import EncoderDecoder
from attnlab.models.storage import load_model
from attnlab.tasks import lookup as task
from attnlab.tasks.recall import Variant
from attnlab.train.loop import Trained

__all__ = ["prompt_words", "run", "trace_text"]


def run(config: LookupConfig, context: Run) -> Findings:
    """Train, scramble, look, recall, and say what holds."""
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
        models["with-positions"] = fixed.control_model
        claims += fixed_claims(fixed)
    claims += model_claims(main, is_fixed=config.has_fixed)
    recalled = []
    for variant in config.variants:
        found = _recalled(config, context, variant, main if not config.has_fixed and variant == shown else None)
        recalled.append(found)
        if found.models[0] is not main:
            models[variant] = found.models[0]
    claims += recall_claims(config, recalled) if recalled else []
    document = make_document(config, context.seed, main, fixed=fixed, recalled=recalled)
    return Findings(main, claims, document, models)


def prompt_words(config: LookupConfig) -> str:
    """Say what a person may type."""
    fixed = f"words in any order, such as {task.EXAMPLE}"
    facts = "facts and a question, such as k1 v5 k2 v7 ? k2"
    return {"all": f"{fixed}; or {facts}", "fixed": fixed, "recall": facts}[config.part]


def trace_text(model: nn.Module, config: LookupConfig, text: str, *, folder: Path | None = None) -> Trace:
    """Trace the model on an input that a person typed; facts with a question go to the model that reads new facts."""
    if not isinstance(model, EncoderDecoder):
        raise WrongUsage(f"{NAME} traces an EncoderDecoder; got {type(model).__name__}.")
    variant = _shown_variant(config)
    if config.has_fixed and "?" not in text:
        return trace_sources(model, [task.parse(text)])[0]
    if not config.variants:
        raise WrongUsage(f"this run has no model for new facts (part=fixed); type words such as {task.EXAMPLE!r}.")
    if config.has_fixed:
        if folder is None:
            raise CouldNotRun("the models for new facts are kept in the run's folder; save the report first.")
        reader = load_model(folder / "models" / variant)
        assert isinstance(reader, EncoderDecoder)
        model = reader
    return trace_facts(model, config.recall_task(variant), text)


def _shown_variant(config: LookupConfig) -> Variant:
    """Which variant's model a person's facts go to."""
    return "bound" if "bound" in config.variants else next(iter(config.variants), "bound")


def _fixed(config: LookupConfig, context: Run, main: EncoderDecoder) -> FixedFound:
    context.stage("a fixed table, this run's model")
    members = train_members(config, context, [main], patience=config.own_patience)
    _record(context, members[0].trained, "fixed")
    others = [build_model(config, context.seed, index) for index in range(1, config.seeds)]
    if others:
        context.stage(f"the same table, {len(others)} more {plural(len(others), 'seed')}")
        members += train_members(config, context, others, patience=config.patience, first=1)
    context.stage("the control, told the order")
    told = [
        build_model(config, context.seed, index, encoder_positions=config.control_positions)
        for index in range(config.control_seeds)
    ]
    controls = train_members(config, context, told, patience=config.patience)
    context.stage("every order of every source")
    scrambled, masses = [], []
    for done, member in enumerate(members, 1):
        scrambled.append(scramble(member.model))
        masses.append(measure_masses(member.model, member.split.test))
        context.step(done, len(members))
    control_scrambled = [scramble(each.model) for each in controls]
    probed = probe([member.model for member in members])
    return FixedFound(members, scrambled, masses, controls[0].model, control_scrambled, probed)


def _recalled(config: LookupConfig, context: Run, variant: Variant, main: EncoderDecoder | None) -> Recalled:
    first = build_recall_model(config, variant, context.seed) if main is None else main
    others = [build_recall_model(config, variant, context.seed, index) for index in range(1, config.recall_seeds)]
    found = train_variant(config, variant, context, [first, *others])
    _record(context, found.trained[0], variant)
    return found


def _record(context: Run, trained: Trained | None, what: str) -> None:
    lines: list[dict[str, Any]] = [] if trained is None else trained.metrics
    for line in lines:
        context.record({"model": what, **line})
