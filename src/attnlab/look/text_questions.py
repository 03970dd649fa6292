"""Texts as questions for pretrained models, in the form of `questions.py`.

The kind of question follows from the model's output, not from its name: the next token, a word in
the place of a mask, a class, or only vectors.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Self

import torch
from torch import Tensor

from attnlab.display import displayed
from attnlab.errors import AttnlabError, CouldNotRun, WrongUsage
from attnlab.look.questions import Passage, Question
from attnlab.look.recording import record
from attnlab.look.trace import HeadTrace, Step, Trace
from attnlab.pretrained.model import Pretrained
from attnlab.pretrained.text_inputs import most_tokens, stops_of, target_ids
from attnlab.pretrained.token_names import TokenNames
from attnlab.shapes import require_integer

__all__ = ["TextAnswer", "TextChoice", "TextContinuation", "TextReading", "question_of"]

CANDIDATES = 24  # likeliest tokens in a step of a trace; the choice and the right one are added
MOST_WEIGHTS = 4_000_000  # in a trace
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

    @property
    def vocabulary(self) -> TokenNames:
        """The names of the token ids."""
        return _names(self.model)

    def passage(self) -> Passage:
        """Return the inputs for all of the text."""
        return _passage(self.model, self.inputs)

    @torch.no_grad()
    def trace(self) -> Trace:
        """Read the text, without steps."""
        return _traced(self.model, self.inputs, ())

    def after(self, choices: Sequence[str]) -> Self:
        """Return the question itself; any choice is an error."""
        if choices:
            raise WrongUsage("this model makes no choices, so there is nothing to continue.")
        return self


@displayed
@dataclass(frozen=True)
class TextChoice(TextReading):
    """A text that a model classifies, tags or fills in one pass.

    places: positions with an answer, or None for one of the whole text · names: of the answers ·
    right: the ids of the correct ones, as far as known · is_each: each class has a probability of
    its own.
    """

    places: tuple[int, ...] | None
    names: Sequence[str]
    right: tuple[int, ...] = ()
    is_each: bool = False

    @torch.no_grad()
    def trace(self) -> Trace:
        """Answer at every place in one pass."""
        logits = _logits(self.model, self.inputs)[0]
        rows = logits[None] if self.places is None else logits[list(self.places)]
        steps = []
        for number, row in enumerate(rows):
            right = self.right[number] if number < len(self.right) else None
            place = None if self.places is None else self.places[number]
            if len(row) == 1:  # a number, not a choice
                steps.append(Step(None, (), (), f"{float(row[0]):.4g}"))
            else:
                shares = row.sigmoid() if self.is_each else row.softmax(-1)
                steps.append(_step(None, shares, self.names, right, place=place))
        return _traced(self.model, self.inputs, tuple(steps))

    def after(self, choices: Sequence[str]) -> Self:
        """Return the question itself; any choice is an error."""
        if choices:
            raise WrongUsage(
                "this answer is made in one pass; it cannot be continued after a choice."
            )
        return self


@displayed
@dataclass(frozen=True)
class TextContinuation(TextReading):
    """A prompt that a model continues greedily by up to `num_tokens`.

    right: the ids of the correct continuation, as far as known · num_input: how many tokens are the
    user's; None for all.
    """

    num_tokens: int
    right: tuple[int, ...] = ()
    num_input: int | None = None

    @property
    def prompt(self) -> Tensor:
        """Its ids, (1, length)."""
        return self.inputs["input_ids"]

    def passage(self) -> Passage:
        """Return the inputs for all tokens but the last, which is never a query."""
        seen = self.prompt if self.num_tokens <= 1 else self._answered()[0][:, :-1]
        return _passage(self.model, self._inputs_of(seen))

    @torch.no_grad()
    def trace(self) -> Trace:
        """Continue, token by token."""
        tokens, shares = self._answered()
        steps = _steps(shares, self.prompt.shape[1], tokens, self.vocabulary, self.right)
        given = self.prompt.shape[1] if self.num_input is None else self.num_input
        inputs = self._inputs_of(tokens[:, :-1] if steps else tokens)
        found = _traced(self.model, inputs, steps, is_causal=True)
        names = _words(self.vocabulary, tokens)
        return replace(found, input=names[:given], tokens=names)

    def after(self, choices: Sequence[str]) -> Self:
        """Append the choices to the prompt."""
        left = _left(self.num_tokens, choices)
        given = self.prompt.shape[1] if self.num_input is None else self.num_input
        inputs = self._inputs_of(_extended(self.prompt, choices, self.vocabulary))
        return replace(
            self, inputs=inputs, num_tokens=left, right=self.right[len(choices) :], num_input=given
        )

    def _inputs_of(self, tokens: Tensor) -> dict[str, Tensor]:
        """Return the model's inputs for these tokens; inputs per token are extended by their
        last."""
        more = tokens.shape[1] - self.prompt.shape[1]
        extended = {
            name: torch.cat((each, each[:, -1:].expand(-1, more)), 1)
            for name, each in self.inputs.items()
        }
        return {**extended, "input_ids": tokens}

    def _answered(self) -> tuple[Tensor, list[Tensor]]:
        return _greedy(self.model, self._inputs_of, self.prompt, self.num_tokens)


@displayed
@dataclass(frozen=True)
class TextAnswer(TextReading):
    """A source that an encoder–decoder answers greedily by up to `num_tokens`.

    right: the ids of the correct answer, as far as known.
    """

    num_tokens: int
    right: tuple[int, ...] = ()

    @property
    def start(self) -> Tensor:
        """The ids that the decoder starts from, (1, length)."""
        return self.inputs["decoder_input_ids"]

    def passage(self) -> Passage:
        """Return the inputs for the source, and the answer without its last token."""
        seen = self.start if self.num_tokens <= 1 else self._answered()[0][:, :-1]
        return _passage(self.model, {**self.inputs, "decoder_input_ids": seen})

    @torch.no_grad()
    def trace(self) -> Trace:
        """Answer, token by token; the trace's tokens are the answer's."""
        tokens, shares = self._answered()
        steps = _steps(shares, self.start.shape[1], tokens, self.vocabulary, self.right)
        inputs = {**self.inputs, "decoder_input_ids": tokens[:, :-1] if steps else tokens}
        found = _traced(self.model, inputs, steps, "decoder.*weights", is_causal=True)
        return replace(found, tokens=_words(self.vocabulary, tokens))

    def after(self, choices: Sequence[str]) -> Self:
        """Append the choices to the start."""
        left = _left(self.num_tokens, choices)
        start = _extended(self.start, choices, self.vocabulary)
        inputs = {**self.inputs, "decoder_input_ids": start}
        return replace(self, inputs=inputs, num_tokens=left, right=self.right[len(choices) :])

    def _answered(self) -> tuple[Tensor, list[Tensor]]:
        def reading(tokens: Tensor) -> dict[str, Tensor]:
            return {**self.inputs, "decoder_input_ids": tokens}

        return _greedy(self.model, reading, self.start, self.num_tokens)


@torch.no_grad()
def question_of(
    model: Pretrained,
    text: str,
    pair: str | None = None,
    *,
    steps: int | None = None,
    target: str | None = None,
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
            what is wrong.

    Raises:
        WrongUsage: an empty text, one that is too long, an unknown class, or a target for a model
            that makes no choices.
        CouldNotRun: the model has no tokenizer.
    """
    inputs = model.inputs(text, pair)
    if steps is not None:
        require_integer("steps", steps, low=0)
    try:
        kind = _kind_of(model, inputs)
    except AttnlabError:
        raise
    except Exception as error:  # a foreign model can fail in any way
        words = " ".join(str(error).split())[:200].rstrip(".")
        raise CouldNotRun(
            f"{model.name} could not read this text by itself ({type(error).__name__}: {words}); "
            "if it needs more than a text, call it with all its inputs: model(**inputs)."
        ) from None
    if kind in ("continues", "answers"):
        return _generating(model, inputs, kind, text, steps, target)
    if steps is not None:
        raise WrongUsage(
            f"{model.name} {kind} a text in one pass, so there are no steps to count; leave "
            "steps out."
        )
    if kind == "fills":
        return _filling(model, inputs, target)
    if kind == "reads":
        if target is not None:
            raise WrongUsage(
                f"{model.name} answers with vectors, so there is no right answer to compare with."
            )
        return TextReading(model, inputs)
    return _judging(model, inputs, kind, target)


