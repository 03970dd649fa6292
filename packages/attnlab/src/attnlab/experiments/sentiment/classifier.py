"""The classifier from start to finish: read, split, train models and baselines, make claims."""

import json
from pathlib import Path
from weakref import WeakKeyDictionary

from torch import nn

from attnlab.core.store import read_json
from attnlab.errors import CouldNotRun, WrongUsage
from attnlab.experiments.experiment import Findings, RunContext
from attnlab.experiments.sentiment import fit
from attnlab.experiments.sentiment.baseline import require_library
from attnlab.experiments.sentiment.config import MODELS, WORDS, ModelName, SentimentConfig
from attnlab.experiments.sentiment.data import Arrangement, load_data
from attnlab.experiments.sentiment.fit import Prepared
from attnlab.experiments.sentiment.inspection import ask_text
from attnlab.experiments.sentiment.report import make_content
from attnlab.experiments.sentiment.sentiment_claims import evaluate_claims
from attnlab.look.questions import Classification
from attnlab.models.encoder import Encoder
from attnlab.tasks.tokenizers import TextTokenizer, clean, open_tokenizer, words_of
from attnlab.train.loop import using_threads

_FILE = "tokenizer.json"
_IN_MEMORY: WeakKeyDictionary[nn.Module, Prepared] = WeakKeyDictionary()


def run(config: SentimentConfig, context: RunContext) -> Findings:
    """Run the whole experiment."""
    if config.baseline:
        require_library()
    words_of("")  # raises now, before anything long, if its library is missing
    num_threads = None
    if config.d_model <= 64:  # one thread is quickest for models so small
        num_threads = 1
    with using_threads(num_threads):
        return _run(config, context)


def _run(config: SentimentConfig, context: RunContext) -> Findings:
    context.stage("reading texts")
    data = load_data(config, context.seed)
    names = sorted(MODELS, key=lambda name: name != config.main)

    def prepared_for(arrangement: Arrangement) -> dict[ModelName, Prepared]:
        return {name: fit.prepare(name, config, arrangement, data.classes) for name in names}

    prepared = prepared_for(data.fair)
    main = fit.build_classifier(prepared[config.main], config, context.seed, 0)
    context.start(main)
    outcomes = [fit.train_all(config, context, prepared, main)]
    for other_arrangement in data.arrangements[1:]:
        outcomes.append(fit.train_all(config, context, prepared_for(other_arrangement)))
    context.stage("report")
    _IN_MEMORY[main] = prepared[config.main]
    models, files = dict[str, nn.Module](), {}
    for name, reader in prepared.items():
        if name == config.main:
            files[_FILE] = _written(reader)
        else:
            files[f"tokenizer-{name}.json"] = _written(reader)
            models[name] = outcomes[0].models[name][0].model
    claims, content = evaluate_claims(data, outcomes), make_content(config, context, data, outcomes)
    return Findings(main, claims, content, models, files)


def prompt_words(config: SentimentConfig) -> str:
    """Describe the texts that the model answers."""
    return WORDS.text("prompt")


def example(config: SentimentConfig) -> str:
    """Return a text that the model answers."""
    return "a warm and funny film"


def ask(
    model: nn.Module, config: SentimentConfig, text: str, *, folder: Path | None = None
) -> Classification:
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
