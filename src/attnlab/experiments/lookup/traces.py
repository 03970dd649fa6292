"""The models on single inputs: traces for the page and the terminal, and attention maps."""

import torch
from torch import Tensor

from attnlab.draw.sections import Heatmap, MapChoice
from attnlab.errors import WrongUsage
from attnlab.look.heads import head_at
from attnlab.look.questions import Translation
from attnlab.look.trace import Trace, trace_translation
from attnlab.models.encoder_decoder import EncoderDecoder
from attnlab.tasks import lookup as task
from attnlab.tasks.recall import RecallTask


def trace_sources(model: EncoderDecoder, sources: list[Tensor] | Tensor) -> list[Trace]:
    """Trace a model of the fixed table; all sources have the same length."""
    batch = torch.stack(list(sources))
    return trace_translation(
        model,
        batch,
        torch.full((len(batch), 1), task.SOS),
        task.MAX_LENGTH - 1,
        task.VOCABULARY,
        source_words=[task.words(source) for source in batch],
        stop=task.EOS,
    )


def ask_source(model: EncoderDecoder, source: Tensor) -> Translation:
    """Put one source, (length,) ids, to a model of the fixed table."""
    start = torch.tensor([[task.SOS]])
    words = task.words(source)
    try:
        expected = task.words(task.target_output(task.answer(source.unsqueeze(0)))[0])
    except WrongUsage:  # a source without an answer
        expected = None
    most = task.MAX_LENGTH - 1
    return Translation(
        model, source.unsqueeze(0), words, start, most, task.VOCABULARY, task.EOS, expected=expected
    )


def ask_facts(model: EncoderDecoder, recall: RecallTask, text: str) -> Translation:
    """Put facts and a question, `k1 v5 k2 v7 ? k2`, to a model of in-context look-up."""
    facts_text, mark, question_text = text.partition("?")
    question = question_text.strip().lower()
    keys = recall.vocabulary[: recall.num_keys]
    if not mark or question not in keys:
        raise WrongUsage(
            f"expected facts, then ? and a key from k1 to k{recall.num_keys}, such as "
            f"{_EXAMPLE}; got {text!r}."
        )
    pairs = recall.parse(facts_text)
    if keys.index(question) not in pairs[:, 0]:
        raise WrongUsage(f"{question} is not among the facts; ask for one of their keys.")
    if recall.variant == "ordered" and len(pairs) != recall.num_facts:
        raise WrongUsage(
            f"this model has positions for {recall.num_facts} facts only; got {len(pairs)}."
        )
    source = pairs if recall.variant == "bound" else pairs.flatten()
    start = torch.tensor([[keys.index(question)]])
    values = {int(value) for key, value in pairs.tolist() if key == keys.index(question)}
    likeliest = int(model(source.unsqueeze(0), start)[0, -1].argmax())
    return Translation(
        model,
        source.unsqueeze(0),
        recall.source_words(source),
        start,
        1,
        recall.vocabulary,
        candidates=list(dict.fromkeys([*pairs[:, 1].tolist(), likeliest])),
        expected=recall.words(list(values)) if len(values) == 1 else None,
    )


_EXAMPLE = "'k1 v5 k2 v7 ? k2'"


def attention_maps(traces: list[Trace]) -> list[MapChoice]:
    """Return attention maps of each trace's cross-attention, (decoder token, encoder token)."""
    choices = []
    for each in traces:
        said = " ".join(step.choice for step in each.steps)
        heads = [head for head in each.attention if head.key_tokens is not None]
        maps = [
            Heatmap.of_weights(
                f"Head {head_at(head.site, head.head)}",
                [[round(weight, 4) for weight in row] for row in head.rows],
                each.tokens[: len(head.rows)],
                head.key_tokens or (),
                ("decoder token", "encoder token"),
            )
            for head in heads
        ]
        choices.append(
            MapChoice(
                label=" ".join(each.input),
                note=f"{' '.join(each.input)} → {said}",
                maps=maps,
            )
        )
    return choices