def _kind_of(model: Pretrained, inputs: Mapping[str, Tensor]) -> str:
    """Return what a model does with a text: it "continues", "answers", "fills", "tags", "judges" or
    "reads" it."""
    logits = _logits(model, inputs)
    if "logits" not in model.sites:
        return "reads"
    if "decoder_input_ids" in inputs:
        return "answers" if logits.dim() == 3 else "judges"
    if logits.dim() != 3:
        return "judges"
    if logits.shape[-1] < len(_names(model)) // 2:
        return "tags"
    ids = inputs["input_ids"]
    ids = ids[:, :2] if ids.shape[1] > 1 else ids.expand(1, 2)
    others = torch.cat((ids[:, :1], (ids[:, 1:] + 1) % len(_names(model))), 1)
    # A model whose first logits do not depend on the second token is causal.
    before, after = (_logits(model, {"input_ids": each})[:, 0] for each in (ids, others))
    return "continues" if torch.allclose(before, after, rtol=1e-3, atol=1e-4) else "fills"


def _generating(
    model: Pretrained,
    inputs: Mapping[str, Tensor],
    kind: str,
    text: str,
    steps: int | None,
    target: str | None,
) -> Question:
    names = _names(model)
    if kind == "answers":
        right = () if target is None else tuple(target_ids(model, _said(target)))
        steps = steps if steps is not None else len(right) or _DEFAULT_ANSWER
        length = steps
    else:
        ids = inputs["input_ids"]
        last = int(ids[0, -1])
        if ids.shape[1] > 1 and last in stops_of(model) and not text.endswith(names[last]):
            # The tokenizer appended an end token.
            inputs = {name: each[:, :-1] for name, each in inputs.items()}
        right = () if target is None else tuple(_continuing(names, text, _said(target)))
        steps = steps if steps is not None else len(right) or 1
        length = inputs["input_ids"].shape[1] + max(steps, 1) - 1
    most = most_tokens(model.foreign)
    if most is not None and length > most:
        raise WrongUsage(
            f"with {steps} more it is {length:,} tokens, and {model.name} reads at most {most:,}."
        )
    made = TextAnswer if kind == "answers" else TextContinuation
    return made(model, inputs, steps, right[:steps])


