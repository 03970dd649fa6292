"""Questions: one input for one model, in one form for every kind of model.

A question knows its model, the model's inputs, and the names of the tokens. So the tools that read,
edit or trace need not know whether the model continues, translates, classifies or maps vectors:

    question.prompt_inputs() the model's inputs before it answers, by name
    question.pass_inputs()   the inputs for the whole answer in one pass, generated tokens included
    question.trace()         the answer step by step, and the attention of each head
    question.after(choices)  the same question after its first choices
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol, Self

import torch
from torch import Tensor, nn

from attnlab.display import Card, displayed
from attnlab.errors import WrongUsage
from attnlab.look.recording import Recording, record
from attnlab.look.recording.named_sites import matching_sites
from attnlab.look.recording.tokens import Vocabulary
from attnlab.look.trace import (
    Step,
    Trace,
    answer_card,
    head_traces,
    names_at,
    trace,
    trace_translation,
)
from attnlab.models.decoder import Decoder
from attnlab.models.encoder import Encoder
from attnlab.models.encoder_decoder import EncoderDecoder
from attnlab.models.generation import generate
from attnlab.models.single_head import SingleHead


@displayed
class PassInputs(NamedTuple):
    """The inputs of one pass, and the names of the tokens that each stack reads in it.

    arguments, options: of the model's forward · words: by stack, such as "" or "encoder".
    """

    arguments: tuple[Tensor, ...]
    options: Mapping[str, object]
    words: Mapping[str, tuple[str, ...]]


class Question(Protocol):
    """One input for one model, which can be traced, recorded and edited."""

    @property
    def model(self) -> nn.Module:
        """The model, in evaluation mode."""

    @property
    def vocabulary(self) -> Vocabulary | None:
        """The names of the model's input ids; None for vectors."""

    def prompt_inputs(self) -> Mapping[str, Tensor]:
        """Return the model's inputs before it answers, by name."""

    def pass_inputs(self) -> PassInputs:
        """Return the inputs for the whole answer in one pass."""

    def trace(self) -> Trace:
        """Answer, and record each step."""

    def after(self, choices: Sequence[str]) -> Self:
        """Return the question that remains after the first choices."""


@displayed
@dataclass(frozen=True)
class Continuation:
    """A prompt that a decoder continues greedily by `num_tokens`: prompt (1, length) ids.

    expected: the correct choices, if known; here and in every other question.
    """

    model: Decoder = field(repr=False)
    prompt: Tensor
    num_tokens: int
    vocabulary: Sequence[str]
    forbidden: Sequence[int] = ()
    num_input: int | None = None
    expected: Sequence[str] | None = None

    def _card(self) -> Card:
        return answer_card(type(self).__name__, self.trace())

    def prompt_inputs(self) -> Mapping[str, Tensor]:
        """Return the prompt."""
        return {"tokens": self.prompt}

    @torch.no_grad()
    def pass_inputs(self) -> PassInputs:
        """Return all tokens but the last, which is never a query."""
        tokens = generate(self.model, self.prompt, self.num_tokens, forbidden=self.forbidden).tokens
        seen = tokens[:, :-1] if self.num_tokens else tokens
        return PassInputs((seen,), {}, {"": names_at(self.vocabulary, seen[0].tolist())})

    def trace(self) -> Trace:
        """Continue, step by step."""
        traces = trace(
            self.model, self.prompt, self.num_tokens, self.vocabulary, forbidden=self.forbidden
        )
        shown = traces[0].input[: self.num_input]
        return replace(traces[0], input=shown).with_expected(self.expected)

    def after(self, choices: Sequence[str]) -> Self:
        """Append the choices to the prompt."""
        return replace(
            self,
            prompt=extended(self.prompt, _ids_of(choices, self.vocabulary)),
            num_tokens=steps_left(self.num_tokens, choices),
            num_input=self.num_input or self.prompt.shape[1],
            expected=self.expected and self.expected[len(choices) :],
        )


