"""The texts of a run: their source, what was left out, and the splits."""

from dataclasses import dataclass
from functools import cached_property

import torch

from attnlab import seeds
from attnlab.errors import WrongUsage
from attnlab.experiments.sentiment.config import NAME, WORDS, SentimentConfig
from attnlab.tasks.labeled_files import read_labeled_texts
from attnlab.tasks.texts import (
    LabeledText,
    TextSplit,
    shared_texts,
    split_by_file,
    split_by_row,
    split_by_text,
    tidied,
)
from attnlab.tasks.tokenizers import clean
from attnlab.tasks.verdicts import VERDICTS


@dataclass(frozen=True)
class Arrangement:
    """One split; its test texts are distinct."""

    name: str
    split: TextSplit

    @property
    def num_test(self) -> int:
        """The number of test texts."""
        return len(self.split.test)

    @cached_property
    def shared(self) -> int:
        """The number of distinct texts that are in training and held out too."""
        return shared_texts(self.split.train, [*self.split.validation, *self.split.test])


@dataclass(frozen=True)
class Data:
    """All texts of a run; the first arrangement has no leaks and trains the main models."""

    classes: tuple[str, ...]
    arrangements: list[Arrangement]
    counts: list[tuple[str, int]]
    said: str
    is_built_in: bool

    @property
    def fair(self) -> Arrangement:
        """The arrangement without leaks."""
        return self.arrangements[0]


def load_data(config: SentimentConfig, seed: int) -> Data:
    """Read, tidy and split; `seed` is that of the run, unless the split has its own."""
    if config.split_seed is not None:
        seed = config.split_seed
    if config.data is None:
        return _built_in(config, seed)
    return _from_file(config, config.data, seed)


def _built_in(config: SentimentConfig, seed: int) -> Data:
    rows = [LabeledText(*verdict) for verdict in VERDICTS] * config.repeats
    arrangements = []
    for name, divide in (("by text", split_by_text), ("by row", split_by_row)):
        train, held = divide(rows, config.held_out, seeds.generator(seed, NAME, "split", name))
        # Repeated rows would count one verdict several times, so the test texts are distinct.
        test = list({clean(row.text): row for row in held}.values())
        arrangements.append(Arrangement(name, TextSplit(train, held, test)))
    counts = [("rows", len(rows)), ("distinct texts", len(VERDICTS))]
    said = WORDS.text("built_in", {"number": len(VERDICTS), "repeats": config.repeats})
    return Data(("negative", "positive"), arrangements, counts, said, True)


def _from_file(config: SentimentConfig, source: str, seed: int) -> Data:
    collection = tidied(read_labeled_texts(source, config.columns()))
    rows, counts = collection.rows, list(collection.counts)
    if len(rows) > config.most_texts:
        order = torch.randperm(len(rows), generator=seeds.generator(seed, NAME, "draw"))
        rows = [rows[place] for place in order[: config.most_texts].sort().values.tolist()]
        counts.append((f"drawn from these at random (most_texts={config.most_texts})", len(rows)))
    split, said = split_by_file(rows, config.held_out, seeds.generator(seed, NAME, "split", "file"))
    classes = tuple(sorted({row.label for row in split.train}))
    if len(classes) < 2:
        raise WrongUsage(
            f"the training texts must be of two classes or more; all {len(split.train):,} are "
            f"{classes[0]!r}."
        )
    known = TextSplit(*([row for row in part if row.label in classes] for part in split))
    lost = sum(map(len, split)) - sum(map(len, known))
    if lost:
        counts.append(("texts of classes that are not in training, left out of the test", lost))
    return Data(classes, [Arrangement("by text", known)], counts, said, False)