def _filling(model: Pretrained, inputs: Mapping[str, Tensor], target: str | None) -> Question:
    ids, mask = inputs["input_ids"][0].tolist(), model.tokenizer.mask_token_id
    places = tuple(place for place, token in enumerate(ids) if token == mask)
    words = [] if target is None else _said(target).split()
    right = []
    for word in words:
        found = _names(model).ids_of(word)
        if len(found) == 0:
            raise WrongUsage(f"{_names(model).missing(word)}.")
        right.append(found[-1])
    if words and len(words) != len(places):
        raise WrongUsage(
            f"the text must have one {model.tokenizer.mask_token} for each word of the target; "
            f"got {len(places)} for {len(words)}."
        )
    if not places:
        return TextReading(model, inputs)
    return TextChoice(model, inputs, places, _names(model), tuple(right))


def _judging(
    model: Pretrained, inputs: Mapping[str, Tensor], kind: str, target: str | None
) -> Question:
    config = getattr(model.foreign, "config", None)
    labels = getattr(config, "id2label", None) or {}
    num_classes = _logits(model, inputs).shape[-1]
    classes = tuple(str(labels.get(number, number)) for number in range(num_classes))
    right: tuple[int, ...] = ()
    places = None
    if kind == "tags":
        ids, special = inputs["input_ids"][0].tolist(), set(model.tokenizer.all_special_ids)
        places = tuple(place for place, token in enumerate(ids) if token not in special)
    if target is not None:
        wanted = _said(target).split() if kind == "tags" else [_said(target)]
        unknown = [each for each in wanted if each not in classes]
        if unknown:
            raise WrongUsage(
                f"{unknown[0]!r} is no class of {model.name}; it has {', '.join(classes)}."
            )
        right = tuple(classes.index(each) for each in wanted)
    is_each = getattr(config, "problem_type", None) == "multi_label_classification"
    return TextChoice(model, inputs, places, classes, right, is_each)


@torch.no_grad()
def _greedy(
    model: Pretrained,
    reading: Callable[[Tensor], Mapping[str, Tensor]],
    tokens: Tensor,
    num_tokens: int,
) -> tuple[Tensor, list[Tensor]]:
    """Generate greedily; return all ids, and the probabilities of each step."""
    stops, shares = stops_of(model), []
    for _ in range(num_tokens):
        shares.append(_logits(model, reading(tokens))[0, -1].softmax(-1))
        tokens = torch.cat((tokens, shares[-1].argmax().reshape(1, 1)), 1)
        if int(tokens[0, -1]) in stops:
            break
    return tokens, shares


def _logits(model: Pretrained, inputs: Mapping[str, Tensor]) -> Tensor:
    """Run a model, and return its output in at least single precision."""
    found: Tensor = model(**inputs, **_without_cache(model))
    return found.float() if found.dtype in (torch.float16, torch.bfloat16) else found


