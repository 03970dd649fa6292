"""The facts about a site for `attnlab look`: facts of each head, or the size of any other value."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from attnlab.look import Recording

_LEAST = 0.3  # share of a head's weight on one position that is named


@dataclass(frozen=True)
class HeadMeans:
    """One head, in means over its queries.

    looks_most_at: for each query, the key with most weight. places: the mean weight on the first
    token, the one before, and so on. mostly: the place with most weight, if that is at least 30 %.
    rows: the weights of each query, None where they are masked.
    """

    head: int
    entropy: float
    largest_weight: float
    looks_most_at: list[str]
    places: dict[str, float]
    mostly: str | None
    rows: list[list[float | None]] | None

    def to_mapping(self) -> dict[str, object]:
        """Return plain values for JSON, without rows if there are none."""
        form = dict(vars(self))
        if self.rows is None:
            del form["rows"]
        return form


@dataclass(frozen=True)
class WeightFacts:
    """The weights of one attention."""

    query_tokens: list[str]
    key_tokens: list[str]
    heads: list[HeadMeans]

    def to_mapping(self) -> dict[str, object]:
        """Return plain values for JSON."""
        return {**vars(self), "heads": [head.to_mapping() for head in self.heads]}


@dataclass(frozen=True)
class ValueFacts:
    """Any other value: its shape, and `size`, one number with its name in JSON."""

    shape: list[int]
    name: str
    size: float

    @property
    def words(self) -> str:
        """The size in words."""
        if self.name == "open":
            return f"{self.size:,} of {prod(self.shape):,} not masked"
        return f"root mean square {self.size:.4g}"

    def to_mapping(self) -> dict[str, object]:
        """Return plain values for JSON."""
        return {"shape": self.shape, self.name: self.size}


def site_facts(
    recording: "Recording",
    chosen: Mapping[str, Sequence[int]],
    *,
    has_rows: bool,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, WeightFacts | ValueFacts]:
    """Describe every site that was recorded, cross-attention first: an answer is fetched there.

    Args:
        recording: of one input.
        chosen: the heads to describe, by site; all of a site that is not named.
        has_rows: return the weights of each query too.
        progress: is told how many sites are done, of how many.
    """
    facts: dict[str, WeightFacts | ValueFacts] = {}
    names = sorted(recording, key=lambda name: "cross_attention" not in name)
    for done, name in enumerate(names, 1):
        if name.endswith("weights"):
            heads = chosen.get(name, range(recording.shape(name)[1]))
            facts[name] = _weight_facts(recording, name, heads, has_rows=has_rows)
        else:
            facts[name] = _value_facts(name, recording[name])
        progress(done, len(names))
    return facts


def _value_facts(name: str, value: "Tensor") -> ValueFacts:
    import torch

    if name.endswith("mask"):  # boolean, or a bias that is added to the scores
        is_open = value
        if value.dtype != torch.bool:
            is_open = value > torch.finfo(value.dtype).min
        return ValueFacts(list(value.shape), "open", int(is_open.sum()))
    numbers = value[0].double()
    finite = numbers[numbers.isfinite()]
    size = float(torch.linalg.vector_norm(finite)) / max(1, finite.numel()) ** 0.5
    return ValueFacts(list(value[0].shape), "root_mean_square", size)


def _weight_facts(
    recording: "Recording", name: str, heads: Sequence[int], *, has_rows: bool
) -> WeightFacts:
    from attnlab.look.statistics import entropy, largest_weight

    value, sides = recording[name][0], recording.tokens(name)
    is_self = sides.query == sides.key
    heads_facts = []
    for head in heads:
        weights = value[head]
        places = habits(weights, is_self=is_self)
        mostly = max(places, key=places.__getitem__)
        heads_facts.append(
            HeadMeans(
                head=head,
                entropy=float(entropy(weights).mean()),
                largest_weight=float(largest_weight(weights).mean()),
                looks_most_at=[sides.key[key] for key in weights.argmax(-1).tolist()],
                places=places,
                mostly=mostly if places[mostly] >= _LEAST else None,
                rows=_rows(weights, recording.blocked(name, head=head)) if has_rows else None,
            )
        )
    return WeightFacts(sides.query, sides.key, heads_facts)


def _rows(weights: "Tensor", blocked: "Tensor | None") -> list[list[float | None]]:
    """Return the weights of each query, None where they are masked."""
    rows: list[list[float | None]] = weights.tolist()
    if blocked is not None:
        for query, key in blocked.nonzero().tolist():
            rows[query][key] = None
    return rows


def habits(weights: "Tensor", *, is_self: bool) -> dict[str, float]:
    """Return a head's mean weight on the first and last key and, in self-attention, near the query.

    weights (query, key). Only queries for which these positions differ are counted, all if there
    are none.
    """
    queries, keys = weights.shape
    if not is_self or queries != keys:
        return {"first": _mean(weights[:, 0]), "last": _mean(weights[:, -1])}
    inner = weights[2:] if queries > 2 else weights
    first = queries - inner.shape[0]
    places = {"first": _mean(inner[:, 0]), "self": _mean(inner.diagonal(first))}
    places["previous"] = _mean(weights.diagonal(-1)[max(first - 1, 0) :])
    if queries > 3 and bool((weights.triu(1) > 0).any()):  # no causal mask
        places["last"] = _mean(weights[2:-2, -1])
        places["next"] = _mean(weights.diagonal(1)[2:-1])
    return places


def _mean(values: "Tensor") -> float:
    """Return the mean, 0 of no values."""
    return float(values.mean()) if len(values) else 0.0
