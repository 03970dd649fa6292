"""Look-up from start to finish: train, scramble, record, recall, make claims."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from attnlab.errors import CouldNotRun, WrongUsage
from attnlab.experiments.experiment import Findings, Problem, ProblemDescription, RunContext
from attnlab.experiments.lookup import fixed_table, recall
from attnlab.experiments.lookup.config import WORDS, LookupConfig
from attnlab.experiments.lookup.fixed_table import FixedTable
from attnlab.experiments.lookup.lookup_claims import evaluate_claims
from attnlab.experiments.lookup.recall import Recalled
from attnlab.experiments.lookup.report import make_content
from attnlab.experiments.lookup.traces import ask_facts, ask_source
from attnlab.look.questions import Translation
from attnlab.models.encoder_decoder import EncoderDecoder
from attnlab.models.storage import load_model
from attnlab.tasks import lookup as task
from attnlab.train import Trained

VARYING = frozenset({"learning_rate", "samples", "recall_learning_rate", "recall_ramp"})
"""The fields in which the members of one population may differ."""


def run(config: LookupConfig, context: RunContext) -> Findings:
    """Train, scramble, record, recall, and make claims."""
    seed, table, readers = context.seed, None, []
    main = _study(config).build_model(config, seed)
    context.start(main)
    models: dict[str, nn.Module] = {}
    if config.has_fixed:
        table = fixed_table.train(config, context, main)
        models["with-positions"] = table.controls[0].model
    for reader in config.readers:
        variant_models = [
            recall.build_model(reader, seed, index) for index in range(config.recall_seeds)
        ]
        if not config.has_fixed and reader.reader_variant == config.reader_variant:
            variant_models[0] = main
        else:
            models[reader.reader_variant] = variant_models[0]
        readers.append(recall.train(reader, context, variant_models))
    return _findings(config, seed, main, table, readers, models)


def conclude(
    model: nn.Module, trained: Trained, config: LookupConfig, context: RunContext
) -> Findings:
    """Evaluate one trained model alone, without a control or other variants."""
    assert isinstance(model, EncoderDecoder)
    seed, table, readers = context.seed, None, []
    if config.has_fixed:
        measured = fixed_table.measure_scrambling(config, seed, 0, model, trained)
        table = FixedTable([measured], [], fixed_table.probe([model]))
    else:
        readers.append(recall.evaluate(config, seed, [model], [trained]))
    return _findings(config, seed, model, table, readers, {})


def _study(config: LookupConfig) -> Any:
    """Return the module of the model that a run or a population is about; both are of one form."""
    return fixed_table if config.has_fixed else recall


def _findings(
    config: LookupConfig,
    seed: int,
    main: EncoderDecoder,
    table: FixedTable | None,
    readers: list[Recalled],
    models: Mapping[str, nn.Module],
) -> Findings:
    claims, numbers = evaluate_claims(config, main, table, readers)
    content = make_content(config, seed, main, table=table, readers=readers, numbers=numbers)
    return Findings(main, claims, content, models)


def describe_problem(config: LookupConfig) -> ProblemDescription:
    """Describe what the model learns, and when it counts as solved."""
    if config.has_fixed:
        task = "name what belongs to a key of a fixed table, whatever the order of the words"
        if config.readers:
            task += (
                "; the models that read new facts are not trained here (--set part=recall trains "
                "those)"
            )
        solved = "every validation sample answered right at one evaluation"
        meanings = WORDS.texts("meanings.table")
    else:
        variant = config.reader_variant
        task = f"answer questions about {config.recall_facts} new facts, written as {variant} words"
        right = "right at one evaluation"
        if variant == "loose":
            right = "with one of the values shown, which is the best possible"
        solved = f"every question about {recall.WATCHED} new samples answered {right}"
        meanings = WORDS.texts("meanings.reader")
    return ProblemDescription(task, solved, meanings=tuple(meanings.items()))


def problem(configs: Sequence[LookupConfig], seeds_: Sequence[int]) -> Problem:
    """Make a member for each config and seed: a fixed-table model or, without one, a recall model.

    It is trained until it has solved its problem, like the run's further models.
    """
    study, members = _study(configs[0]), []
    for config, seed in zip(configs, seeds_, strict=True):
        members.append(study.learner(study.build_model(config, seed), config, seed))
    made: Problem = study.problem_of(configs[0], members)
    return made


def prompt_words(config: LookupConfig) -> str:
    """Describe the texts that the model answers."""
    return WORDS.text(f"prompt.{config.part}", {"example": task.EXAMPLE})


def example(config: LookupConfig) -> str:
    """Return a text that the model answers."""
    if config.has_fixed:
        return task.EXAMPLE
    facts = [f"k{number} v{number}" for number in range(1, config.recall_facts + 1)]
    return f"{' '.join(facts)} ? k1"


def ask(
    model: nn.Module, config: LookupConfig, text: str, *, folder: Path | None = None
) -> Translation:
    """Put a text to the model; facts with a question go to the model that reads new facts."""
    assert isinstance(model, EncoderDecoder)
    if config.has_fixed and "?" not in text:
        return ask_source(model, task.parse(text))
    if config.has_fixed:
        model = _reader_in(folder, config)
    return ask_facts(model, config.recall_task(), text)


def _reader_in(folder: Path | None, config: LookupConfig) -> EncoderDecoder:
    """Load the model that reads new facts, kept beside that of the fixed table."""
    if config.readers and folder is None:
        raise CouldNotRun(
            "the models for new facts are kept in the run's folder; save the report first."
        )
    # A run of the fixed table alone and a member of a population have none.
    kept = (folder or Path()) / "models" / config.reader_variant
    if not config.readers or not kept.is_dir():
        raise WrongUsage(
            f"there is no model for new facts here; type words such as {task.EXAMPLE!r}."
        )
    model = load_model(kept)
    assert isinstance(model, EncoderDecoder)
    return model
