"""Traces: each step of a generation, and the attention of each head.

A trace holds all tokens, a step for each generated token (candidates, probabilities, choice), and
for each head one row of weights per query, as long as its keys. `trace` is for a decoder,
`trace_translation` for an encoder–decoder, whose cross-attention reads the tokens of the source.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor

from attnlab.display import Card, displayed
from attnlab.look.recording import record
from attnlab.models.decoder import Decoder
from attnlab.models.encoder_decoder import EncoderDecoder
from attnlab.models.generation import generate

__all__ = ["HeadTrace", "Step", "Trace", "trace", "trace_translation"]


@dataclass(frozen=True)
class Step:
    """One choice among `candidates` with their probabilities, made at `position`, the last known
    token.

    The position is None for a model that reads out all positions together; if it answers at each of
    them, `place` is the one. `expected` is the correct choice, None if unknown.
    """

    position: int | None
    candidates: tuple[str, ...]
    probabilities: tuple[float, ...]
    choice: str
    place: int | None = None
    expected: str | None = None

    @property
    def is_wrong(self) -> bool:
        """Whether the choice differs from the correct one."""
        return self.expected is not None and self.choice != self.expected


@displayed
@dataclass(frozen=True)
class HeadTrace:
    """The attention of one head: `rows[i]` are the weights of query i over keys 0 … i; each sums to
    1.

    For cross-attention `key_tokens` are the names of the keys, and every row is over all of them;
    None for self-attention, whose keys are the trace's own tokens.
    """

    site: str
    head: int
    rows: tuple[tuple[float, ...], ...]
    key_tokens: tuple[str, ...] | None = None


@displayed
@dataclass(frozen=True)
class Trace:
    """One generation, step by step; `note` is a remark on the names of its tokens."""

    input: tuple[str, ...]
    tokens: tuple[str, ...]
    steps: tuple[Step, ...]
    attention: tuple[HeadTrace, ...]
    note: str = ""

    def _card(self) -> Card:
        rows = []
        for number, step in enumerate(self.steps, 1):
            named = zip(step.candidates, step.probabilities, strict=True)
            largest = max(
                (probability for name, probability in named if name == step.choice), default=None
            )
            rows.append([number, step.choice, largest, step.expected or ""])
        facts = [("read", " ".join(self.input)), ("heads", len(self.attention))]
        return Card(
            f"Trace of {len(self.steps)} steps",
            facts,
            ("step", "choice", "probability", "expected"),
            rows,
        )

    def judged(self, expected: Sequence[str] | None) -> "Trace":
        """Return the trace with the correct choice of each step, as far as known."""
        right = (*(expected or ()), *(None for _ in self.steps))
        pairs = zip(self.steps, right, strict=False)
        return replace(self, steps=tuple(replace(step, expected=choice) for step, choice in pairs))

    def to_mapping(self) -> dict[str, Any]:
        """Return the trace as plain values for JSON; weights are rounded to 6 decimals."""
        mapping = asdict(self)
        if not self.note:
            del mapping["note"]
        for step in mapping["steps"]:
            for name in ("place", "expected"):
                if step[name] is None:
                    del step[name]
        for head in mapping["attention"]:
            head["rows"] = [[round(weight, 6) for weight in row] for row in head["rows"]]
            if head["key_tokens"] is None:
                del head["key_tokens"]
        return mapping


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
    allowed = [token for token in range(len(vocabulary)) if token not in set(forbidden)]
    start = prompts.shape[1]
    traces = []
    candidates = tuple(vocabulary[token] for token in allowed)
    for index, row in enumerate(generation.tokens.tolist()):
        names = tuple(vocabulary[token] for token in row)
        steps = []
        for step, shares in enumerate(generation.probabilities[index].tolist()):
            probabilities = tuple(shares[token] for token in allowed)
            steps.append(Step(start + step - 1, candidates, probabilities, names[start + step]))
        heads = tuple(
            HeadTrace(site, head, _causal_rows(weights))
            for site in recording
            for head, weights in enumerate(recording[site][index].tolist())
        )
        traces.append(Trace(names[: num_input or start], names, tuple(steps), heads))
    return traces


def _causal_rows(weights: Sequence[Sequence[float]]) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(keys[: query + 1]) for query, keys in enumerate(weights))


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
    tokens = tuple(vocabulary[token] for token in shown)
    start = starts.shape[1]
    traces = []
    for index, row in enumerate(generation.tokens.tolist()):
        end = row.index(stop, start) + 1 if stop in row[start:] else len(row)
        names = tuple(vocabulary[token] for token in row[:end])
        steps = []
        for place in range(start, end):
            shares = generation.probabilities[index, place - start].tolist()
            probabilities = tuple(shares[token] for token in shown)
            steps.append(Step(place - 1, tokens, probabilities, names[place]))
        words = tuple(source_words[index])
        heads = []
        for site in recording:
            for head, weights in enumerate(recording[site][index].tolist()):
                seen = weights[: end - 1]
                if ".cross_attention." in site:
                    heads.append(HeadTrace(site, head, tuple(map(tuple, seen)), words))
                else:
                    heads.append(HeadTrace(site, head, _causal_rows(seen)))
        traces.append(Trace(words, names, tuple(steps), tuple(heads)))
    return traces