@displayed
@dataclass(frozen=True)
class Translation:
    """A source that an encoder–decoder translates greedily from `start`, by at most `num_tokens`.

    source (1, length) or (1, length, parts) ids, with the names of its tokens · start (1, length)
    ids · stop ends it · candidates: ids whose probabilities are recorded, None for all.
    """

    model: EncoderDecoder = field(repr=False)
    source: Tensor
    source_words: Sequence[str]
    start: Tensor
    num_tokens: int
    vocabulary: Sequence[str]
    stop: int | None = None
    candidates: Sequence[int] | None = None
    expected: Sequence[str] | None = None

    def _card(self) -> Card:
        return answer_card(type(self).__name__, self.trace())

    def prompt_inputs(self) -> Mapping[str, Tensor]:
        """Return the source, and the start of the answer."""
        return {"source": self.source, "target": self.start}

    @torch.no_grad()
    def pass_inputs(self) -> PassInputs:
        """Return the source, and the target without its last token."""
        predictor = self.model.conditioned(self.source)
        target = generate(predictor, self.start, self.num_tokens, stop=self.stop).tokens[:, :-1]
        names = names_at(self.vocabulary, target[0].tolist())
        words = {"encoder": tuple(self.source_words), "decoder": names}
        return PassInputs((self.source, target), {}, words)

    def trace(self) -> Trace:
        """Translate, step by step."""
        traces = trace_translation(
            self.model,
            self.source,
            self.start,
            self.num_tokens,
            self.vocabulary,
            source_words=[self.source_words],
            stop=self.stop,
            candidates=self.candidates,
        )
        return traces[0].with_expected(self.expected)

    def after(self, choices: Sequence[str]) -> Self:
        """Append the choices to the start."""
        return replace(
            self,
            start=extended(self.start, _ids_of(choices, self.vocabulary)),
            num_tokens=steps_left(self.num_tokens, choices),
            expected=self.expected and self.expected[len(choices) :],
        )


class _OnePass:
    """A question whose answers are all given in one pass."""

    def _card(self) -> Card:
        return answer_card(type(self).__name__, self.trace())

    def trace(self) -> Trace:
        """Answer, and record each step."""
        raise NotImplementedError

    def after(self, choices: Sequence[str]) -> Self:
        """Return the question itself; only no choices can have been made."""
        steps_left(1, choices)
        return self


@displayed
@dataclass(frozen=True)
class Classification(_OnePass):
    """A text that an encoder classifies: tokens (1, length) ids, their names, the names of the
    classes.

    note: a remark on the names of the tokens for the reader.
    """

    model: Encoder = field(repr=False)
    tokens: Tensor
    words: Sequence[str]
    classes: Sequence[str]
    expected: Sequence[str] | None = None
    note: str = ""

    @property
    def vocabulary(self) -> Mapping[int, str]:
        """The names of the ids in this text; words with the same id, as unknown ones, are joined:
        `a | b`."""
        words_by_token: dict[int, dict[str, None]] = {}
        for token, word in zip(self.tokens[0].tolist(), self.words, strict=True):
            words_by_token.setdefault(token, {})[word] = None
        return {token: " | ".join(words) for token, words in words_by_token.items()}

    def prompt_inputs(self) -> Mapping[str, Tensor]:
        """Return all tokens."""
        return {"tokens": self.tokens}

    def pass_inputs(self) -> PassInputs:
        """Return all tokens, none of them padding."""
        real = torch.ones(self.tokens.shape[:2], dtype=torch.bool)
        return PassInputs((self.tokens,), {"real": real}, {"": tuple(self.words)})

    @torch.no_grad()
    def trace(self) -> Trace:
        """Classify, in a single step."""
        inputs = self.pass_inputs()
        with record(self.model, "layers.*.attention.weights") as recording:
            probabilities = self.model(*inputs.arguments, **inputs.options).softmax(-1)[0]
        choice = self.classes[int(probabilities.argmax())]
        step = Step(None, tuple(self.classes), tuple(probabilities.tolist()), choice)
        words, heads = tuple(self.words), head_traces(recording, is_causal=False)
        return Trace(words, words, (step,), heads, self.note).with_expected(self.expected)


