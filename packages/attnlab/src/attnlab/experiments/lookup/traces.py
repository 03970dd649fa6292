"""The models on single inputs: traces for the page, and questions that a person types."""

import torch
from torch import Tensor

from attnlab.errors import WrongUsage
from attnlab.look.questions import Translation
from attnlab.look.trace import Trace, trace_translation
from attnlab.models.encoder_decoder import EncoderDecoder
from attnlab.tasks import lookup as task
from attnlab.tasks.recall import RecallTask


def trace_sources(model: EncoderDecoder, sources: Tensor) -> list[Trace]:
    """Trace a model of the fixed table on sources, (batch, length)."""
    return trace_translation(
        model,
        sources,
        torch.full((len(sources), 1), task.SOS),
        task.MAX_LENGTH - 1,
        task.VOCABULARY,
        source_words=list(map(task.id_names, sources)),
        stop=task.EOS,
    )


def ask_source(model: EncoderDecoder, source: Tensor) -> Translation:
    """Put one source, (length,) ids, to a model of the fixed table."""
    try:
        expected = task.id_names(task.target_output(task.right_answer(source.unsqueeze(0)))[0])
    except WrongUsage:  # a source without an answer
        expected = None
    return Translation(
        model,
        source.unsqueeze(0),
        task.id_names(source),
        torch.tensor([[task.SOS]]),
        task.MAX_LENGTH - 1,
        task.VOCABULARY,
        task.EOS,
        expected=expected,
    )


def ask_facts(model: EncoderDecoder, recall: RecallTask, text: str) -> Translation:
    """Put facts and a question, `k1 v5 k2 v7 ? k2`, to a model of in-context look-up."""
    facts_text, _, question = text.partition("?")
    question = question.strip().lower()
    keys = recall.vocabulary[: recall.num_keys]
    if question not in keys:
        raise WrongUsage(
            f"expected facts, then ? and a key from k1 to k{recall.num_keys}, such as "
            f"'k1 v5 k2 v7 ? k2'; got {text!r}."
        )
    pairs, key = recall.parse(facts_text), keys.index(question)
    values = torch.unique(pairs[pairs[:, 0] == key, 1])
    if not len(values):
        raise WrongUsage(f"{question} is not among the facts; ask for one of their keys.")
    if recall.variant == "ordered" and len(pairs) != recall.num_facts:
        raise WrongUsage(
            f"this model has positions for {recall.num_facts} facts only; got {len(pairs)}."
        )
    source, expected = pairs, None
    if recall.variant != "bound":
        source = pairs.flatten()
    if len(values) == 1:
        expected = recall.words(values)
    start = torch.tensor([[key]])
    likeliest = int(model(source.unsqueeze(0), start)[0, -1].argmax())
    return Translation(
        model,
        source.unsqueeze(0),
        recall.source_words(source),
        start,
        1,
        recall.vocabulary,
        candidates=list(dict.fromkeys([*pairs[:, 1].tolist(), likeliest])),
        expected=expected,
    )
