"""Measures of a head at a token: its weight on chosen keys, or a statistic of its weights; and the
hook that measures every chosen head on a batch of texts.

A measure gets some rows of the weights of every head. It is NaN if undefined: the first token has
no previous one, and some tokens no earlier occurrence.
"""

import hashlib
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, pairwise, starmap
from typing import Any

import torch
from torch import Tensor

from attnlab.display import short
from attnlab.errors import CouldNotRun, WrongUsage, require_known
from attnlab.look.collector import Collector
from attnlab.look.recording.kept_call import KeptCall, KeptMask
from attnlab.shapes import shape_text
from attnlab.sites import AttentionCall

_BLOCK = 2**22  # weights at a time


@dataclass(frozen=True)
class WeightRows:
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
    def span(self) -> slice:
        """The positions of these queries."""
        return slice(self.first, self.first + self.weights.shape[2])

    @property
    def queries(self) -> Tensor:
        """The positions of these queries, (query, 1)."""
        return torch.arange(self.ids.shape[1], device=self.ids.device)[self.span].unsqueeze(-1)

    @property
    def keys(self) -> Tensor:
        """The positions of all keys, (key,)."""
        return torch.arange(self.weights.shape[3], device=self.ids.device)

    @property
    def own_ids(self) -> Tensor:
        """The ids at these queries, (batch, query)."""
        return self.ids[:, self.span]

    @property
    def own_real(self) -> Tensor:
        """Which of these queries are real, (batch, query); False at padding."""
        return self.real[:, self.span]


Measure = Callable[[WeightRows], tuple[Tensor, Tensor]]
"""Rows -> value and key of each query, (batch, head, query) both; the key contributes most."""


def measure_of(measure: str | Callable[[WeightRows], Tensor]) -> tuple[str, Measure]:
    """Return the name of a measure, and the measure.

    Args:
        measure: one of `MEASURES`; "token:REGEX", the weight on keys whose whole name matches; or a
            function of `WeightRows` that returns (batch, head, query), NaN where it is not defined.

    Raises:
        WrongUsage: there is no such measure.
    """
    if callable(measure):
        return getattr(measure, "__name__", "measure"), partial(_measured, measure)
    if isinstance(measure, str) and measure.startswith("token:"):
        try:
            return measure, _named(measure.removeprefix("token:"))
        except re.error as error:
            raise WrongUsage(f"{measure!r} is not a valid pattern: {error}.") from None
    require_known("measure", measure, MEASURES)
    return measure, _MEASURES[measure]


def source_digest(measure: object) -> str:
    """Return a digest of a function's source, by which a resumed search knows it; "" without it."""
    try:
        source = inspect.getsource(measure)  # type: ignore[arg-type]
    except (OSError, TypeError):
        return ""
    return hashlib.sha256(source.encode()).hexdigest()


def _measured(measure: Callable[[WeightRows], Tensor], rows: WeightRows) -> tuple[Tensor, Tensor]:
    values, shape = measure(rows), rows.weights.shape[:3]
    is_real = isinstance(values, Tensor) and values.shape == shape and not values.is_complex()
    if not is_real:
        raise WrongUsage(f"a measure returns real numbers {tuple(shape)}; got {short(values)}.")
    if not values.is_floating_point():
        values = values.to(rows.weights.dtype)
    return values, _most(rows)


def _most(rows: WeightRows) -> Tensor:
    return rows.weights.argmax(-1)


def _weight_on(choose: Callable[[WeightRows], Tensor]) -> Measure:
    """Measure the weight on chosen keys: `choose` returns (batch or 1, query, key), True where
    chosen."""

    def measure(rows: WeightRows) -> tuple[Tensor, Tensor]:
        chosen = choose(rows).unsqueeze(1) & rows.allowed
        on = rows.weights.masked_fill(~chosen, -1.0)
        value = on.clamp(min=0.0).sum(-1)
        return value.masked_fill(~chosen.any(-1).expand(value.shape), float("nan")), on.argmax(-1)

    return measure


