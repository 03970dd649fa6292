"""The tokens that a model read while it was recorded, and their names: queries and keys apart."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from torch import Tensor

from attnlab.display import displayed
from attnlab.errors import WrongUsage

__all__ = [
    "Read",
    "Sides",
    "Vocabulary",
    "all_names",
    "all_real",
    "check_vocabulary",
    "first_key",
    "name_of",
    "own_names",
    "own_real",
    "stack_of",
    "unknown",
    "vocabulary_of",
]

Vocabulary: TypeAlias = Sequence[str] | Mapping[int, str] | Callable[[int], str]


@displayed
class Sides(NamedTuple):
    """The names of the queries and of the keys."""

    query: list[str]
    key: list[str]


class Read(NamedTuple):
    """The input of one stack in one pass.

    ids (batch, length) or (batch, length, parts), None for vectors · real (batch, length), False at
    padding · before: the number of the reading that this one goes on from, under a key/value cache
    · edits: what stood at the hook points · names: what the positions of the one input there is are
    called, where this is known better than by ids · rows (batch,): those of the reading before that
    these go on from, None for their own.
    """

    part: str
    ids: Tensor | None
    shape: tuple[int, int]
    offset: int
    real: Tensor | None
    before: int | None
    edits: tuple[dict[str, Any], ...]
    names: tuple[str, ...] | None = None
    rows: Tensor | None = None

    def row_before(self, row: int) -> int:
        """Say which row of the reading before one goes on from."""
        return row if self.rows is None else int(self.rows[row])


def vocabulary_of(model: object, vocabulary: Vocabulary | None) -> Vocabulary | None:
    """Return the given vocabulary, or the model's own: `model.vocabulary`."""
    return getattr(model, "vocabulary", None) if vocabulary is None else vocabulary


def check_vocabulary(vocabulary: object) -> None:
    """Raise `WrongUsage` unless this can name ids."""
    if not (
        vocabulary is None or callable(vocabulary) or isinstance(vocabulary, Sequence | Mapping)
    ):
        raise WrongUsage(
            "a vocabulary is a sequence of names, a mapping of ids to names or a function of an "
            f"id; got a {type(vocabulary).__name__}."
        )


def name_of(token: int, vocabulary: Vocabulary | None) -> str:
    """Return the name of an id; without a vocabulary, its number.

    Raises:
        WrongUsage: the vocabulary does not know it.
    """
    if vocabulary is None:
        return str(token)
    if callable(vocabulary):
        return str(vocabulary(token))
    if token in vocabulary if isinstance(vocabulary, Mapping) else 0 <= token < len(vocabulary):
        return str(vocabulary[token])
    raise WrongUsage(f"the vocabulary has {len(vocabulary)} names, and none for token id {token}.")


def own_names(read: Read, row: int, vocabulary: Vocabulary | None) -> list[str]:
    """Return the names of the tokens of this pass; `[3]` is a position without a known id."""
    if read.names is not None and read.shape == (1, len(read.names)):
        return list(read.names)
    if read.ids is None:
        return unknown(read.shape[1], read.offset)
    parts = [each if isinstance(each, list) else [each] for each in read.ids[row].tolist()]
    return ["+".join(name_of(token, vocabulary) for token in each) for each in parts]


def all_names(
    reads: Sequence[Read], read: Read, row: int, vocabulary: Vocabulary | None
) -> list[str]:
    """Return the names of the tokens of this pass and, under a key/value cache, of all before."""
    before = read.row_before(row)
    past = (
        unknown(read.offset)
        if read.before is None
        else all_names(reads, reads[read.before], before, vocabulary)
    )
    return past + own_names(read, row, vocabulary)


def own_real(read: Read, row: int) -> list[bool]:
    """Return which positions are not padding; unknown ones are not."""
    return [True] * read.shape[1] if read.real is None else read.real[row].tolist()


def all_real(reads: Sequence[Read], read: Read, row: int) -> list[bool]:
    """Return which positions of this pass and of all before are not padding."""
    past = (
        [True] * read.offset
        if read.before is None
        else all_real(reads, reads[read.before], read.row_before(row))
    )
    return past + own_real(read, row)


def first_key(length: int, num_keys: int, offset: int) -> int:
    """Return the position of the first key: a cache that drops the oldest holds the last of
    `length`."""
    return length - num_keys if offset and 0 < num_keys < length else 0


def unknown(length: int, start: int = 0) -> list[str]:
    """Return names of positions by their numbers alone."""
    return [f"[{place}]" for place in range(start, start + length)]


def stack_of(part: str, stacks: Mapping[str, int]) -> int | None:
    """Return the latest input of a part's stack: the nearest around it, or the last one within
    it."""
    around = part
    while True:
        if around in stacks:
            return stacks[around]
        if not around:
            break
        around = around.rpartition(".")[0]
    within = [
        number for path, number in stacks.items() if path.startswith(f"{part}." if part else "")
    ]
    return max(within, default=None)
