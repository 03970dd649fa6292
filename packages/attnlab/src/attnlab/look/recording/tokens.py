"""The tokens that a model read while it was recorded, and their names: queries and keys apart."""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from torch import Tensor

from attnlab.core.store import JsonObject
from attnlab.display import Card, displayed
from attnlab.errors import WrongUsage, type_words
from attnlab.pretrained.images import place_name

Vocabulary: TypeAlias = Sequence[str] | Mapping[int, str] | Callable[[int], str]


@displayed
class TokenSides(NamedTuple):
    """The names of the queries and of the keys.

    query: of the rows · key: of the columns.
    """

    query: list[str]
    key: list[str]

    def _card(self) -> Card:
        sides = {"queries": self.query, "keys": self.key}
        if self.query == self.key:
            sides = {"queries and keys": self.key}
        lines = [f"{name}: {' '.join(tokens)}" for name, tokens in sides.items()]
        return Card(f"{len(self.query):,} queries, {len(self.key):,} keys", lines=lines)


@dataclass(frozen=True)
class StackRead:
    """The input of one stack in one pass.

    ids (batch, length) or (batch, length, parts), None for vectors · real (batch, length), False at
    padding · before: the number of the read that this one continues, under a key/value cache ·
    edits: in force during the pass · names: of the positions of a single input, if there are better
    ones than those of its ids · rows (batch,): the rows of the read before that these continue,
    None for the same rows · places (batch, length, 3): the image, row and column that a position
    shows, -1 at text and where unknown; None without images.
    """

    part: str
    ids: Tensor | None
    shape: tuple[int, int]
    offset: int
    real: Tensor | None
    before: int | None
    edits: tuple[JsonObject, ...]
    names: tuple[str, ...] | None = None
    rows: Tensor | None = None
    places: Tensor | None = None

    def row_before(self, row: int) -> int:
        """Return the row of the read before that a row continues."""
        if self.rows is None:
            return row
        return int(self.rows[row])


def vocabulary_of(model: object, vocabulary: Vocabulary | None) -> Vocabulary | None:
    """Return a vocabulary, by default the model's: its tokenizer's or its run's.

    Raises:
        WrongUsage: it cannot name ids.
    """
    names: object = vocabulary
    if vocabulary is None:
        names = getattr(model, "vocabulary", None)
        reader = getattr(model, "reader", None)
        if names is None and reader is not None:
            names = reader.token_names(model)
    if not (names is None or callable(names) or isinstance(names, Sequence | Mapping)):
        raise WrongUsage(
            "a vocabulary is a sequence, a mapping or a function from ids to names; got "
            f"{type_words(names)}."
        )
    return names


def name_of(token: int, vocabulary: Vocabulary | None) -> str:
    """Return the name of an id; without a vocabulary, its number.

    Raises:
        WrongUsage: the vocabulary does not know it.
    """
    if vocabulary is None:
        return str(token)
    if callable(vocabulary):
        return str(vocabulary(token))
    known: Container[int] = range(len(vocabulary))
    if isinstance(vocabulary, Mapping):
        known = vocabulary
    if token in known:
        return str(vocabulary[token])
    raise WrongUsage(f"the vocabulary has {len(vocabulary)} names, and none for token id {token}.")


def token_name(token: int, vocabulary: Vocabulary | None) -> str:
    """Return the name of an id, or its number where the vocabulary does not know it.

    A model often has more logits than its vocabulary has names.
    """
    try:
        return name_of(token, vocabulary)
    except WrongUsage:
        return str(token)


def names_of(tokens: Iterable[int], vocabulary: Vocabulary | None) -> dict[str, str]:
    """Return the names of ids by their numbers, in order, for JSON."""
    return {str(token): name_of(token, vocabulary) for token in sorted(set(tokens))}


@dataclass(frozen=True)
class TokenSpan:
    """Consecutive positions of one input: a row of a read, None if it was not recorded."""

    read: StackRead | None
    row: int
    length: int

    def names(self, vocabulary: Vocabulary | None) -> list[str]:
        """Return the names of the tokens; `[3]` without a known id."""
        read = self.read
        if read is not None and read.names is not None and read.shape == (1, len(read.names)):
            return list(read.names)
        if read is None or read.ids is None:
            first = 0 if read is None else read.offset
            return [f"[{place}]" for place in range(first, first + self.length)]
        names = []
        for parts in read.ids[self.row].unsqueeze(-1).flatten(1).tolist():
            names.append("+".join(name_of(part, vocabulary) for part in parts))
        return names if read.places is None else image_names(names, read.places[self.row])

    def real(self) -> list[bool]:
        """Return which positions are not padding, if known."""
        if self.read is None or self.read.real is None:
            return [True] * self.length
        return list(map(bool, self.read.real[self.row]))


@dataclass(frozen=True)
class TokenPositions:
    """The positions of the queries or of the keys: spans, without the first few."""

    spans: list[TokenSpan]
    first: int = 0

    def names(self, vocabulary: Vocabulary | None) -> list[str]:
        """Return the names of the tokens."""
        return [name for span in self.spans for name in span.names(vocabulary)][self.first :]

    def real(self) -> list[bool]:
        """Return which positions are not padding, if known."""
        return [is_real for span in self.spans for is_real in span.real()][self.first :]


def image_names(names: Sequence[str], places: Tensor) -> list[str]:
    """Name the positions of one input that show an image by it, row and column: places (length,
    3)."""
    images = 1 + int(places[:, 0].max())
    return [
        name if place[0] < 0 else place_name(place, images)
        for name, place in zip(names, places.tolist(), strict=True)
    ]


def unknown_positions(length: int) -> TokenPositions:
    """Return positions of unknown tokens."""
    return TokenPositions([TokenSpan(None, 0, length)])


def all_positions(
    reads: Sequence[StackRead], read: StackRead, row: int, first: int
) -> TokenPositions:
    """Return the positions of a pass and, under a key/value cache, of all earlier passes."""
    spans = [TokenSpan(read, row, read.shape[1])]
    while read.before is not None:
        row, read = read.row_before(row), reads[read.before]
        spans.insert(0, TokenSpan(read, row, read.shape[1]))
    return TokenPositions([TokenSpan(None, 0, read.offset), *spans], first)


def first_key(length: int, num_keys: int, offset: int) -> int:
    """Return the position of the first key: a cache that drops the oldest holds the last of
    `length`."""
    if offset and 0 < num_keys < length:
        return length - num_keys
    return 0


def stack_of(part: str, stacks: Mapping[str, int]) -> int | None:
    """Return the latest input of a part's stack: the nearest around it, or the last one within
    it."""
    around = part
    while around and around not in stacks:
        around = around.rpartition(".")[0]
    if around in stacks:
        return stacks[around]
    if not part:
        return max(stacks.values(), default=None)
    inside = (number for path, number in stacks.items() if path.startswith(f"{part}."))
    return max(inside, default=None)