def _previous(rows: WeightRows) -> Tensor:
    return (rows.keys == rows.queries - 1).unsqueeze(0)


def _first(rows: WeightRows) -> Tensor:
    start = rows.real.int().argmax(-1)[:, None, None]  # padding may precede a text
    return (rows.keys == start) & (rows.queries > start)


def _own(rows: WeightRows) -> Tensor:
    return (rows.keys == rows.queries).unsqueeze(0)


def _duplicate(rows: WeightRows) -> Tensor:
    return (rows.ids.unsqueeze(1) == rows.own_ids.unsqueeze(-1)) & (rows.keys < rows.queries)


def _induction(rows: WeightRows) -> Tensor:
    before = rows.ids.roll(1, -1)
    is_real = rows.real.roll(1, -1).unsqueeze(1)
    is_after = (rows.keys <= rows.queries) & (rows.keys > 0)
    return (before.unsqueeze(1) == rows.own_ids.unsqueeze(-1)) & is_after & is_real


def _named(words: str) -> Measure:
    """Measure the weight on keys whose whole name matches a regular expression."""
    pattern, known = re.compile(words), dict[int, bool]()

    def choose(rows: WeightRows) -> Tensor:
        for token in set(rows.ids.flatten().tolist()) - set(known):
            known[token] = pattern.fullmatch(rows.names(token).strip("␣▁Ġ ")) is not None
        matches = [[known[token] for token in row] for row in rows.ids.tolist()]
        chosen = torch.tensor(matches, device=rows.ids.device)
        return chosen.unsqueeze(1).expand(-1, rows.weights.shape[2], -1)

    return _weight_on(choose)


def _largest(rows: WeightRows) -> tuple[Tensor, Tensor]:
    return rows.weights.amax(-1), _most(rows)


def _entropy(rows: WeightRows) -> tuple[Tensor, Tensor]:
    return torch.special.entr(rows.weights).sum(-1), _most(rows)


def _distance(rows: WeightRows) -> tuple[Tensor, Tensor]:
    return _mean_distance(rows), _most(rows)


def _spread(rows: WeightRows) -> tuple[Tensor, Tensor]:
    from_mean = _away(rows) - _mean_distance(rows).unsqueeze(-1)
    return (rows.weights * from_mean.square()).sum(-1).sqrt(), _most(rows)


def _mean_distance(rows: WeightRows) -> Tensor:
    return torch.einsum("bhqk,qk->bhq", rows.weights, _away(rows))


def _away(rows: WeightRows) -> Tensor:
    return (rows.queries - rows.keys).to(rows.weights.dtype)


# The measures: name, description, function.
_TABLE: tuple[tuple[str, str, Measure], ...] = (
    ("previous", "the weight on the token before", _weight_on(_previous)),
    ("first", "the weight on the first token, of all queries after it", _weight_on(_first)),
    ("own", "the weight on the token itself", _weight_on(_own)),
    ("duplicate", "the weight on earlier tokens that are the same", _weight_on(_duplicate)),
    ("induction", "the weight on tokens that follow an earlier same token", _weight_on(_induction)),
    ("largest", "the largest weight", _largest),
    ("entropy", "the entropy of the weights, in nats", _entropy),
    ("distance", "the mean distance of the keys, in tokens back", _distance),
    ("spread", "the standard deviation of the keys' distance, in tokens", _spread),
    ("punctuation", "the weight on punctuation", _named(r"\W+")),
    ("number", "the weight on numbers", _named(r"\d+")),
    ("name", "the weight on words that begin with a capital letter", _named(r"[A-Z]\w*")),
    ("special", "the weight on special tokens such as [CLS]", _named(r"\[[A-Z]+\]|<.+>")),
)
_MEASURES = {name: measure for name, _, measure in _TABLE}

MEASURES = {name: words for name, words, _ in _TABLE}
"""Every measure with a name, in words."""


