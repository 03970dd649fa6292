"""Texts as questions for pretrained models, in the form of `questions.py`.

The kind of question follows from the model's output, not from its name: the next token, a word in
the place of a mask, a class, or only vectors.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from math import prod
from typing import ClassVar, Self

import torch
from torch import Tensor

from attnlab.display import Card, displayed
from attnlab.errors import AttnlabError, CouldNotRun, WrongUsage, not_none
from attnlab.look.questions import PassInputs, Question, extended, steps_left
from attnlab.look.recording import record
from attnlab.look.trace import Step, Trace, answer_card, head_traces, names_at
from attnlab.pretrained.model import Pretrained
from attnlab.pretrained.text import TokenNames, answer_ids, max_tokens, stops_of
from attnlab.shapes import require_integer

CANDIDATES = 24  # likeliest tokens in a step of a trace; the choice and the right one are added
MAX_WEIGHTS = 4_000_000  # in a trace
_DEFAULT_ANSWER = 20  # tokens of a translation


@displayed
@dataclass(frozen=True)
class TextReading:
    """A text that a model turns into vectors: its trace has no steps, but the attention of all
    heads.

    inputs: the model's inputs by name, (1, length).
    """

    model: Pretrained = field(repr=False)
    inputs: Mapping[str, Tensor]

    _refusal: ClassVar[str] = "this model makes no choices, so its answer cannot be continued."
    _stack: ClassVar[str] = "encoder"  # whose attention is shown, where there are two
    _is_causal: ClassVar[bool] = False

    @property
    def vocabulary(self) -> TokenNames:
        """The names of the token ids."""
        return _names(self.model)

    def _card(self) -> Card:
        kind = f"{self.model.name}, {type(self).__name__}"
        return answer_card(kind, self._trace(has_attention=False), self._text())

    def _text(self) -> str:
        tokenizer = self.model.tokenizer
        around = {*tokenizer.all_special_ids} - {tokenizer.mask_token_id}
        ids = [token for token in self.inputs["input_ids"][0].tolist() if token not in around]
        return str(tokenizer.decode(ids))

    def prompt_inputs(self) -> Mapping[str, Tensor]:
        """Return the model's inputs before it answers."""
        return self.inputs

    def pass_inputs(self) -> PassInputs:
        """Return the inputs for the whole text."""
        return self._inputs_of(self.inputs)

    def trace(self) -> Trace:
        """Answer, step by step, and record the attention of all heads."""
        return self._trace(has_attention=True)

    def _trace(self, *, has_attention: bool) -> Trace:
        """Read the text, without steps."""
        return self._traced(self.inputs, [], has_attention)

    def after(self, choices: Sequence[str]) -> Self:
        """Return the question itself; any choice is an error."""
        if choices:
            raise WrongUsage(self._refusal)
        return self

    def _inputs_of(self, inputs: Mapping[str, Tensor]) -> PassInputs:
        words = dict.fromkeys(self.model.structure.names, self._words(inputs["input_ids"]))
        if "decoder_input_ids" in inputs:
            words["decoder"] = self._words(inputs["decoder_input_ids"])
        return PassInputs((), {**inputs, **_without_cache(self.model)}, words)

    @torch.no_grad()
    def _traced(
        self, inputs: Mapping[str, Tensor], steps: Sequence[Step], has_attention: bool
    ) -> Trace:
        """Record the attention of all heads in one more pass, if asked, and return it with the
        steps.

        Beyond `MAX_WEIGHTS` the attention is left out: a recording or a summary holds it better.
        """
        words, pattern = self._words(inputs["input_ids"]), "*weights"
        if "decoder_input_ids" in inputs:
            pattern = f"{self._stack}.*weights"
        if not has_attention:
            return Trace(words, words, tuple(steps), ())
        with record(self.model, pattern) as recording:
            self.model(**inputs, **_without_cache(self.model))
        if sum(prod(recording.shape(site)[1:]) for site in recording) > MAX_WEIGHTS:
            return Trace(words, words, tuple(steps), ())
        key_tokens = {}
        for site in recording:
            _, _, queries, keys = recording.shape(site)
            if "cross" in site:
                key_tokens[site] = words
            elif queries != keys:
                key_tokens[site] = tuple(recording.tokens(site).key)
        heads = head_traces(recording, is_causal=self._is_causal, key_tokens=key_tokens)
        return Trace(words, words, tuple(steps), heads)

    def _words(self, ids: Tensor) -> tuple[str, ...]:
        return names_at(self.vocabulary, ids[0].tolist())