@displayed
@dataclass(frozen=True)
class Vectors(_OnePass):
    """Vectors that a single head maps: x (1, length, input_dim), the names of its tokens and of the
    answers.

    Several output components are the shares of the answers, as with one-hot value vectors; one
    component y between -1 and 1 means the shares (1 - y)/2 and (1 + y)/2 of two answers. Positions
    that are not `counted` give no answer.
    """

    model: SingleHead = field(repr=False)
    x: Tensor
    words: Sequence[str]
    answers: Sequence[str]
    counted: Sequence[bool]
    expected: Sequence[str] | None = None
    vocabulary: None = None

    def prompt_inputs(self) -> Mapping[str, Tensor]:
        """Return all vectors."""
        return {"x": self.x}

    def pass_inputs(self) -> PassInputs:
        """Return all vectors."""
        return PassInputs((self.x,), {}, {"": tuple(self.words)})

    @torch.no_grad()
    def trace(self) -> Trace:
        """Map the vectors, with a step for each position that answers, all in one pass."""
        with record(self.model, "weights") as recording:
            output = self.model(self.x).output[0]
        shares = output
        if output.shape[-1] == 1:
            shares = torch.cat(((1 - output) / 2, (1 + output) / 2), -1)
        steps, answers = [], tuple(self.answers)
        for place, (row, counts) in enumerate(zip(shares, self.counted, strict=True)):
            if counts:
                choice = answers[int(row.argmax())]
                steps.append(Step(None, answers, tuple(row.tolist()), choice, place=place))
        words, heads = tuple(self.words), head_traces(recording, is_causal=False)
        return Trace(words, words, tuple(steps), heads).with_expected(self.expected)


@torch.no_grad()
def recorded(
    question: Question,
    patterns: str | Sequence[str] = "*weights",
    *,
    inputs: PassInputs | None = None,
) -> Recording:
    """Record a model while it answers a question in one pass, or reads other inputs.

    Tokens are named as the inputs name them, each occurrence by its own word.

    Args:
        question: what `attnlab.ask` returns.
        patterns: the sites to record, with `*` for anything.
        inputs: a `PassInputs` to read in place of the question's, such as an answer up to a step.

    Returns:
        the `Recording`, with the names of the tokens.

    Raises:
        WrongUsage: a pattern that matches nothing.
        CouldNotRun: the values do not fit in memory.
    """
    arguments, options, words = inputs or question.pass_inputs()
    sites = matching_sites(patterns, question.model)
    with record(question.model, sites, vocabulary=question.vocabulary) as recording:
        question.model(*arguments, **options)
    return recording.named(words)


def steps_left(num_tokens: int, choices: Sequence[str]) -> int:
    """Return the number of steps left after some choices.

    Raises:
        WrongUsage: no step is left.
    """
    if choices and len(choices) >= num_tokens:
        raise WrongUsage(f"after {len(choices)} of {num_tokens} steps there is none left.")
    return num_tokens - len(choices)


def extended(tokens: Tensor, ids: Sequence[int]) -> Tensor:
    """Append ids to tokens (1, length)."""
    more = torch.tensor([list(ids)], dtype=tokens.dtype, device=tokens.device)
    return torch.cat((tokens, more), 1)


def _ids_of(choices: Sequence[str], vocabulary: Sequence[str]) -> list[int]:
    names = list(vocabulary)
    for choice in choices:
        if names.count(choice) > 1:
            raise WrongUsage(f"the vocabulary calls {names.count(choice)} tokens {choice!r}.")
    return list(map(names.index, choices))
