"""Texts as tensors: encoded once, drawn in epochs, padded to the longest of each batch."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from attnlab.tasks.texts import LabelledText
from attnlab.tasks.tokenizers import PAD, TextTokenizer

_BUCKET = 16  # batches sorted by length together, which saves padding


class Coded(NamedTuple):
    """Texts as ids, each (length,) or (length, parts), and class numbers, (texts,)."""

    ids: list[Tensor]
    labels: Tensor


class Batch(NamedTuple):
    """Padded ids, (batch, length) or (batch, length, parts), real tokens, and class numbers."""

    tokens: Tensor
    real: Tensor
    labels: Tensor


def code(rows: Sequence[LabelledText], tokenizer: TextTokenizer, classes: Sequence[str]) -> Coded:
    """Encode labelled texts."""
    number = {name: place for place, name in enumerate(classes)}
    ids = [torch.tensor(tokenizer.ids(row.text)) for row in rows]
    return Coded(ids, torch.tensor([number[row.label] for row in rows]))


def make_batch(coded: Coded, chosen: Sequence[int], *, length: int | None = None) -> Batch:
    """Make a batch of some texts, padded to the longest of them, or to `length`."""
    ids = [coded.ids[place] for place in chosen]
    lengths = torch.tensor([len(each) for each in ids])
    tokens = pad_sequence(ids, batch_first=True, padding_value=PAD)
    if length is not None and length > tokens.shape[1]:
        shape = (len(ids), length - tokens.shape[1], *tokens.shape[2:])
        tokens = torch.cat((tokens, tokens.new_full(shape, PAD)), 1)
    real = torch.arange(tokens.shape[1]) < lengths.unsqueeze(-1)
    return Batch(tokens, real, coded.labels[torch.tensor(chosen, dtype=torch.int64)])


def epoch_order(coded: Coded, batch_size: int, generator: torch.Generator) -> list[list[int]]:
    """Divide all texts into random batches of about the same length; return their indices."""
    order = torch.randperm(len(coded.ids), generator=generator).tolist()
    chosen: list[list[int]] = []
    for start in range(0, len(order), _BUCKET * batch_size):
        bucket = order[start : start + _BUCKET * batch_size]
        bucket.sort(key=lambda place: len(coded.ids[place]))
        for first in range(0, len(bucket), batch_size):
            chosen.append(bucket[first : first + batch_size])
    return [chosen[number] for number in torch.randperm(len(chosen), generator=generator).tolist()]


def ordered_batches(coded: Coded, num_tokens: int = 8_192) -> Iterator[tuple[list[int], Batch]]:
    """Yield all texts in batches of about `num_tokens` tokens, shortest first, with indices."""
    order = sorted(range(len(coded.ids)), key=lambda place: len(coded.ids[place]))
    chosen: list[int] = []
    for place in order:
        if chosen and (len(chosen) + 1) * len(coded.ids[place]) > num_tokens:
            yield chosen, make_batch(coded, chosen)
            chosen = []
        chosen.append(place)
    if chosen:
        yield chosen, make_batch(coded, chosen)