@displayed
@dataclass(frozen=True)
class TextChoice(TextReading):
    """A text that a model classifies, tags or fills in one pass.

    places: positions with an answer, or None for one of the whole text · names: of the answers ·
    right: the ids of the correct ones, if known · is_each: the classes have independent
    probabilities.
    """

    places: tuple[int, ...] | None
    names: Sequence[str]
    right: tuple[int, ...] = ()
    is_each: bool = False

    _refusal = "this answer is made in one pass; it cannot be continued after a choice."

    @torch.no_grad()
    def _trace(self, *, has_attention: bool) -> Trace:
        """Answer at every place in one pass."""
        logits = _logits(self.model, self.inputs)[0]
        places: Sequence[int | None] = [None]
        if self.places is None:
            logits = logits.unsqueeze(0)
        else:
            places, logits = self.places, logits[list(self.places)]
        steps = []
        for row, place, right in zip_longest(logits, places, self.right):
            if len(row) == 1:  # a number, not a choice
                steps.append(Step(None, (), (), f"{float(row[0]):.4g}"))
                continue
            shares = row.sigmoid() if self.is_each else row.softmax(-1)
            step = _step(None, shares, self.names, int(shares.argmax()), right)
            steps.append(replace(step, place=place))
        return self._traced(self.inputs, steps, has_attention)


@displayed
@dataclass(frozen=True)
class _Generated(TextReading):
    """A text that a model continues greedily by up to `num_tokens`.

    right: the ids of the correct tokens, if known.
    """

    num_tokens: int
    right: tuple[int, ...] = ()

    _stack = "decoder"
    _is_causal = True
    _growing: ClassVar[str]  # the input to which generated tokens are appended

    def pass_inputs(self) -> PassInputs:
        """Return the inputs for all tokens but the last, which is never a query."""
        tokens = self.inputs[self._growing]
        if self.num_tokens > 1:
            tokens = self._answered()[0][:, :-1]
        return self._inputs_of(self._reading(tokens))

    def _trace(self, *, has_attention: bool) -> Trace:
        """Generate, token by token."""
        tokens, shares = self._answered()
        start = self.inputs[self._growing].shape[1]
        chosen = tokens[0, start:].tolist()
        steps = []
        for place, (row, right) in enumerate(zip_longest(shares, self.right[: len(shares)])):
            steps.append(_step(start + place - 1, row, self.vocabulary, chosen[place], right))
        inputs = self._reading(tokens[:, :-1] if steps else tokens)
        return replace(self._traced(inputs, steps, has_attention), tokens=self._words(tokens))

    def after(self, choices: Sequence[str]) -> Self:
        """Append the choices to the tokens so far."""
        left = steps_left(self.num_tokens, choices)
        ids = list(map(self.vocabulary.id_of, choices))
        inputs = self._reading(extended(self.inputs[self._growing], ids))
        return replace(self, inputs=inputs, num_tokens=left, right=self.right[len(choices) :])

    def _reading(self, tokens: Tensor) -> dict[str, Tensor]:
        """Return the model's inputs for these tokens."""
        return {**self.inputs, self._growing: tokens}

    @torch.no_grad()
    def _answered(self) -> tuple[Tensor, list[Tensor]]:
        """Generate greedily; return all ids, and the probabilities of each step."""
        tokens, stops = self.inputs[self._growing], stops_of(self.model)
        shares: list[Tensor] = []
        for _ in range(self.num_tokens):
            shares.append(_logits(self.model, self._reading(tokens))[0, -1].softmax(-1))
            choice = int(shares[-1].argmax())
            tokens = extended(tokens, [choice])
            if choice in stops:
                break
        return tokens, shares


@displayed
@dataclass(frozen=True)
class TextContinuation(_Generated):
    """A prompt that a model continues greedily by up to `num_tokens`.

    right: the ids of the correct continuation, if known · num_input: the number of the user's own
    tokens; None for all.
    """

    num_input: int | None = None

    _growing = "input_ids"

    @property
    def prompt(self) -> Tensor:
        """Its ids, (1, length)."""
        return self.inputs["input_ids"]

    @property
    def _given(self) -> int:
        return self.prompt.shape[1] if self.num_input is None else self.num_input

    def _trace(self, *, has_attention: bool) -> Trace:
        """Continue, token by token."""
        traced = super()._trace(has_attention=has_attention)
        return replace(traced, input=traced.tokens[: self._given])

    def _text(self) -> str:
        return str(self.model.tokenizer.decode(self.prompt[0, : self._given].tolist()))

    def after(self, choices: Sequence[str]) -> Self:
        """Append the choices to the prompt."""
        return replace(super().after(choices), num_input=self._given)

    def _reading(self, tokens: Tensor) -> dict[str, Tensor]:
        """Return the model's inputs for these tokens; inputs per token are extended by their
        last."""
        more = tokens.shape[1] - self.prompt.shape[1]
        inputs = {}
        for name, tensor in self.inputs.items():
            inputs[name] = torch.cat((tensor, tensor[:, -1:].expand(-1, more)), 1)
        return {**inputs, "input_ids": tokens}


