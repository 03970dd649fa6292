"""From texts to batches of ids: texts of similar length together, padded on the right."""

from collections.abc import Callable, Iterator, Sequence
from operator import index
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from attnlab.errors import CouldNotRun, WrongUsage
from attnlab.look.long_text.inputs import arguments_for, check_ids
from attnlab.pretrained.model import Pretrained
from attnlab.pretrained.text import most_tokens, tokenized

Encode = Callable[[str], Sequence[int]]
_USUAL = 1024  # the most tokens of a text by default


class Batch(NamedTuple):
    """A batch of texts: ids and real (text, length), the numbers and lengths of the texts."""

    ids: Tensor
    real: Tensor
    numbers: list[int]
    lengths: list[int]


def encoder_of(model: nn.Module, encode: Encode | None, longest: int) -> Encode:
    """Return a function from a text to its ids, cut to `longest`.

    Raises:
        CouldNotRun: the model has no tokenizer, and `encode` is None.
        WrongUsage: `encode` is not a function; or, when called, does not return ids of this model.
    """
    if encode is not None:
        if not callable(encode):
            raise WrongUsage(
                f"encode is a function from a text to its ids; got a {type(encode).__name__}."
            )
        given = encode

        def checked(text: str) -> list[int]:
            try:
                ids = [index(each) for each in given(text)][:longest]
            except TypeError:
                raise WrongUsage(
                    "encode returns ids, whole numbers, one for each token of a text."
                ) from None
            check_ids(model, torch.tensor(ids))
            return ids

        return checked
    tokenizer = getattr(model, "tokenizer", None)
    if tokenizer is None:
        raise CouldNotRun("this model has no tokenizer: give a function from text to ids, encode=.")

    def encoded(text: str) -> list[int]:
        found = tokenized(tokenizer, text, truncation=True, max_length=longest)
        return [int(each) for each in found["input_ids"]]

    return encoded


def longest_of(model: nn.Module, asked: int | None) -> int:
    """Return how many tokens of a text are read: the number asked for, or the model's limit, at
    most 1,024."""
    foreign = model.foreign if isinstance(model, Pretrained) else model
    most = most_tokens(foreign)
    if asked is None:
        return _USUAL if most is None else min(most, _USUAL)
    is_whole = isinstance(asked, int) and not isinstance(asked, bool)
    if not is_whole or asked < 2 or (most is not None and asked > most):
        raise WrongUsage(
            f"max_length is how many tokens of a text are read, from 2 to {most or 'any'}; "
            f"got {asked!r}."
        )
    return asked


def batches(texts: Sequence[tuple[int, Sequence[int]]], most: int) -> Iterator[Batch]:
    """Group texts, (number, ids), of similar length into batches of at most `most` places.

    >>> [batch.numbers for batch in batches([(0, [1, 2]), (1, [1]), (2, [1, 2, 3, 4])], 4)]
    [[1, 0], [2]]
    """
    waiting: list[tuple[int, Sequence[int]]] = []
    for number, ids in sorted(texts, key=lambda each: (len(each[1]), each[0])):
        if waiting and (len(waiting) + 1) * len(ids) > most:
            yield _batch(waiting)
            waiting = []
        waiting.append((number, ids))
    if waiting:
        yield _batch(waiting)


def _batch(texts: Sequence[tuple[int, Sequence[int]]]) -> Batch:
    lengths = [len(ids) for _, ids in texts]
    found = torch.zeros(len(texts), max(lengths), dtype=torch.int64)
    for row, (_, ids) in enumerate(texts):
        found[row, : len(ids)] = torch.tensor(list(ids))
    real = torch.arange(max(lengths)) < torch.tensor(lengths).unsqueeze(-1)
    return Batch(found, real, [number for number, _ in texts], lengths)


def inputs_of(model: nn.Module, batch: Batch) -> tuple[tuple[Tensor, ...], dict[str, Any]]:
    """Return a model's arguments for a batch: in order, and by name."""
    foreign = model.foreign if isinstance(model, Pretrained) else model
    device = next((each.device for each in foreign.parameters()), torch.device("cpu"))
    is_padded = not bool(batch.real.all())
    real = batch.real.to(device) if is_padded else None
    return arguments_for(model, batch.ids.to(device), real)
