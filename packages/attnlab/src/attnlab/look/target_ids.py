"""Targets as ids: a token by its text or id, one for all inputs or for each."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from attnlab.errors import WrongUsage, did_you_mean, is_integer, type_words
from attnlab.look.readers import answer_names
from attnlab.look.recording.tokens import token_name
from attnlab.pretrained.text import BLANK, TokenNames

AnswerTarget: TypeAlias = Tensor | int | str | Sequence[Any] | None
"""A token by its text or id, for all inputs; a list of these, one for each input; ids (row, length)
of every position; None without a target."""


def target_ids(target: AnswerTarget, model: nn.Module, inputs: object = None) -> Tensor | None:
    """Return a target as ids: () for all inputs, (row,) for each, or (row, length).

    Args:
        target: see `AnswerTarget`. A text that does not begin with a blank begins a new word where
            the tokenizer knows such a token, unless the input ends in a blank.
        model: knows the names of its tokens or classes.
        inputs: the texts before the target, if they are texts.

    Raises:
        WrongUsage: a text of several tokens or of none, or something else.
    """
    if target is None or isinstance(target, Tensor):
        return target
    if isinstance(target, str) or is_integer(target):
        return torch.tensor(_id_of(target, model, inputs))
    if not isinstance(target, Sequence) or not target:
        raise WrongUsage(
            "a target is a text, an id, a list of these with one for each input, or a tensor of "
            f"ids; got {type_words(target)}."
        )
    if any(isinstance(token, str) for token in target):
        follows = inputs if isinstance(inputs, list | tuple) else [inputs] * len(target)
        pairs = zip(target, [*follows, *[None] * len(target)], strict=False)
        return torch.tensor([_id_of(token, model, text) for token, text in pairs])
    return torch.as_tensor(target)


def answer_name(number: int, model: nn.Module, size: int) -> str:
    """Return the name of an answer by its number, of a model with logits (…, size)."""
    classes = _classes_of(model)
    return token_name(number, classes if len(classes) == size else answer_names(model))


def answer_words(answers: Sequence[tuple[str, str]], position: object = -1) -> str:
    """Say whose number is measured, and where: each row's answer, and what is subtracted or "".

    >>> answer_words([(" Mary", ""), (" Mary", "")]), answer_words([("a", "b"), ("b", "a")], 3)
    (" of ' Mary', last position", ' of each answer, position 3')
    >>> answer_words([("a", "b")])
    " of 'a' less that of 'b', last position"
    """
    words = " of each answer" if answers else ""
    if len(set(answers)) == 1:
        [(answer, other)] = set(answers)
        words = f" of {answer!r}"
        if other:
            words += f" less that of {other!r}"
    if isinstance(position, int):
        words += ", last position" if position == -1 else f", position {position}"
    return words


def _id_of(target: Any, model: nn.Module, text: object) -> int:
    if is_integer(target):
        return int(target)
    if not isinstance(target, str):
        raise WrongUsage(f"a target is a text or an id; got {type_words(target)}.")
    classes = _classes_of(model)
    if target.strip() in classes:
        return classes.index(target.strip())
    names = answer_names(model)
    if names is None:
        raise WrongUsage(
            f"this {type(model).__name__} does not know the names of its tokens: give the id "
            f"instead of {target!r}."
        )
    if isinstance(names, TokenNames):
        return _token_id(target, names, text)
    numbered = names.items() if isinstance(names, Mapping) else enumerate(names)
    known = {str(name): number for number, name in numbered}
    if target.strip() not in known:
        raise WrongUsage(
            f"{target!r} is not an answer of this model; {did_you_mean(target, known)}"
        )
    return known[target.strip()]


def _token_id(target: str, names: TokenNames, text: object) -> int:
    """Return the id of a text that is one token, with a blank before it where a word begins."""
    plain = target.replace(BLANK, " ")
    ways = [plain]
    follows_blank = isinstance(text, str) and text[-1:].isspace()
    if plain[:1].isalnum() and not follows_blank:
        ways.insert(0, f" {plain}")
    for way in ways:
        pieces = names.pieces(way)
        if len(pieces) == 1 and not names.is_unknown(pieces[0]):
            return pieces[0]
    pieces = names.pieces(plain)
    if len(pieces) > 1:
        listed = " ".join(repr(names[piece]) for piece in pieces)
        raise WrongUsage(
            f"{target!r} is {len(pieces)} tokens here, {listed}, and a target is one: name the "
            "first of them."
        )
    raise WrongUsage(f"no token of this model is called {target!r}.")


def _classes_of(model: nn.Module) -> list[str]:
    """List the classes that a model of transformers names, if any."""
    config = getattr(getattr(model, "foreign", None), "config", None)
    labels = getattr(config, "id2label", None)
    if not isinstance(labels, Mapping):
        return []
    return [str(labels[number]) for number in sorted(labels)]