class HeadReader(Collector):
    """Reads the weights of chosen heads on one batch of texts, some rows at a time.

    Args:
        heads: the heads to read, by attention.
        ids, real: (batch, length); real is False at padding.
        names: the name of an id.
    """

    def __init__(
        self,
        heads: Mapping[str, Sequence[int]],
        ids: Tensor,
        real: Tensor,
        names: Callable[[int], str],
    ) -> None:
        super().__init__(heads)
        self.heads, self.ids, self.real, self._names = heads, ids, real, names
        self.shape = (len(ids), sum(map(len, heads.values())), ids.shape[1])
        """Texts, heads and queries."""
        ends = list(accumulate(map(len, heads.values()), initial=0))
        self._places = dict(zip(heads, starmap(slice, pairwise(ends)), strict=True))

    def read_rows(self, heads: slice, rows: WeightRows) -> None:
        """Read some rows of the chosen heads of an attention; `heads` are their places among all
        chosen heads."""
        raise NotImplementedError

    def check(self, part: str, call: AttentionCall) -> None:
        """Raise unless an attention has a query and a key for each token of the batch."""
        expected = (*self.ids.shape, self.ids.shape[1])
        if (call.query.shape[0], call.query.shape[2], call.key.shape[2]) != expected:
            raise CouldNotRun(
                f"{part} should have {self.ids.shape[1]} queries and as many keys, in "
                f"{len(self.ids)} texts; its queries are {shape_text(call.query.shape)}, its "
                f"keys {shape_text(call.key.shape)}."
            )

    def collect(self, part: str, call: AttentionCall, weights: Tensor | None) -> None:
        """Read the chosen heads of an attention."""
        heads = list(self.heads[part])
        mask = call.mask
        if isinstance(mask, Tensor) and mask.dim() > 2 and mask.shape[-3] > 1:
            mask = mask[..., heads, :, :]
        kept_mask = KeptMask(mask, call.query.shape[2], call.key.shape[2], call.query.device)
        rows_of: Callable[[slice], Tensor]
        if weights is None:
            share = call.query.shape[1] // call.key.shape[1]
            keys_of_heads = call.key[:, [head // share for head in heads]]
            kept = KeptCall(call.query[:, heads], keys_of_heads, kept_mask, call.scale)
            rows_of = lambda queries: kept.make(queries=queries)  # noqa: E731
        else:
            rows_of = lambda queries: weights[:, heads, queries]  # noqa: E731
        batch, length = self.ids.shape
        step = max(1, _BLOCK // max(1, batch * len(heads) * length))
        for first in range(0, length, step):
            queries = slice(first, min(first + step, length))
            block = rows_of(queries).detach()
            block = block.to(torch.promote_types(block.dtype, torch.float32))
            allowed = self._allowed(kept_mask, queries)
            rows = WeightRows(block, self.ids, self.real, allowed, first, self._names)
            self.read_rows(self._places[part], rows)

    def _allowed(self, mask: KeptMask, queries: slice) -> Tensor:
        """Return which keys may be attended to: (batch, head or 1, query, key)."""
        real = self.real[:, None, None, :].expand(-1, -1, queries.stop - queries.start, -1)
        allowed = mask.part(queries=queries)
        if allowed is None:
            return real
        if allowed.dtype != torch.bool:
            allowed = allowed > torch.finfo(allowed.dtype).min / 2
        return real & allowed


class Measurer(HeadReader):
    """Measures the heads of a model on one batch: values, NaN at padding, and keys, (text, head,
    query); `measure` is of `measure_of`."""

    def __init__(self, measure: Measure, *batch: Any) -> None:
        super().__init__(*batch)
        self._measure = measure
        self.values = torch.zeros(self.shape, dtype=torch.float64)
        self.keys = torch.zeros(self.shape, dtype=torch.int64)

    def read_rows(self, heads: slice, rows: WeightRows) -> None:
        """Measure some rows."""
        value, key = self._measure(rows)
        self.values[:, heads, rows.span] = value.masked_fill(~rows.own_real[:, None], torch.nan)
        self.keys[:, heads, rows.span] = key
