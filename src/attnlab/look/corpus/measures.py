"""Measures of a head at a token: its weight on chosen keys, or a statistic of its weights.

A measure gets some rows of the weights of every head; it is NaN where it is not defined: the first
token has no previous one, and some tokens no earlier occurrence.
"""

import hashlib
import re
from collections.abc import Callable
from types import CodeType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from attnlab.errors import WrongUsage, did_you_mean

CLASSES = {
    "punctuation": r"\W+",
    "number": r"\d+",
    "name": r"[A-Z]\w*",
    "special": r"\[[A-Z]+\]|<.+>",
}


class Rows(NamedTuple):
    """Some rows of the weights of a batch of texts, and the texts.

    weights: (batch, head, query, key), of queries from `first` on. ids: (batch, length). real:
    (batch, length), False at padding. allowed: (batch or 1, head or 1, query, key), True = may
    attend; padding may not be attended to. names: the name of an id.
    """

    weights: Tensor
    ids: Tensor
    real: Tensor
    allowed: Tensor
    first: int
    names: Callable[[int], str]

    @property
    def queries(self) -> Tensor:
        """The positions of these queries, (query, 1)."""
        end = self.first + self.weights.shape[2]
        return torch.arange(self.first, end, device=self.ids.device).unsqueeze(-1)

    @property
    def keys(self) -> Tensor:
        """The positions of all keys, (key,)."""
        return torch.arange(self.weights.shape[3], device=self.ids.device)

    @property
    def own_ids(self) -> Tensor:
        """The ids at these queries, (batch, query)."""
        return self.ids[:, self.first : self.first + self.weights.shape[2]]


Measure = Callable[[Rows], tuple[Tensor, Tensor]]
"""Rows -> value and key of each query, (batch, head, query) both; the key contributes most."""


def measure_of(measure: str | Callable[[Rows], Tensor]) -> tuple[str, Measure]:
    """Return the name of a measure, and the measure.

    Args:
        measure: one of `MEASURES`; "token:REGEX", the weight on keys whose whole name matches; or a
            function of `Rows` that returns (batch, head, query), NaN where it is not defined.

    Raises:
        WrongUsage: there is no such measure.
    """
    if callable(measure):
        function = measure

        def measured(rows: Rows) -> tuple[Tensor, Tensor]:
            return _checked(function(rows), rows), _most(rows)

        return getattr(measure, "__name__", "measure"), measured
    if isinstance(measure, str) and measure.startswith("token:"):
        try:
            return measure, _weight_on(_named(re.compile(measure.removeprefix("token:"))))
        except re.error as error:
            raise WrongUsage(f"{measure!r} is no pattern: {error}.") from None
    if measure not in _MEASURES:
        raise WrongUsage(
            f'there is no measure {measure!r}, and no "token:REGEX"; '
            f"{did_you_mean(str(measure), MEASURES)}"
        )
    return measure, _MEASURES[measure]


def digest_of(measure: object) -> str:
    """Return a digest of a function's code, by which a resumed search knows it; "" without code."""
    code = getattr(measure, "__code__", None)
    return "" if code is None else hashlib.sha256(repr(_words_of(code)).encode()).hexdigest()


def _words_of(code: CodeType) -> list[Any]:
    inner: list[Any] = []
    for each in code.co_consts:
        if isinstance(each, CodeType):
            inner.append(_words_of(each))
        elif isinstance(each, frozenset):  # it has no fixed order
            inner.append(sorted(map(repr, each)))
        else:
            inner.append(each)
    return [code.co_code, code.co_names, code.co_varnames, *inner]


def _checked(found: Tensor, rows: Rows) -> Tensor:
    if not isinstance(found, Tensor) or found.shape != rows.weights.shape[:3]:
        came = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
        raise WrongUsage(
            f"a measure returns (batch, head, query), here {tuple(rows.weights.shape[:3])}; "
            f"got {came}."
        )
    if found.is_complex():
        raise WrongUsage(f"a measure returns real numbers; got {found.dtype}.")
    return found if found.is_floating_point() else found.to(rows.weights.dtype)


