"""The two models, the mini transformer and one that starts from counts, and what they read.

`mini` is the encoder of Vaswani et al. 2017, small. `best` is an encoder of one head that starts as
a naive Bayes classifier: the first channels of each part's vector hold its log-count ratios (Wang
and Manning 2012), one channel for each class, the read-out is their mean over the words, and
attention and feed-forward part add nothing yet. Training then moves on from there, with most words
of each text hidden at random, so that no rare word decides alone.

Texts are encoded once, drawn in epochs, and padded to the longest of each batch.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from attnlab import seeds
from attnlab.errors import not_none
from attnlab.experiments.sentiment.config import NAME, ModelName, SentimentConfig
from attnlab.models.encoder import Encoder
from attnlab.tasks import tokenizers
from attnlab.tasks.texts import LabeledText

_BUCKET = 16  # batches sorted by length together, which saves padding
_MOST_NUMBERS = 32_000_000  # in the best model's embedding
_NOISE = 0.02  # spread of the channels that hold no count
_GAIN = 0.4  # times √tokens: the initial scale of the read-out
_WRITES = re.compile(r"^layers\..*\.(attention\.output|feed_forward\.outer)\.")


@dataclass(frozen=True)
class EncodedTexts:
    """Texts as ids, each (length,) or (length, parts), and class numbers, (texts,)."""

    ids: list[Tensor]
    labels: Tensor


class TextBatch(NamedTuple):
    """Padded ids, (batch, length) or (batch, length, parts), real tokens, and class numbers."""

    tokens: Tensor
    real: Tensor
    labels: Tensor


def code(
    rows: Sequence[LabeledText], tokenizer: tokenizers.TextTokenizer, classes: Sequence[str]
) -> EncodedTexts:
    """Encode labelled texts."""
    number = {name: place for place, name in enumerate(classes)}
    ids = [torch.tensor(tokenizer.ids(row.text)) for row in rows]
    return EncodedTexts(ids, torch.tensor([number[row.label] for row in rows]))


def make_batch(coded: EncodedTexts, chosen: Sequence[int]) -> TextBatch:
    """Make a batch of some texts, padded to the longest of them."""
    ids = [coded.ids[place] for place in chosen]
    lengths = torch.tensor(list(map(len, ids)))
    tokens = pad_sequence(ids, batch_first=True, padding_value=tokenizers.PAD)
    real = torch.arange(tokens.shape[1]) < lengths.unsqueeze(-1)
    return TextBatch(tokens, real, coded.labels[torch.tensor(chosen, dtype=torch.int64)])


def epoch_order(
    coded: EncodedTexts, batch_size: int, generator: torch.Generator
) -> list[list[int]]:
    """Divide all texts into random batches of about the same length; return their indices."""
    order = torch.randperm(len(coded.ids), generator=generator).tolist()
    chosen: list[list[int]] = []
    for start in range(0, len(order), _BUCKET * batch_size):
        bucket = order[start : start + _BUCKET * batch_size]
        bucket.sort(key=lambda place: len(coded.ids[place]))
        for first in range(0, len(bucket), batch_size):
            chosen.append(bucket[first : first + batch_size])
    return [chosen[number] for number in torch.randperm(len(chosen), generator=generator).tolist()]


def ordered_batches(
    coded: EncodedTexts, num_tokens: int = 8_192
) -> Iterator[tuple[list[int], TextBatch]]:
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


def build_tokenizer(
    name: ModelName, config: SentimentConfig, rows: Sequence[LabeledText]
) -> tokenizers.TextTokenizer:
    """Build a model's tokenizer from the training texts alone."""
    texts = [row.text for row in rows]
    if name == "best":
        # Each class has a channel, so many classes make wide vectors; fewer of them save memory.
        width = max(config.best_width, len({row.label for row in rows}))
        size = max(len(tokenizers.SPECIALS), min(config.best_vocab_size, _MOST_NUMBERS // width))
        return tokenizers.PartTokenizer.build(texts, size, config.best_max_length)
    if config.tokenizer == "word":
        return tokenizers.WordTokenizer.build(texts, config.vocab_size, config.max_length)
    return tokenizers.SubwordTokenizer.build(texts, config.vocab_size, config.max_length)


def build_mini(
    config: SentimentConfig, vocab_size: int, num_classes: int, seed: int, member: int
) -> Encoder:
    """Make the mini transformer with its initial weights.

    The token vectors start with spread 1/√d_model, so that the embedding's √d_model makes it 1:
    with the usual spread of 1 the vectors would be 8 times as large as the positions, and hardly
    move in training.
    """
    with seeds.isolated(seed, NAME, "mini", member):
        model = Encoder(config.mini_config(vocab_size, num_classes))
        nn.init.normal_(model.embedding.tokens.weight, std=config.d_model**-0.5)
    return model


def build_best(
    config: SentimentConfig,
    vocab_size: int,
    num_classes: int,
    train: EncodedTexts,
    seed: int,
    member: int,
) -> Encoder:
    """Make the best model: naive Bayes in the first channels, and further channels to learn."""
    with seeds.isolated(seed, NAME, "best", member):
        model = Encoder(config.best_config(vocab_size, num_classes))
        with torch.no_grad():
            vectors = model.embedding.tokens.weight.normal_(std=_NOISE)
            vectors[:, :num_classes] = log_count_ratios(train, vocab_size, num_classes)
            vectors[tokenizers.PAD] = 0.0
            for name, value in model.named_parameters():
                if _WRITES.search(name):
                    value.zero_()
            head = not_none(model.head)
            not_none(head.bias).zero_()
            lengths = torch.tensor(list(map(len, train.ids)), dtype=torch.float32)
            gain = _GAIN * float(lengths.median()) ** 0.5
            head.weight.zero_()[:, :num_classes] = gain * torch.eye(num_classes)
    return model


def log_count_ratios(train: EncodedTexts, vocab_size: int, num_classes: int) -> Tensor:
    """Return the evidence of each part for each class: (vocabulary, classes), each row's mean 0.

    `log p(part | class)` with one added to each count of texts that hold the part, less its mean
    over the classes; 0 for PAD, UNK and CLS. For two classes their difference is the r of Wang and
    Manning 2012, equation 2.
    """
    counts = torch.ones(vocab_size, num_classes, dtype=torch.float64)
    for ids, label in zip(train.ids, train.labels.tolist(), strict=True):
        counts[torch.unique(ids), label] += 1
    logs = (counts / counts.sum(0)).log()
    ratios = logs - logs.mean(1, keepdim=True)
    ratios[: len(tokenizers.SPECIALS)] = 0.0
    return ratios.float()


def hide_words(batch: TextBatch, share: float, generator: torch.Generator) -> TextBatch:
    """Remove a random share of each text's words from a batch; CLS stays.

    The remaining words move together, which changes nothing for a model without positions and saves
    time. The mean is over the remaining words, so the logits keep their scale.
    """
    hidden = torch.rand(batch.real.shape, generator=generator) < share
    hidden[:, 0] = False
    left = batch.real & ~hidden
    order = left.int().argsort(dim=1, descending=True, stable=True)[:, : int(left.sum(1).max())]
    tokens = batch.tokens.take_along_dim(order.unsqueeze(-1), 1)
    return TextBatch(tokens, left.take_along_dim(order, 1), batch.labels)
