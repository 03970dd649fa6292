"""The classifier from start to finish: read, split, train models and baselines, make claims."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from torch import nn

from attnlab.core.store import read_json
from attnlab.errors import CouldNotRun, WrongUsage
from attnlab.experiments.experiment import Findings, Problem, ProblemDescription, Run
from attnlab.experiments.sentiment.baseline import require_library, train_baselines
from attnlab.experiments.sentiment.config import ModelName, SentimentConfig
from attnlab.experiments.sentiment.data import Arrangement, Data, load_data
from attnlab.experiments.sentiment.fit import (
    Prepared,
    TrainedModel,
    build,
    evaluate_on_test,
    is_right,
    learner,
    loss,
    prepare,
    stop_after,
    train_model,
)
from attnlab.experiments.sentiment.inspection import ask_text
from attnlab.experiments.sentiment.leak_control import exchange_test_texts
from attnlab.experiments.sentiment.report import make_content, make_content_of_one
from attnlab.experiments.sentiment.sentiment_claims import (
    Outcome,
    evaluate_claims,
    evaluate_claims_of_one,
    majority_accuracy,
)
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
    # One thread is quickest for models so small.
    with using_threads(1 if config.d_model <= 64 else None):
        return _run(config, context)


def _run(config: SentimentConfig, context: Run) -> Findings:
    context.stage("reading texts")
    data = load_data(config, context.seed)
    names: list[ModelName] = ["mini", "best"] if config.main == "mini" else ["best", "mini"]
    prepared = {name: prepare(name, config, data.fair, data.classes) for name in names}
    main = build(prepared[config.main], config, context.seed, 0)
    context.start(main)
    outcomes = [
        _outcome(config, context, data, each, names, prepared, main) for each in data.arrangements
    ]
    # The held-out texts of the built-in set also choose the epoch, as its report says, so there is
    # nothing to prove.
    unseen = None if data.is_built_in else exchange_test_texts(config, data, context)
    context.stage("report")
    fair = outcomes[0]
    claims = evaluate_claims(data, outcomes, unseen)
    content = make_content(config, context, data, outcomes)
    other = names[1]
    _IN_MEMORY[main] = prepared[config.main]
    return Findings(
        main,
        claims,
        content,
        models={other: fair.models[other][0].model},
        files={
            _FILE: _written(fair.prepared[config.main]),
            f"tokenizer-{other}.json": _written(fair.prepared[other]),
        },
    )


def describe_problem(config: SentimentConfig) -> ProblemDescription:
    """Describe what the model learns, and when it counts as solved."""
    return ProblemDescription(
        f"name the class of a text (the model {config.main}; the other models of the run are not "
        "trained here)",
        "more accurate than always naming the most frequent class, on the validation texts at one "
        "evaluation",
        meanings=(
            ("accuracy", "The share of validation texts classified right."),
            ("validation_loss", "The mean loss over the validation texts, in nats."),
            ("train_accuracy", "The same share of the training texts."),
            ("train_loss", "The mean loss over the training texts, in nats."),
        ),
    )


def problem(configs: Sequence[SentimentConfig], seeds: Sequence[int]) -> Problem:
    """Make a member for each config and seed: the main model, on one split of the texts for all.

    A member has solved the problem when it is more accurate than the most frequent class.
    """
    config = _on_one_split(configs[0])
    data = load_data(config, seeds[0])
    prepared = prepare(config.main, config, data.fair, data.classes)
    members = [
        learner(build(prepared, each, seed, 0), prepared, each, seed, 0)
        for each, seed in zip(configs, seeds, strict=True)
    ]
    patience = config.patience_for(len(prepared.train.ids)) if config.main == "mini" else None
    stop = stop_after(patience)
    majority = majority_accuracy(data.fair.split.train, data.fair.split.validation)
    return Problem(
        members, loss, stop, lambda evaluation: evaluation.figures["accuracy"] > majority
    )


def conclude(model: nn.Module, trained: Trained, config: SentimentConfig, context: Run) -> Findings:
    """Evaluate one trained model on the test texts, and the same before its training."""
    assert isinstance(model, Encoder)
    config = _on_one_split(config)
    data = load_data(config, context.seed)
    prepared = prepare(config.main, config, data.fair, data.classes)
    before = is_right(build(prepared, config, context.seed, 0).eval(), prepared.test)
    found = evaluate_on_test(model, prepared, trained, before)
    outcome = Outcome({config.main: prepared}, {config.main: [found]}, [])
    _IN_MEMORY[model] = prepared
    content = make_content_of_one(config, context, data, outcome)
    return Findings(
        model, evaluate_claims_of_one(data, outcome), content, files={_FILE: _written(prepared)}
    )


def _on_one_split(config: SentimentConfig) -> SentimentConfig:
    return config if config.split_seed is not None else dataclasses.replace(config, split_seed=0)


def prompt_words(config: SentimentConfig) -> str:
    """Describe the texts that the model answers."""
    return "a text, such as: a warm and funny film"


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
        kept = _IN_MEMORY[model]
        return ask_text(model, kept.tokenizer, kept.classes, text)
    tokenizer, classes = _read(folder / _FILE)
    num_classes = 0 if model.head is None else model.head.weight.shape[0]
    if num_classes != len(classes) or tokenizer.vocab_size != model.config.vocab_size:
        raise CouldNotRun(
            f"{folder / _FILE} does not fit the model beside it; one of them is from another run."
        )
    return ask_text(model, tokenizer, classes, text)


def _outcome(
    config: SentimentConfig,
    context: Run,
    data: Data,
    arrangement: Arrangement,
    names: list[ModelName],
    prepared: dict[ModelName, Prepared],
    main: Encoder,
) -> Outcome:
    """Train everything on one split; the run's main model is trained on the one without leaks."""
    is_fair = arrangement is data.fair
    if not is_fair:
        prepared = {name: prepare(name, config, arrangement, data.classes) for name in names}
    models: dict[ModelName, list[TrainedModel]] = {name: [] for name in names}
    for name in names:
        for member in range(config.seeds):
            is_main = is_fair and name == config.main and member == 0
            model = main if is_main else build(prepared[name], config, context.seed, member)
            found = train_model(model, prepared[name], config, context, member)
            models[name].append(found)
    context.stage(f"baselines, split {arrangement.name}")
    baselines = train_baselines(arrangement.split, data.classes) if config.baseline else []
    return Outcome(prepared, models, baselines)


def _written(prepared: Prepared) -> bytes:
    content = {"classes": list(prepared.classes), "tokenizer": prepared.tokenizer.to_mapping()}
    return (json.dumps(content, ensure_ascii=False) + "\n").encode()


def _read(file: Path) -> tuple[TextTokenizer, tuple[str, ...]]:
    content: Any = read_json(file)
    classes = content.get("classes") if isinstance(content, dict) else None
    if not isinstance(classes, list) or not all(isinstance(name, str) for name in classes):
        raise CouldNotRun(
            f"{file} is damaged: expected classes and a tokenizer; got {str(content)[:60]}."
        )
    return open_tokenizer(content.get("tokenizer")), tuple(classes)