def _most(rows: Rows) -> Tensor:
    return rows.weights.argmax(-1)


def _weight_on(choose: Callable[[Rows], Tensor]) -> Measure:
    """Measure the weight on chosen keys: `choose` returns (batch or 1, query, key), True where
    chosen."""

    def measure(rows: Rows) -> tuple[Tensor, Tensor]:
        chosen = choose(rows).unsqueeze(1) & rows.allowed
        on = rows.weights.masked_fill(~chosen, -1.0)
        value = on.clamp(min=0.0).sum(-1)
        return value.masked_fill(~chosen.any(-1).expand(value.shape), float("nan")), on.argmax(-1)

    return measure


def _previous(rows: Rows) -> Tensor:
    return (rows.keys == rows.queries - 1).unsqueeze(0)


def _first(rows: Rows) -> Tensor:
    start = rows.real.int().argmax(-1)[:, None, None]  # padding may precede a text
    return (rows.keys == start) & (rows.queries > start)


def _own(rows: Rows) -> Tensor:
    return (rows.keys == rows.queries).unsqueeze(0)


def _duplicate(rows: Rows) -> Tensor:
    return (rows.ids.unsqueeze(1) == rows.own_ids.unsqueeze(-1)) & (rows.keys < rows.queries)


def _induction(rows: Rows) -> Tensor:
    before = rows.ids.roll(1, -1)
    is_real = rows.real.roll(1, -1).unsqueeze(1)
    is_after = (rows.keys <= rows.queries) & (rows.keys > 0)
    return (before.unsqueeze(1) == rows.own_ids.unsqueeze(-1)) & is_after & is_real


def _named(pattern: re.Pattern[str]) -> Callable[[Rows], Tensor]:
    known: dict[int, bool] = {}

    def choose(rows: Rows) -> Tensor:
        for token in set(rows.ids.flatten().tolist()) - set(known):
            known[token] = pattern.fullmatch(rows.names(token).strip("␣▁Ġ ")) is not None
        matches = [[known[token] for token in row] for row in rows.ids.tolist()]
        found = torch.tensor(matches, device=rows.ids.device)
        return found.unsqueeze(1).expand(-1, rows.weights.shape[2], -1)

    return choose


def _largest(rows: Rows) -> tuple[Tensor, Tensor]:
    found = rows.weights.max(-1)
    return found.values, found.indices


def _entropy(rows: Rows) -> tuple[Tensor, Tensor]:
    return torch.special.entr(rows.weights).sum(-1), _most(rows)


def _distance(rows: Rows) -> tuple[Tensor, Tensor]:
    away = (rows.queries - rows.keys).to(rows.weights.dtype)
    return (rows.weights * away).sum(-1), _most(rows)


_MEASURES: dict[str, Measure] = {
    "previous": _weight_on(_previous),
    "first": _weight_on(_first),
    "own": _weight_on(_own),
    "duplicate": _weight_on(_duplicate),
    "induction": _weight_on(_induction),
    "largest": _largest,
    "entropy": _entropy,
    "distance": _distance,
    **{name: _weight_on(_named(re.compile(pattern))) for name, pattern in CLASSES.items()},
}

MEASURES = {
    "previous": "the weight on the token before",
    "first": "the weight on the first token, of all queries after it",
    "own": "the weight on the token itself",
    "duplicate": "the weight on earlier tokens that are the same",
    "induction": "the weight on tokens that follow an earlier same token",
    "largest": "the largest weight",
    "entropy": "the entropy of the weights, in nats",
    "distance": "the mean distance of the keys, in tokens back",
    "punctuation": "the weight on punctuation",
    "number": "the weight on numbers",
    "name": "the weight on words that begin with a capital letter",
    "special": "the weight on special tokens such as [CLS]",
}
"""Every measure with a name, in words."""
