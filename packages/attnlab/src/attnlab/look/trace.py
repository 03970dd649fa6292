"""Traces: each step of a generation, and the attention of each head.

A trace holds all tokens, a step for each generated token (candidates, probabilities, choice), and
for each head one row of weights per query, as long as its keys. `trace` is for a decoder,
`trace_translation` for an encoder–decoder, whose cross-attention reads the tokens of the source.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from attnlab.core.traces import HeadTrace as HeadTrace
from attnlab.core.traces import Step as Step
from attnlab.core.traces import Trace as Trace
from attnlab.display import Card
from attnlab.look.recording import record
from attnlab.models.decoder import Decoder
from attnlab.models.encoder_decoder import EncoderDecoder
from attnlab.models.generation import Generation, generate


def answer_card(kind: str, trace: Trace, text: str = "") -> Card:
    """Return the card of a question: its text, the answer, and its probability.

    text: as typed, if known; else the tokens are joined.
    """
    if not text:
        text = (" " * any(len(token) > 1 for token in trace.input)).join(trace.input)
    facts: list[tuple[str, str]] = [("text", text)]
    shares = [step.share for step in trace.steps]
    facts.append(("answer", " ".join(trace.choices) or "none: it chooses no token"))
    if trace.steps and None not in shares:
        facts.append(("probability", " ".join(f"{share:.3f}" for share in shares)))
    if trace.steps and trace.steps[0].expected is not None:
        facts.append(("right", " ".join(step.expected or "?" for step in trace.steps)))
    return Card(kind, facts)


@torch.no_grad()
def trace(
    model: Decoder,
    prompts: Tensor,
    num_tokens: int,
    vocabulary: Sequence[str],
    *,
    forbidden: Sequence[int] = (),
    num_input: int | None = None,
) -> list[Trace]:
    """Generate greedily from each prompt, and record each step and the attention of each head.

    Args:
        model: in evaluation mode.
        prompts: (batch, length) ids, any separator included.
        num_tokens: how many tokens to generate.
        vocabulary: the name of each id.
        forbidden: ids that may not be chosen.
        num_input: how many tokens of the prompt are the user's input; None for all.
    """
    generation = generate(model, prompts, num_tokens, forbidden=forbidden)
    with record(model, "layers.*.attention.weights") as recording:
        model(generation.tokens[:, :-1])  # the last token is never a query
    allowed = sorted(set(range(len(vocabulary))).difference(forbidden))
    traces = _traces(recording, generation, prompts.shape[1], allowed, vocabulary)
    return [replace(one, input=one.input[:num_input]) for one in traces]


def names_at(vocabulary: Sequence[str], ids: Iterable[int]) -> tuple[str, ...]:
    """Return the names of some ids."""
    return tuple(vocabulary[token] for token in ids)


def _traces(
    recording: Mapping[str, Tensor],
    generation: Generation,
    start: int,
    shown: Sequence[int],
    vocabulary: Sequence[str],
    *,
    stop: int | None = None,
    sources: Sequence[Sequence[str]] | None = None,
) -> list[Trace]:
    """Return the trace of each row, with the probabilities of the shown ids in the steps from
    `start` on."""
    candidates = names_at(vocabulary, shown)
    traces = []
    for index, row in enumerate(generation.tokens.tolist()):
        if stop in row[start:]:
            row = row[: row.index(stop, start) + 1]
        names = names_at(vocabulary, row)
        steps = []
        for place in range(start, len(row)):
            shares = generation.probabilities[index, place - start, list(shown)].tolist()
            steps.append(Step(place - 1, candidates, tuple(shares), names[place]))
        source_names, keys = names[:start], {}
        if sources is not None:
            source_names = tuple(sources[index])
            keys = {site: source_names for site in recording if ".cross_attention." in site}
        heads = head_traces(recording, index, num_queries=len(row) - 1, key_tokens=keys)
        traces.append(Trace(source_names, names, tuple(steps), heads))
    return traces


def head_traces(
    recording: Mapping[str, Tensor],
    row: int = 0,
    *,
    num_queries: int | None = None,
    is_causal: bool = True,
    key_tokens: Mapping[str, tuple[str, ...]] | None = None,
) -> tuple[HeadTrace, ...]:
    """Return the attention of every head in a recording of weights, for one input.

    Args:
        recording: of weights.
        row: which input.
        num_queries: how many queries are shown; None for all.
        is_causal: query i has the keys 0 … i, where it attends to the trace's own tokens.
        key_tokens: the names of the keys at sites where they are others.
    """
    traces = []
    for site in recording:
        others = (key_tokens or {}).get(site)
        for head, weights in enumerate(recording[site][row].tolist()):
            rows = weights[:num_queries]
            if is_causal and others is None:
                rows = [keys[: query + 1] for query, keys in enumerate(rows)]
            traces.append(HeadTrace(site, head, tuple(map(tuple, rows)), others))
    return tuple(traces)


@torch.no_grad()
def trace_translation(
    model: EncoderDecoder,
    sources: Tensor,
    starts: Tensor,
    num_tokens: int,
    vocabulary: Sequence[str],
    *,
    source_words: Sequence[Sequence[str]],
    stop: int | None = None,
    candidates: Sequence[int] | None = None,
) -> list[Trace]:
    """Generate greedily from each source, and record each step and the attention of each head.

    A trace's `tokens` are the target's.

    Args:
        model: in evaluation mode.
        sources: (batch, length) or (batch, length, parts) ids that the encoder reads.
        starts: (batch, target length) ids that the decoder starts from.
        num_tokens: how many tokens to generate at most.
        vocabulary: the name of each id.
        source_words: the names of each source's tokens.
        stop: the id that ends a target; its trace ends there too.
        candidates: ids whose probabilities are recorded; None for all.
    """
    predictor = model.conditioned(sources)
    generation = generate(predictor, starts, num_tokens, stop=stop)
    patterns = ("decoder.layers.*.attention.weights", "decoder.layers.*.cross_attention.weights")
    with record(model, patterns) as recording:
        model(sources, generation.tokens[:, :-1])
    shown = range(len(vocabulary)) if candidates is None else candidates
    start = starts.shape[1]
    return _traces(recording, generation, start, shown, vocabulary, stop=stop, sources=source_words)