@displayed
@dataclass(frozen=True)
class TextAnswer(_Generated):
    """A source that an encoder–decoder answers greedily by up to `num_tokens`.

    right: the ids of the correct answer, if known.
    """

    _growing = "decoder_input_ids"


@torch.no_grad()
def question_of(
    model: Pretrained,
    text: str,
    pair: str | None = None,
    *,
    steps: int | None = None,
    target: str | None = None,
    kind: str | None = None,
) -> Question:
    """Make a question of a text: the model continues it, answers it, fills its masks, classifies
    it, or only reads it.

    Args:
        model: see `attnlab.load`.
        text: the input; for a model that fills masks, with its mask token in the place of a word.
        pair: a second text, for models that classify pairs.
        steps: how many tokens to generate at most; None for those of the target, or 1 of a
            continuation and 20 of an answer.
        target: the correct continuation, answer, words at the masks, or class; a trace then marks
            wrong choices.
        kind: what the model does with texts if that is known; None to try it out, see
        `answer_kind`.

    Raises:
        WrongUsage: an empty text, one that is too long, an unknown class, or a target for a model
            that makes no choices.
        CouldNotRun: the model has no tokenizer.
    """
    inputs = model.inputs(text, pair)
    if steps is not None:
        require_integer("steps", steps, low=0)
    if target is not None and not target.strip():
        raise WrongUsage("the target is empty; leave it out, or give the correct answer.")
    kind = kind or answer_kind(model, inputs)
    if kind == "continues":
        return _continuation(model, inputs, text, steps, target)
    if kind == "answers":
        return _answer(model, inputs, steps, target)
    if steps is not None:
        raise WrongUsage(f"{model.name} {kind} a text in one pass: there are no steps to count.")
    if kind == "fills":
        return _filling(model, inputs, target or "")
    if kind != "reads":
        return _classification(model, inputs, kind, target or "")
    if target is not None:
        raise WrongUsage(f"{model.name} answers with vectors, so it takes no target.")
    return TextReading(model, inputs)


def example_text(model: Pretrained) -> str:
    """Return an example of a text for a model, by the name of its class."""
    kind, mask = type(model.foreign).__name__, model.tokenizer.mask_token
    if "MaskedLM" in kind and mask is not None:
        return f"The capital of France is {mask}."
    if "CausalLM" in kind or "LMHead" in kind:
        return "When John and Mary went to the store, John gave a drink to"
    return "The film is warm and funny."


def answer_kind(model: Pretrained, inputs: Mapping[str, Tensor]) -> str:
    """Return what a model does with a text: it "continues", "answers", "fills", "tags",
    "classifies" or "reads" it."""
    try:
        return _kind_by_output(model, inputs)
    except AttnlabError:
        raise
    except Exception as error:  # a foreign model can fail in any way
        words = " ".join(str(error).split())[:200].rstrip(".")
        raise CouldNotRun(
            f"{model.name} could not read this text alone ({type(error).__name__}: {words}); if it "
            "needs more than a text, call it with all its inputs: model(**inputs)."
        ) from None


def _kind_by_output(model: Pretrained, inputs: Mapping[str, Tensor]) -> str:
    logits = _logits(model, inputs)
    if "logits" not in model.sites:
        return "reads"
    if logits.dim() != 3:
        return "classifies"
    if "decoder_input_ids" in inputs:
        return "answers"
    size = len(model.vocabulary or ()) or logits.shape[-1]
    if logits.shape[-1] < size // 2:
        return "tags"
    name = model.input_names[0]
    first, second = inputs[name][:, [0]], inputs[name][:, :2][:, [-1]]
    ids, others = (torch.cat((first, ids), 1) for ids in (second, (second + 1) % size))
    # A model whose first logits do not depend on the second token is causal.
    before = _logits(model, {name: ids})[:, 0]
    after = _logits(model, {name: others})[:, 0]
    return "continues" if torch.allclose(before, after, rtol=1e-3, atol=1e-4) else "fills"