def _without_cache(model: Pretrained) -> dict[str, bool]:
    """Return the option that turns a model's cache off, if it has one."""
    has_cache = hasattr(getattr(model.foreign, "config", None), "use_cache")
    return {"use_cache": False} if has_cache else {}


def _passage(model: Pretrained, inputs: Mapping[str, Tensor]) -> Passage:
    names = _names(model)
    words = {stack.name: _words(names, inputs["input_ids"]) for stack in model.structure.stacks}
    if "decoder_input_ids" in inputs:
        words["decoder"] = _words(names, inputs["decoder_input_ids"])
    return Passage((), {**inputs, **_without_cache(model)}, words)


def _traced(
    model: Pretrained,
    inputs: Mapping[str, Tensor],
    steps: tuple[Step, ...],
    pattern: str = "",
    *,
    is_causal: bool = False,
) -> Trace:
    """Record the attention of all heads in one more pass, and return it with the steps.

    Beyond `MOST_WEIGHTS` the attention is left out: a recording or a summary holds it better.
    """
    words = _words(_names(model), inputs["input_ids"])
    pattern = pattern or ("encoder.*weights" if "decoder_input_ids" in inputs else "*weights")
    heads: list[HeadTrace] = []
    with record(model, pattern) as recording:
        model(**inputs, **_without_cache(model))
    if sum(prod(recording.shape(site)[1:]) for site in recording) > MOST_WEIGHTS:
        return Trace(words, words, steps, ())
    for site in recording:
        _, _, queries, keys = recording.shape(site)
        key_tokens: tuple[str, ...] | None = None
        if "cross" in site:
            key_tokens = words
        elif queries != keys:
            key_tokens = tuple(recording.tokens(site).key)
        for head, rows in enumerate(recording[site][0].tolist()):
            if key_tokens is None and is_causal:
                rows = [row[: query + 1] for query, row in enumerate(rows)]
            heads.append(HeadTrace(site, head, tuple(map(tuple, rows)), key_tokens))
    return Trace(words, words, steps, tuple(heads))


def _steps(
    shares: Sequence[Tensor], start: int, tokens: Tensor, names: TokenNames, right: Sequence[int]
) -> tuple[Step, ...]:
    known = [*right, *(None for _ in shares)]
    return tuple(
        _step(start + number - 1, each, names, known[number], choice=int(tokens[0, start + number]))
        for number, each in enumerate(shares)
    )


def _step(
    position: int | None,
    shares: Tensor,
    names: Sequence[str],
    right: int | None,
    *,
    choice: int | None = None,
    place: int | None = None,
) -> Step:
    """Return a step with the likeliest answers, the choice and the correct one."""
    shown = shares.topk(min(CANDIDATES, len(shares))).indices.tolist()
    choice = int(shares.argmax()) if choice is None else choice
    shown += [token for token in (choice, right) if token is not None and token not in shown]
    candidates = tuple(names[token] for token in shown)
    probabilities = tuple(float(shares[token]) for token in shown)
    expected = None if right is None else names[right]
    return Step(position, candidates, probabilities, names[choice], place, expected)


def _names(model: Pretrained) -> TokenNames:
    assert model.vocabulary is not None  # the text was read with a tokenizer
    return model.vocabulary


def _words(names: TokenNames, ids: Tensor) -> tuple[str, ...]:
    return tuple(names[token] for token in ids[0].tolist())


def _said(target: str) -> str:
    if not target.strip():
        raise WrongUsage("the target is empty; leave it out, or give the correct answer.")
    return target


def _continuing(names: TokenNames, text: str, target: str) -> list[int]:
    """Return the ids of a continuation, which begins with a blank unless the text ends in one."""
    is_apart = text[-1:].isspace() or target[:1].isspace()
    return names.pieces(target if is_apart else f" {target}")


def _left(num_tokens: int, choices: Sequence[str]) -> int:
    if len(choices) >= num_tokens and choices:
        raise WrongUsage(
            f"this answer has {num_tokens} {'step' if num_tokens == 1 else 'steps'}, from 1 to "
            f"{num_tokens}; it cannot be continued after {len(choices)}."
        )
    return num_tokens - len(choices)


def _extended(tokens: Tensor, choices: Sequence[str], names: TokenNames) -> Tensor:
    if not choices:
        return tokens
    ids = [[names.id_of(choice) for choice in choices]]
    return torch.cat((tokens, torch.tensor(ids, dtype=tokens.dtype, device=tokens.device)), 1)
