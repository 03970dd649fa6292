"""A fixed table of facts, written as sets of words: the task of `lookup`.

A source is `NAME` and, in any order, `COLOR`, a key, `ITEM` and the key's value; the target is the
value and `[EOS]`. There are three facts, so 3 × 24 = 72 distinct sources, and all of them can be
listed. Every source is as long as the others, but batches can be padded, and each comes with the
mask of what is real.

>>> source = parse("name color red item blue")
>>> id_names(source), id_names(right_answer(source.unsqueeze(0)))
(['NAME', 'COLOR', 'RED', 'ITEM', 'BLUE'], ['BLUE'])
>>> answers = right_answer(source.unsqueeze(0))
>>> id_names(target_input(answers)[0]), id_names(target_output(answers)[0])
(['[SOS]', 'BLUE'], ['BLUE', '[EOS]'])
"""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from attnlab.errors import WrongUsage, require_known
from attnlab.shapes import require_integer

VOCABULARY = (
    "[PAD]", "[SOS]", "[EOS]", "COLOR", "NAME", "ITEM", "RED", "BLUE", "GREEN", "ALICE", "BOB",
    "CHAIR", "QUERY", "FIND",
)  # fmt: skip
"""The word of each id. No sample contains `BOB`, `QUERY` or `FIND`."""

PAD, SOS, EOS = range(3)

FACTS = {"RED": "BLUE", "ALICE": "GREEN", "CHAIR": "RED"}
"""Each key's value. `RED` is a key and a value; its partner decides which."""

MAX_LENGTH = 10
"""The longest source or target, padding included."""

EXAMPLE = "NAME COLOR RED ITEM BLUE"

_IDS = {word: index for index, word in enumerate(VOCABULARY)}


def _ids_of(words: Iterable[str]) -> list[int]:
    return [_IDS[word] for word in words]


_PAIRS = torch.tensor(list(map(_ids_of, FACTS.items())))


@dataclass(frozen=True)
class SourceSplit:
    """The sources of a data set, (samples, 5) each, in three parts."""

    train: Tensor
    validation: Tensor
    test: Tensor


class LookupBatch(NamedTuple):
    """A batch for training.

    source (batch, source length) with its `source_real`, False at padding · target_input and
    target_output (batch, target length), the second one step ahead of the first, with their
    `target_real`.
    """

    source: Tensor
    source_real: Tensor
    target_input: Tensor
    target_output: Tensor
    target_real: Tensor


def all_sources() -> Tensor:
    """List the 72 distinct sources: (72, 5)."""
    rows = []
    for key, value in FACTS.items():
        for order in itertools.permutations(("COLOR", key, "ITEM", value)):
            rows.append(_ids_of(("NAME", *order)))
    return torch.tensor(rows)


def sample_sources(num_samples: int, generator: torch.Generator) -> Tensor:
    """Draw sources, a fact and an order of its words each, uniformly: (num_samples, 5)."""
    require_integer("num_samples", num_samples)
    sources = all_sources()
    return sources[torch.randint(len(sources), (num_samples,), generator=generator)]


def make_split(num_samples: int, generator: torch.Generator) -> SourceSplit:
    """Draw a data set, and part it 80/10/10."""
    require_integer("num_samples", num_samples, low=10)
    rows, tenth = sample_sources(num_samples, generator), num_samples // 10
    return SourceSplit(rows[: -2 * tenth], rows[-2 * tenth : -tenth], rows[-tenth:])


def key_of(sources: Tensor) -> Tensor:
    """Return the key that each source contains, one of `FACTS`: (batch,) ids."""
    return _facts(sources)[:, 0]


def right_answer(sources: Tensor) -> Tensor:
    """Return the value that each source contains: (batch,) ids."""
    return _facts(sources)[:, 1]


def permutations(source: Tensor) -> Tensor:
    """List every order of one source's words, (length,) -> (length!, length); the first is the
    source itself."""
    return source[torch.tensor(list(itertools.permutations(range(len(source)))))]


def target_input(answers: Tensor) -> Tensor:
    """Write the decoder's input, `[SOS] value`: (batch,) -> (batch, 2)."""
    return torch.stack((torch.full_like(answers, SOS), answers), -1)


def target_output(answers: Tensor) -> Tensor:
    """Write the decoder's target, `value [EOS]`: (batch,) -> (batch, 2)."""
    return torch.stack((answers, torch.full_like(answers, EOS)), -1)


def make_batch(sources: Tensor, *, length: int | None = None) -> LookupBatch:
    """Put samples together, source and target padded to `length` tokens; None pads nothing.

    >>> batch = make_batch(parse("name color red item blue").unsqueeze(0), length=6)
    >>> batch.source, batch.source_real.int()
    (tensor([[4, 3, 6, 5, 7, 0]]), tensor([[1, 1, 1, 1, 1, 0]], dtype=torch.int32))
    >>> batch.target_input, batch.target_output
    (tensor([[1, 7, 0, 0, 0, 0]]), tensor([[7, 2, 0, 0, 0, 0]]))
    """
    answers = right_answer(sources)
    source, source_real = _padded(sources, length)
    decoder_input, target_real = _padded(target_input(answers), length)
    wanted, _ = _padded(target_output(answers), length)
    return LookupBatch(source, source_real, decoder_input, wanted, target_real)


def parse(text: str) -> Tensor:
    """Read typed words, in any case, separated by blanks or commas: (length,) ids.

    Any words of the vocabulary will do, 1 to 10 of them, so that a person can also ask what the
    model never saw.
    """
    typed = text.upper().replace(",", " ").split()
    known = VOCABULARY[EOS + 1 :]
    for word in typed:
        require_known("word", word, known)
    if not 1 <= len(typed) <= MAX_LENGTH:
        wanted = f"1 to {MAX_LENGTH} words, such as {EXAMPLE!r}"
        raise WrongUsage(f"expected {wanted}; got {len(typed)}.")
    return torch.tensor(_ids_of(typed))


def id_names(tokens: Tensor | Sequence[int]) -> list[str]:
    """Name each id."""
    return [VOCABULARY[int(token)] for token in tokens]


def _facts(sources: Tensor) -> Tensor:
    """Find the fact that each source holds, both of its words: (batch, length) -> (batch, 2)."""
    holds = (sources[:, :, None, None] == _PAIRS).any(1).all(-1)
    wrong = (holds.sum(-1) != 1).nonzero().flatten()
    if len(wrong):
        known = ", ".join(f"{key} → {value}" for key, value in FACTS.items())
        got = " ".join(id_names(sources[wrong[0]]))
        raise WrongUsage(f"expected sources with exactly one fact in them ({known}); got {got}.")
    return _PAIRS[holds.int().argmax(-1)]


def _padded(tokens: Tensor, length: int | None) -> tuple[Tensor, Tensor]:
    """Pad (batch, tokens) to `length`; return it with the mask of real tokens."""
    num_tokens = tokens.shape[1]
    if length is None:
        length = num_tokens
    if length < num_tokens:
        raise WrongUsage(f"expected a padded length of at least {num_tokens}; got {length}.")
    padded = torch.nn.functional.pad(tokens, (0, length - num_tokens), value=PAD)
    return padded, (torch.arange(length) < num_tokens).expand(padded.shape)
