"""Patterns: the weights of one attention for one input, with the tokens of both axes.

`Pattern(site, weights, ...)` takes arrays, `to_patterns` recordings. Weights may be anything that
is indexed like an array (head, query, key): they are read a few rows at a time, so that a recording
that computes weights on demand never computes a whole long map.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from attnlab.errors import WrongUsage
from attnlab.look.heads import head_at
from attnlab.shapes import shape_text

CAUSAL = "causal"
_BAND = 1 << 20  # weights read at a time

Rows = NDArray[np.float32]  # (rows, keys)
Hidden = NDArray[np.bool_] | None  # (rows, keys), True where masked; None where nothing is


class Weights(Protocol):
    """Anything that is indexed like an array (head, query, key)."""

    @property
    def shape(self) -> Sequence[int]:
        """Heads, queries, keys."""

    def __getitem__(self, where: Any) -> Any:
        """Return some of the weights."""


@dataclass(frozen=True, eq=False)
class Pattern:
    """The attention weights of one attention for one input.

    site: its name, such as "layers.3.attention.weights". weights: (head, query, key). query_tokens
    and key_tokens: the names on the two axes. blocked: (query, key), True where masked; "causal" if
    every key after its query is masked; None if nothing is. caution: a warning for the reader.
    labels: what each head does, where it is known.
    """

    site: str
    weights: Weights
    query_tokens: tuple[str, ...]
    key_tokens: tuple[str, ...]
    blocked: Any = None
    caution: str = ""
    labels: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check the shapes: tokens of another length would put names at wrong places."""
        shape = tuple(self.weights.shape)
        if len(shape) != 3 or 0 in shape:
            raise WrongUsage(
                f"the weights of {self.site!r} must be (head, query, key), none of them 0; "
                f"got {shape_text(shape)}."
            )
        for axis, tokens, length in (
            ("query", self.query_tokens, shape[1]),
            ("key", self.key_tokens, shape[2]),
        ):
            if len(tokens) != length:
                raise WrongUsage(
                    f"the weights of {self.site!r} have {length} places on the {axis} axis; "
                    f"got {len(tokens)} tokens."
                )
            object.__setattr__(self, f"{axis}_tokens", tuple(map(str, tokens)))
        if isinstance(self.blocked, str):
            if self.blocked != CAUSAL:
                raise WrongUsage(
                    f"blocked is a boolean (query, key), {CAUSAL!r} or None; got {self.blocked!r}."
                )
        elif self.blocked is not None and tuple(self.blocked.shape) != shape[1:]:
            raise WrongUsage(
                f"blocked must be (query, key), {shape_text(shape[1:])}, as the weights of "
                f"{self.site!r} are; got {shape_text(tuple(self.blocked.shape))}."
            )

    @property
    def shape(self) -> tuple[int, int, int]:
        """Heads, queries, keys."""
        heads, queries, keys = self.weights.shape
        return int(heads), int(queries), int(keys)

    @property
    def num_heads(self) -> int:
        """How many heads."""
        return int(self.weights.shape[0])

    @property
    def num_queries(self) -> int:
        """How many queries, the rows of the picture."""
        return int(self.weights.shape[1])

    @property
    def num_keys(self) -> int:
        """How many keys, the columns of the picture."""
        return int(self.weights.shape[2])

    def label(self, head: int) -> str:
        """Return what a head does; empty where that is not known."""
        return "".join(self.labels[head : head + 1])

    def bands(self) -> Iterator[tuple[int, int]]:
        """Yield bands of queries (first, last + 1) of about a million weights each."""
        height = max(1, _BAND // self.num_keys)
        for first in range(0, self.num_queries, height):
            yield first, min(first + height, self.num_queries)

    def rows(self, head: int, first: int, last: int) -> Rows:
        """Return the weights (rows, keys) of queries `first` to `last` - 1, NaN where masked.

        A blocked cell with weight, as after an edit, is shown and does not count as masked.

        Raises:
            WrongUsage: a weight is not a finite number.
        """
        rows = to_array(self.weights[head, first:last], np.float32)
        if not np.isfinite(rows).all():
            row, column = np.argwhere(~np.isfinite(rows))[0]
            raise WrongUsage(
                f"head {head_at(self.site, head)}: the weight of query {first + row} on key "
                f"{column} is {rows[row, column]}, which cannot be drawn; mend the model or "
                "leave this site out."
            )
        if self.blocked is None:
            return rows
        if isinstance(self.blocked, str):
            blocked = np.arange(self.num_keys) > np.arange(first, last)[:, None]
        else:
            blocked = to_array(self.blocked[first:last], np.bool_)
        return np.where(blocked & (rows == 0), np.float32(np.nan), rows)

    def whole(self, head: int) -> Rows:
        """Return a whole head: (query, key), NaN where masked."""
        return np.concatenate([self.rows(head, first, last) for first, last in self.bands()])


def numbered(length: int) -> tuple[str, ...]:
    """Return names for places without tokens: their numbers."""
    return tuple(map(str, range(length)))


def to_array(values: Any, kind: Any) -> NDArray[Any]:
    """Turn a tensor of any device and precision, or an array, into an array of this kind."""
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        if kind is not np.bool_:
            values = values.float()
        values = values.numpy()
    return np.asarray(values, dtype=kind)


def site_words(site: str) -> tuple[str, str]:
    """Split a site into the kind of attention, in words, and its layer.

    >>> site_words("decoder.layers.11.cross_attention.weights")
    ('Decoder cross-attention', '11')
    >>> site_words("attention.weights"), site_words("model.stack.3.core.2.attn.weights")
    (('Attention', ''), ('model.stack.*.core.*.attn', '3.2'))
    """
    path = re.sub(r"\.?weights$", "", site)
    layer = ".".join(re.findall(r"(?:^|\.)(\d+)(?=\.|$)", path))
    kind = re.sub(r"(^|\.)\d+(?=\.|$)", r"\1*", path)
    match = re.fullmatch(r"(?:(encoder|decoder)\.)?(?:layers\.\*\.)?(?:(\w+?)_)?attention", kind)
    if match:
        kind = f"{match[2]}-attention" if match[2] else "attention"
        if match[1]:
            kind = f"{match[1]} {kind}"
        kind = kind[0].upper() + kind[1:]
    return kind, layer
