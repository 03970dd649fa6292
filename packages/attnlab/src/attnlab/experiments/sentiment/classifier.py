"""The classifier from start to finish: read, split, train models and baselines, make claims."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from weakref import WeakKeyDictionary

from torch import nn

from attnlab.core.store import read_json
from attnlab.errors import CouldNotRun, WrongUsage
from attnlab.experiments.claims import Claim
from attnlab.experiments.experiment import Findings, Problem, ProblemDescription, Run
from attnlab.experiments.sentiment import fit
from attnlab.experiments.sentiment.baseline import require_library
from attnlab.experiments.sentiment.config import MODELS, WORDS, ModelName, SentimentConfig
from attnlab.experiments.sentiment.data import Arrangement, Data, load_data
from attnlab.experiments.sentiment.fit import Outcome, Prepared, TrainedModel
from attnlab.experiments.sentiment.inspection import ask_text
from attnlab.experiments.sentiment.report import make_content
from attnlab.experiments.sentiment.sentiment_claims import evaluate_claims, majority_accuracy
from attnlab.look.questions import Verdict
from attnlab.models.encoder import Encoder
from attnlab.tasks.tokenizers import TextTokenizer, clean, open_tokenizer, words_of
from attnlab.train import Trained
from attnlab.train.loop import using_threads

VARYING = frozenset({"learning_rate", "weight_decay", "word_dropout"})
"""The fields in which the members of one population may differ."""

_FILE = "tokenizer.json"
_IN_MEMORY: WeakKeyDictionary[nn.Module, Prepared] = WeakKeyDictionary()


def run(config: SentimentConfig, context: Run) -> Findings:
    """Run the whole experiment."""
    if config.baseline:
        require_library()
    words_of("")  # raises now, before anything long, if its library is missing
    num_threads = None
    if config.d_model <= 64:  # one thread is quickest for models so small
        num_threads = 1
    with using_threads(num_threads):
        return _run(config, context)


def _run(config: SentimentConfig, context: Run) -> Findings:
    context.stage("reading texts")
    data = load_data(config, context.seed)
    names = sorted(MODELS, key=lambda name: name != config.main)

    def prepared_for(arrangement: Arrangement) -> dict[ModelName, Prepared]:
        return {name: fit.prepare(name, config, arrangement, data.classes) for name in names}

    prepared = prepared_for(data.fair)
    main = fit.build(prepared[config.main], config, context.seed, 0)
    context.start(main)
    outcomes = [fit.train_all(config, context, prepared, main)]
    for other_arrangement in data.arrangements[1:]:
        outcomes.append(fit.train_all(config, context, prepared_for(other_arrangement)))
    context.stage("report")
    return _findings(config, context, data, outcomes, evaluate_claims(data, outcomes))


def _findings(
    config: SentimentConfig,
    context: Run,
    data: Data,
    outcomes: Sequence[Outcome],
    claims: Sequence[Claim],
) -> Findings:
    """Report on the models of the split without leaks, the main one and the other, if there."""
    fair, main = outcomes[0], config.main
    model = fair.models[main][0].model
    _IN_MEMORY[model] = fair.prepared[main]
    files = {
        f"tokenizer-{name}.json": _written(prepared) for name, prepared in fair.prepared.items()
    }
    files[_FILE] = files.pop(f"tokenizer-{main}.json")
    return Findings(
        model,
        claims,
        make_content(config, context, data, outcomes),
        models={
            name: trainings[0].model for name, trainings in fair.models.items() if name != main
        },
        files=files,
    )


def describe_problem(config: SentimentConfig) -> ProblemDescription:
    """Describe what the model learns, and when it counts as solved."""
    words = WORDS.texts("problem", {"main": config.main})
    return ProblemDescription(**words, meanings=tuple(WORDS.texts("meanings").items()))


def problem(configs: Sequence[SentimentConfig], seeds: Sequence[int]) -> Problem:
    """Make a member for each config and seed: the main model, on one split of the texts for all.

    A member has solved the problem when it is more accurate than the most frequent class.
    """
    config, data, prepared = _on_one_split(configs[0], seeds[0])
    members = []
    for member_config, seed in zip(configs, seeds, strict=True):
        model = fit.build(prepared, member_config, seed, 0)
        members.append(fit.learner(model, prepared, member_config, seed, 0))
    majority = majority_accuracy(data.fair.split.train, data.fair.split.validation)
    return Problem(
        members,
        fit.loss,
        fit.stop_rule(prepared, config),
        lambda evaluation: evaluation.figures["accuracy"] > majority,
    )


def conclude(model: nn.Module, trained: Trained, config: SentimentConfig, context: Run) -> Findings:
    """Evaluate one trained model on the test texts, and the same before its training."""
    assert isinstance(model, Encoder)
    config, data, prepared = _on_one_split(config, context.seed)
    before = fit.is_right(fit.build(prepared, config, context.seed, 0).eval(), prepared.test)
    trained_model = TrainedModel(model, trained, fit.answer(model, prepared.test), before)
    outcomes = [Outcome({config.main: prepared}, {config.main: [trained_model]}, [])]
    return _findings(config, context, data, outcomes, evaluate_claims(data, outcomes))


def _on_one_split(config: SentimentConfig, seed: int) -> tuple[SentimentConfig, Data, Prepared]:
    """Return the config, texts and main model's tokens of a population, whose members share a
    split."""
    if config.split_seed is None:
        config = dataclasses.replace(config, split_seed=0)
    data = load_data(config, seed)
    return config, data, fit.prepare(config.main, config, data.fair, data.classes)


def prompt_words(config: SentimentConfig) -> str:
    """Describe the texts that the model answers."""
    return WORDS.text("prompt")


def example(config: SentimentConfig) -> str:
    """Return a text that the model answers."""
    return "a warm and funny film"


def ask(
    model: nn.Module, config: SentimentConfig, text: str, *, folder: Path | None = None
) -> Verdict:
    """Put a text to the run's own model."""
    if not isinstance(model, Encoder):
        raise WrongUsage(f"sentiment asks an Encoder; got {type(model).__name__}.")
    if not clean(text):
        raise WrongUsage("the text is empty; type a few words, such as: a warm and funny film.")
    if folder is None:
        if model not in _IN_MEMORY:
            raise CouldNotRun(
                "the words of this model are kept in its run folder; save the run, and trace "
                "it there."
            )
        reader = _IN_MEMORY[model]
        return ask_text(model, reader.tokenizer, reader.classes, text)
    tokenizer, classes = _read(folder / _FILE)
    sizes = (model.config.num_classes or 0, model.config.vocab_size)
    if sizes != (len(classes), tokenizer.vocab_size):
        raise CouldNotRun(
            f"{folder / _FILE} does not fit the model beside it; one of them is from another run."
        )
    return ask_text(model, tokenizer, classes, text)


def _written(prepared: Prepared) -> bytes:
    content = {"classes": list(prepared.classes), "tokenizer": prepared.tokenizer.to_mapping()}
    return (json.dumps(content, ensure_ascii=False) + "\n").encode()


def _read(file: Path) -> tuple[TextTokenizer, tuple[str, ...]]:
    content, classes = read_json(file), None
    if isinstance(content, dict):
        classes = content.get("classes")
    if not isinstance(classes, list) or not all(isinstance(name, str) for name in classes):
        raise CouldNotRun(
            f"{file} is damaged: expected classes and a tokenizer; got {str(content)[:60]}."
        )
    return open_tokenizer(content.get("tokenizer")), tuple(classes)