def _continuation(
    model: Pretrained,
    inputs: Mapping[str, Tensor],
    text: str,
    steps: int | None,
    target: str | None,
) -> Question:
    names, ids = _names(model), inputs["input_ids"]
    last = int(ids[0, -1])
    if ids.shape[1] > 1 and last in stops_of(model) and not text.endswith(names[last]):
        # The tokenizer appended an end token.
        inputs = {name: tensor[:, :-1] for name, tensor in inputs.items()}
    right: Sequence[int] = ()
    if target is not None:
        # A continuation begins with a blank unless the text ends in one.
        if not text[-1:].isspace() and not target[:1].isspace():
            target = f" {target}"
        right = names.pieces(target)
    steps = len(right) or 1 if steps is None else steps
    _check_length(model, steps, inputs["input_ids"].shape[1] + max(steps, 1) - 1)
    return TextContinuation(model, inputs, steps, tuple(right[:steps]))


def _answer(
    model: Pretrained, inputs: Mapping[str, Tensor], steps: int | None, target: str | None
) -> Question:
    right: Sequence[int] = () if target is None else answer_ids(model, target)
    steps = len(right) or _DEFAULT_ANSWER if steps is None else steps
    _check_length(model, steps, steps)
    return TextAnswer(model, inputs, steps, tuple(right[:steps]))


def _check_length(model: Pretrained, steps: int, length: int) -> None:
    most = max_tokens(model.foreign)
    if most is not None and length > most:
        raise WrongUsage(
            f"{steps} steps need {length:,} tokens; this model reads at most {most:,}."
        )


def _filling(model: Pretrained, inputs: Mapping[str, Tensor], target: str) -> Question:
    names, mask = _names(model), model.tokenizer.mask_token_id
    ids = inputs["input_ids"][0].tolist()
    places = tuple(place for place, token in enumerate(ids) if token == mask)
    right = []
    for word in target.split():
        word_ids = names.ids_of(word)
        if len(word_ids) == 0:
            raise WrongUsage(f"{names.missing(word)}.")
        right.append(word_ids[-1])
    if right and len(right) != len(places):
        raise WrongUsage(
            f"the text must have one {model.tokenizer.mask_token} for each word of the target; "
            f"got {len(places)} for {len(right)}."
        )
    if not places:
        return TextReading(model, inputs)
    return TextChoice(model, inputs, places, names, tuple(right))


def _classification(
    model: Pretrained, inputs: Mapping[str, Tensor], kind: str, target: str
) -> Question:
    config = getattr(model.foreign, "config", None)
    is_each = getattr(config, "problem_type", None) == "multi_label_classification"
    labels = getattr(config, "id2label", None) or {}
    num_classes = _logits(model, inputs).shape[-1]
    classes = tuple(str(labels.get(number, number)) for number in range(num_classes))
    if kind == "tags":
        ids, special = inputs["input_ids"][0].tolist(), set(model.tokenizer.all_special_ids)
        places = tuple(place for place, token in enumerate(ids) if token not in special)
        right = _right_classes(model, classes, target.split())[: len(places)]
        return TextChoice(model, inputs, places, classes, right, is_each)
    right = _right_classes(model, classes, [target] if target else [])
    return TextChoice(model, inputs, None, classes, right, is_each)


def _right_classes(
    model: Pretrained, classes: Sequence[str], wanted: Sequence[str]
) -> tuple[int, ...]:
    """Return the numbers of the wanted classes."""
    for name in wanted:
        if name not in classes:
            raise WrongUsage(
                f"{name!r} is not a class of {model.name}; it has {', '.join(classes)}."
            )
    return tuple(map(classes.index, wanted))


def _logits(model: Pretrained, inputs: Mapping[str, Tensor]) -> Tensor:
    """Run a model, and return its output in at least single precision."""
    logits: Tensor = model(**inputs, **_without_cache(model))
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def _without_cache(model: Pretrained) -> dict[str, bool]:
    """Return the option that turns a model's cache off, if it has one."""
    if hasattr(getattr(model.foreign, "config", None), "use_cache"):
        return {"use_cache": False}
    return {}


def _step(
    position: int | None, shares: Tensor, names: Sequence[str], choice: int, right: int | None
) -> Step:
    """Return a step with the likeliest answers, the choice and the correct one."""
    shown = shares.topk(min(CANDIDATES, len(shares))).indices.tolist()
    expected = None if right is None else names[right]
    for token in (choice, right):
        if token is not None and token not in shown:
            shown.append(token)
    candidates = names_at(names, shown)
    probabilities = tuple(shares[shown].tolist())
    return Step(position, candidates, probabilities, names[choice], expected=expected)


def _names(model: Pretrained) -> TokenNames:
    return not_none(model.vocabulary)  # the text was read with a tokenizer
