"""Traces: what a model did at each step of a generation, and where each of its heads looked.

One trace holds the whole token row, a step for each chosen token (candidates, probabilities, choice), and for each
head one row of weights per query, as long as what that query could see. `trace` watches a decoder, `trace_translation`
an encoder–decoder, whose cross-attention looks at the tokens of the source.
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
    """One choice among `candidates` with their probabilities, seen from `position`, the last token known.

    A position of None stands for a model that reads out all its positions together; where it answers at each of them,
    `place` says which one this is. `expected` is the right choice, None where nobody said which it is.
    """

    position: int | None
    candidates: tuple[str, ...]
    probabilities: tuple[float, ...]
    choice: str
    place: int | None = None
    expected: str | None = None

    @property
    def is_wrong(self) -> bool:
        """Whether the choice is known not to be the right one."""
        return self.expected is not None and self.choice != self.expected


@displayed
@dataclass(frozen=True)
class HeadTrace:
    """Where one head looked: `rows[i]` are the weights of query i over keys 0 … i; each sums to 1.

    For cross-attention `key_tokens` are the tokens looked at, and every row is over all of them; None for
    self-attention, which looks at the trace's own tokens.
    """

    site: str
    head: int
    rows: tuple[tuple[float, ...], ...]
    key_tokens: tuple[str, ...] | None = None


@displayed
@dataclass(frozen=True)
class Trace:
    """One generation, step by step; `note` says what a reader has to know of the names of its tokens."""

    input: tuple[str, ...]
    tokens: tuple[str, ...]
    steps: tuple[Step, ...]
    attention: tuple[HeadTrace, ...]
    note: str = ""

    def _card(self) -> Card:
        rows = []
        for number, step in enumerate(self.steps, 1):
            named = zip(step.candidates, step.probabilities, strict=True)
            largest = max((probability for name, probability in named if name == step.choice), default=None)
            rows.append([number, step.choice, largest, step.expected or ""])
        facts = [("read", " ".join(self.input)), ("heads", len(self.attention))]
        return Card(f"Trace of {len(self.steps)} steps", facts, ("step", "choice", "probability", "expected"), rows)

    def judged(self, expected: Sequence[str] | None) -> "Trace":
        """Return it with the right choice of each step, as far as there are some; None where nobody knows them."""
        right = (*(expected or ()), *(None for _ in self.steps))
        steps = (replace(step, expected=choice) for step, choice in zip(self.steps, right, strict=False))
        return replace(self, steps=tuple(steps))

    def to_mapping(self) -> dict[str, Any]:
        """Return the trace as plain values for JSON; weights are rounded to 6 decimals, about what float32 holds."""
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
    """Generate greedily from each prompt, and write down what happened.

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
        model(generation.tokens[:, :-1])  # the last token is never looked from
    allowed = [token for token in range(len(vocabulary)) if token not in set(forbidden)]
    start = prompts.shape[1]
    traces = []
    for index, row in enumerate(generation.tokens.tolist()):
        names = [vocabulary[token] for token in row]
        steps = tuple(
            Step(
                position=start + step - 1,
                candidates=tuple(vocabulary[token] for token in allowed),
                probabilities=tuple(float(generation.probabilities[index, step, token]) for token in allowed),
                choice=names[start + step],
            )
            for step in range(num_tokens)
        )
        heads = tuple(
            HeadTrace(site, head, tuple(tuple(keys[: query + 1]) for query, keys in enumerate(weights)))
            for site in recording
            for head, weights in enumerate(recording[site][index].tolist())
        )
        traces.append(Trace(tuple(names[: num_input or start]), tuple(names), steps, heads))
    return traces


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
    """Generate greedily from each source, and write down what happened: a trace's `tokens` are the target's.

    Args:
        model: in evaluation mode.
        sources: (batch, length) or (batch, length, parts) ids that the encoder reads.
        starts: (batch, target length) ids that the decoder starts from.
        num_tokens: how many tokens to generate at most.
        vocabulary: the name of each id.
        source_words: the names of each source's tokens.
        stop: the id that ends a target; its trace ends there too.
        candidates: ids whose probabilities are written down; None for all.
    """
    predictor = model.conditioned(sources)
    generation = generate(predictor, starts, num_tokens, stop=stop)
    patterns = ("decoder.layers.*.attention.weights", "decoder.layers.*.cross_attention.weights")
    with record(model, patterns) as recording:
        model(sources, generation.tokens[:, :-1])
    shown = range(len(vocabulary)) if candidates is None else candidates
    start = starts.shape[1]
    traces = []
    for index, row in enumerate(generation.tokens.tolist()):
        end = row.index(stop, start) + 1 if stop in row[start:] else len(row)
        names = tuple(vocabulary[token] for token in row[:end])
        steps = tuple(
            Step(
                position=place - 1,
                candidates=tuple(vocabulary[token] for token in shown),
                probabilities=tuple(float(generation.probabilities[index, place - start, token]) for token in shown),
                choice=names[place],
            )
            for place in range(start, end)
        )
        words = tuple(source_words[index])
        heads = tuple(
            HeadTrace(site, head, tuple(tuple(keys) for keys in weights[: end - 1]), words)
            if ".cross_attention." in site
            else HeadTrace(site, head, tuple(tuple(keys[: query + 1]) for query, keys in enumerate(weights[: end - 1])))
            for site in recording
            for head, weights in enumerate(recording[site][index].tolist())
        )
        traces.append(Trace(words, names, steps, heads))
    return traces
