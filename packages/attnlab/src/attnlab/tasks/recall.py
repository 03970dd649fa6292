"""Facts sampled afresh for each sample: multi-query associative recall (Arora et al. 2023).

A sample is k facts, each a key and its value, a question (one of the keys), and the answer (its
value). Keys are distinct, values are distinct, and which belongs to which is sampled anew each
time, so that no weight can know it. The same facts are written in three ways:

- `ordered`  `k1 v1 k2 v2 …`, 2k tokens for a reader who is told their positions;
- `loose`    the same tokens for a reader who is not: to it they are a set of 2k words;
- `bound`    k tokens, each a key and its value in one (their vectors are added), and no positions.

What chance is: a loose reader knows which k values stand there, but every pairing of k keys with k
values is as likely as every other and makes the same set. So whatever it answers is right with a
probability of at most 1/k, however it was trained; that is the bound for `loose`, and it is reached
by naming any of the k values.

One in `held_out_every` of all pairs of a key and a value never occurs in training: (key + value)
divided by it leaves 0, both counted from 0. To answer such a pair is to answer what was never seen.

>>> task = RecallTask("ordered", num_facts=2)
>>> task.words(task.parse("k3 v7 k9 v1").flatten())
['k3', 'v7', 'k9', 'v1']
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from attnlab.errors import WrongUsage, require_known
from attnlab.shapes import require_integer

Variant = Literal["loose", "bound", "ordered"]

MAX_FACTS = 32

_MAX_DRAWS = 2_000  # times that facts are sampled anew until no held-out pair is among them


class Facts(NamedTuple):
    """Facts of a batch: keys and values (batch, k) from 0; the places `which` (batch, questions) of
    the questions."""

    keys: Tensor
    values: Tensor
    which: Tensor


@dataclass(frozen=True)
class RecallTask:
    """In-context look-up.

    Args:
        variant: how the facts are written.
        num_facts: k, the facts of a sample, 1 to 32.
        num_keys: how many keys there are to draw from, at least k; `num_values` likewise.
        held_out_every: one in so many pairs of a key and a value is kept out of training.
    """

    variant: Variant = "bound"
    num_facts: int = 8
    num_keys: int = 32
    num_values: int = 32
    held_out_every: int = 16

    def __post_init__(self) -> None:
        require_known("variant", self.variant, get_args(Variant))
        if require_integer("num_facts", self.num_facts) > MAX_FACTS:
            raise WrongUsage(f"num_facts must be at most {MAX_FACTS}; got {self.num_facts}.")
        for name, number in (("num_keys", self.num_keys), ("num_values", self.num_values)):
            if require_integer(name, number) < self.num_facts:
                raise WrongUsage(
                    f"{name} must be at least num_facts, because facts are distinct; "
                    f"got {number} and {self.num_facts}."
                )
        require_integer("held_out_every", self.held_out_every, low=2)

    @property
    def vocabulary(self) -> tuple[str, ...]:
        """The word of each id: the keys, then the values."""
        keys = map("k{}".format, range(1, self.num_keys + 1))
        return (*keys, *map("v{}".format, range(1, self.num_values + 1)))

    @property
    def chance(self) -> float:
        """The accuracy of a reader who knows the values, but not their keys: 1/k."""
        return 1 / self.num_facts

    def is_held_out(self, keys: Tensor, values: Tensor) -> Tensor:
        """Return which pairs never occur in training: boolean, of the shape of both."""
        return (keys + values) % self.held_out_every == 0

    def sample(self, batch_size: int, generator: torch.Generator) -> Facts:
        """Draw facts uniformly, with one question."""
        keys, values = self._pairs(batch_size, generator)
        which = torch.randint(self.num_facts, (batch_size, 1), generator=generator)
        return Facts(keys, values, which)

    def sample_training(self, batch_size: int, generator: torch.Generator) -> Facts:
        """Draw facts uniformly from those without a held-out pair, with a question for each, in
        random order."""
        keys, values = self._pairs(batch_size, generator)
        for _ in range(_MAX_DRAWS):
            again = self.is_held_out(keys, values).any(-1).nonzero().flatten()
            if not len(again):
                return Facts(keys, values, _shuffled(batch_size, self.num_facts, generator))
            keys[again], values[again] = self._pairs(len(again), generator)
        raise WrongUsage(
            f"no {self.num_facts} facts without a held-out pair were found among {self.num_keys} "
            f"keys and {self.num_values} values; make these more, or held_out_every larger (it is "
            f"{self.held_out_every})."
        )

    def sample_held_out(self, batch_size: int, generator: torch.Generator) -> Facts:
        """Draw facts with one question, about a held-out pair; all of these are as likely, and
        other facts may be held-out pairs too."""
        every_key = torch.arange(self.num_keys).unsqueeze(-1)
        pairs = self.is_held_out(every_key, torch.arange(self.num_values)).nonzero()
        held_out = pairs[torch.randint(len(pairs), (batch_size,), generator=generator)]
        # where each fact goes; the asked one was first
        place = _shuffled(batch_size, self.num_facts, generator)
        keys, values = self._pairs(batch_size, generator, first=held_out)
        which = (place == 0).int().argmax(-1, keepdim=True)
        return Facts(keys.gather(1, place), values.gather(1, place), which)

    def source(self, facts: Facts) -> Tensor:
        """Write the encoder's input: (batch, k, 2) where bound, else (batch, 2k) ids."""
        pairs = torch.stack((facts.keys, facts.values + self.num_keys), -1)
        return pairs if self.variant == "bound" else pairs.flatten(1)

    def questions(self, facts: Facts) -> Tensor:
        """Write the keys of the questions: (batch, questions) ids."""
        return facts.keys.gather(1, facts.which)

    def answers(self, facts: Facts) -> Tensor:
        """Write the values of the questions: (batch, questions) ids."""
        return facts.values.gather(1, facts.which) + self.num_keys

    def words(self, tokens: Tensor | Sequence[int]) -> list[str]:
        """Name each id."""
        return [self.vocabulary[int(token)] for token in tokens]

    def source_words(self, source: Tensor) -> list[str]:
        """Name the tokens of one source; a bound pair is one word, such as `k3:v7`."""
        if source.dim() == 1:
            return self.words(source)
        return list(map(":".join, map(self.words, source)))

    def parse(self, text: str) -> Tensor:
        """Read facts that a person typed, such as `k3 v7 k9 v1` (or `k3:v7, k9:v1`): (facts, 2)
        ids."""
        typed = re.split(r"[\s,;:=]+", text.lower().strip(" ,;:="))
        vocabulary = self.vocabulary
        for place, word in enumerate(typed):
            wanted, letter = f"a key from k1 to k{self.num_keys}", "k"
            if place % 2:
                wanted, letter = f"a value from v1 to v{self.num_values}", "v"
            if word not in vocabulary or word[0] != letter:
                raise WrongUsage(
                    f"expected {wanted} as word {place + 1} of the facts; got {word!r}."
                )
        pairs = torch.tensor(list(map(vocabulary.index, typed)))
        if len(typed) % 2:
            raise WrongUsage(f"expected a value after each key; {typed[-1]!r} has none.")
        if len(typed) > 2 * MAX_FACTS:
            raise WrongUsage(f"expected at most {MAX_FACTS} facts; got {len(typed) // 2}.")
        return pairs.view(-1, 2)

    def _pairs(
        self, batch_size: int, generator: torch.Generator, *, first: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Draw distinct keys and distinct values, (batch, k) each; `first` (batch, 2) come
        first."""
        sampled = []
        for part, number in enumerate((self.num_keys, self.num_values)):
            order = torch.rand(batch_size, number, generator=generator)
            if first is not None:
                order = order.scatter(1, first[:, part : part + 1], -1.0)
            sampled.append(order.argsort(-1)[:, : self.num_facts])
        return sampled[0], sampled[1]


def _shuffled(rows: int, length: int, generator: torch.Generator) -> Tensor:
    """Return 0 … length - 1 in random order, row by row: (rows, length)."""
    return torch.rand(rows, length, generator=generator).argsort(-1)
