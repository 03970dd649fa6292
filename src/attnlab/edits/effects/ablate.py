"""Ablation: take out every head, edge, layer or feed-forward part, one at a time.

    found = ablate(model, tokens)     # every head; what happens to the logit of the answer
    print(found)                         # a row for each layer, a column for each head
    found.table()                        # the same as a tensor; found.frame() as a DataFrame

Each is what the edit by itself would give, but for rounding; see `sweep` for why it costs far less.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import torch
from torch import Tensor, nn

from attnlab.display import Card, card_text, displayed, frame
from attnlab.edits.effects.baseline import Baseline, run_plain
from attnlab.edits.effects.measurement import (
    Place,
    checked_heads,
    measure,
    parts_with,
    portions_that_fit,
    site_of,
)
from attnlab.edits.effects.metrics import Metric, MetricLike
from attnlab.edits.effects.patterns import allowed_of, scores_of
from attnlab.edits.effects.sweep import USUAL, Case, How, check_how
from attnlab.errors import WrongUsage, did_you_mean
from attnlab.look.heads import layer_name
from attnlab.look.inputs import Call, Inputs
from attnlab.parts.attend import attention_weights, weighted_values
from attnlab.parts.heads import share_heads
from attnlab.sites import AttentionCall

__all__ = ["Ablation", "What", "ablate"]

_MOST_LISTED = 10
What = Literal["heads", "edges", "head edges", "layers", "mlps", "attentions"]
Pairs: TypeAlias = Sequence[tuple[int, int]]


@displayed
@dataclass(frozen=True)
class Ablation:
    """The effect of taking out each place alone.

    what · metric: its name · places · before (row,): the metric of the model as it is · after
    (place, row).
    """

    what: str
    metric: str
    places: tuple[Place, ...]
    before: Tensor
    after: Tensor

    @property
    def effects(self) -> Tensor:
        """After less before: (place, row)."""
        return self.after - self.before

    @property
    def parts(self) -> list[str]:
        """The paths of the parts, each once."""
        return list(dict.fromkeys(place.path for place in self.places))

    def table(self) -> Tensor:
        """Return the mean effect over the inputs, (part, head); NaN where there is no such head.

        For edges (part, query, key), the mean over heads where they were cut one by one.
        """
        means, parts = self.effects.mean(1), self.parts
        columns = [
            (place.query, place.key) if "edges" in self.what else (place.head or 0,)
            for place in self.places
        ]
        size = [1 + max(each) for each in zip(*columns, strict=True)] if columns else [0]
        sums, counts = (
            torch.zeros(len(parts), *size, dtype=means.dtype),
            torch.zeros(len(parts), *size),
        )
        for place, column, mean in zip(self.places, columns, means, strict=True):
            sums[(parts.index(place.path), *column)] += mean
            counts[(parts.index(place.path), *column)] += 1
        return torch.where(counts > 0, sums / counts, torch.nan)

    def largest(self, number: int = 10) -> list[tuple[Place, float]]:
        """List the places of the largest mean effects, either way, largest first."""
        means = self.effects.mean(1)
        ranked = means.abs().argsort(descending=True, stable=True)[:number]
        return [(self.places[index], float(means[index])) for index in ranked.tolist()]

    def rows(self) -> list[dict[str, Any]]:
        """Return one mapping per place: part, head, query, key, and the mean effect."""
        means = self.effects.mean(1).tolist()
        return [
            {**place._asdict(), "effect": mean}
            for place, mean in zip(self.places, means, strict=True)
        ]

    def frame(self) -> Any:
        """Return `rows` as a pandas DataFrame.

        Raises:
            CouldNotRun: pandas is not installed.
        """
        return frame(self.rows())

    def _card(self) -> Card:
        found = (
            f"{self.metric} of {len(self.before)} inputs: {float(self.before.mean()):.4g}; mean "
            "changes"
        )
        if self.what != "heads":
            ranked = [
                [str(place), f"{effect:+.4g}"] for place, effect in self.largest(len(self.places))
            ]
            return Card(
                f"{found}, largest first", columns=("taken out", "mean change"), rows=ranked
            )
        table = self.table().tolist()
        columns = ["layer", *(f"head {head}" for head in range(len(table[0]) if table else 0))]
        rows = [
            [
                layer_name(part),
                *("" if effect != effect else f"{effect:+.4g}" for effect in effects),
            ]
            for part, effects in zip(self.parts, table, strict=True)
        ]
        return Card(f"{found} where a head is taken out", columns=columns, rows=rows)

    def __str__(self) -> str:
        card = self._card()
        return card_text(
            card if self.what == "heads" else card._replace(rows=card.rows[:_MOST_LISTED])
        )

    def to_mapping(self) -> dict[str, Any]:
        """Return everything as plain values for JSON."""
        return {
            "what": self.what,
            "metric": self.metric,
            "places": [place._asdict() for place in self.places],
            "before": self.before.tolist(),
            "after": self.after.tolist(),
        }


def ablate(
    model: nn.Module,
    inputs: Inputs,
    what: What = "heads",
    *,
    metric: MetricLike = "logit",
    labels: Tensor | None = None,
    parts: str | Sequence[str] = "*",
    heads: int | Iterable[int] | None = None,
    edges: Iterable[tuple[int, int]] | None = None,
    how: How = USUAL,
) -> Ablation:
    """Take out one thing after another, and measure what each does to the output.

    Args:
        model: made of attnlab's parts, in evaluation mode.
        inputs: a tensor of ids, a tuple (source, target), or a mapping of what the model's forward
            takes.
        what: "heads": a head's output is zeros. "edges": one query may not look at one key, in all
            heads at once, and its other weights share what is left; "head edges": in each head
            alone. "layers": a block gives on what it was given. "mlps", "attentions": the part adds
            nothing.
        metric, labels: a name and what is right, or a `Metric`.
        parts: paths of the parts, with `*` for anything, such as "*.cross_attention".
        heads: numbers of the heads; None for all.
        edges: (query, key) pairs; None for every one that may be looked along.
        how: it is computed: memory, threads, progress.

    Raises:
        WrongUsage: nothing matches, an edit is in force, the model is in training mode, labels are
            wrong.
    """
    how = check_how(how, "ablations")
    if what not in get_args(What):
        raise WrongUsage(
            f"there is no sweep over {what!r}; {did_you_mean(str(what), get_args(What))}"
        )
    has_edges = what in ("edges", "head edges")
    if what != "heads" and not has_edges and heads is not None:
        raise WrongUsage(f"heads= goes with heads and edges; {what} are taken out whole.")
    if edges is not None and not has_edges:
        raise WrongUsage(f"edges= goes with what='edges'; got what={what!r}.")
    paths = parts_with(model, _SITE[what], parts)
    sites = [f"{path}.{_SITE[what]}" if path else _SITE[what] for path in paths]
    if what == "layers":
        sites += [site.removesuffix("after") + "before" for site in sites]
    call, heads = Call.of(inputs, model), [heads] if isinstance(heads, int) else heads
    chosen = None if heads is None else list(heads)
    pairs = None if edges is None else _listed_pairs(edges)
    seen = _allowed_edges(model, call, paths, how.budget) if has_edges else {}

    def cases(base: Baseline) -> tuple[list[Place], list[Case]]:
        if what == "heads":
            return _heads(base, paths, chosen)
        if has_edges:
            return _edges(base, seen, chosen, pairs, each_head=what == "head edges")
        return _wholes(base, paths, what)

    asked = Metric.of(metric, labels)
    found = measure(model, call, cases, asked, sites=sites, keeps_calls=has_edges, how=how)
    return Ablation(what, found.metric, tuple(found.names), found.before, found.after)


_SITE: dict[str, str] = {
    "heads": "heads",
    "edges": "heads",
    "head edges": "heads",
    "layers": "residual_after",
    "mlps": "feed_forward.output",
    "attentions": "output",
}


def _heads(
    base: Baseline, paths: Sequence[str], chosen: Sequence[int] | None
) -> tuple[list[Place], list[Case]]:
    places, cases = [], []
    for path in paths:
        site = site_of(path, "heads")
        for head in checked_heads(chosen, base.values[site].shape[1], path):
            places.append(Place(path, head))
            cases.append(Case(site, _silencing(head)))
    return places, cases


def _wholes(base: Baseline, paths: Sequence[str], what: str) -> tuple[list[Place], list[Case]]:
    cases = []
    for path in paths:
        site = site_of(path, _SITE[what])
        given = base.values[site_of(path, "residual_before")] if what == "layers" else None
        cases.append(Case(site, _giving(given)))
    return [Place(path) for path in paths], cases


def _silencing(head: int) -> Callable[[Tensor], object]:
    return lambda value: value[:, head].zero_()


def _giving(given: Tensor | None) -> Callable[[Tensor], object]:
    """What puts these values there, or zeros."""
    return lambda value: value.zero_() if given is None else value.copy_(given)


def _edges(
    base: Baseline,
    seen: Mapping[str, Tensor],
    chosen: Sequence[int] | None,
    pairs: Pairs | None,
    *,
    each_head: bool,
) -> tuple[list[Place], list[Case]]:
    places, cases = [], []
    for path, looked in seen.items():
        call = base.calls[path]
        call = call._replace(key=share_heads(call.key, call.query.shape[1]))
        value = share_heads(call.value, call.query.shape[1])
        listed = checked_heads(chosen, call.query.shape[1], path)
        for query, key in _checked_pairs(pairs, looked, path):
            for own in [[head] for head in listed] if each_head else [listed]:
                places.append(Place(path, own[0] if each_head else None, query, key))
                cases.append(Case(site_of(path, "heads"), _cutting(call, value, own, query, key)))
    return places, cases


def _cutting(
    call: AttentionCall, value: Tensor, heads: list[int], query: int, key: int
) -> Callable[[Tensor], object]:
    """What lets a query of these heads look at all but one of its keys; only this query's scores
    are made."""

    def write(whole: Tensor) -> None:
        left = _row_of_scores(call, query)[:, heads]
        left[..., key] = float("-inf")
        whole[:, heads, query] = (
            weighted_values(attention_weights(left), value[:, heads]).squeeze(-2).to(whole.dtype)
        )

    return write


def _row_of_scores(call: AttentionCall, query: int) -> Tensor:
    """Make the scores of one query: (row, head, 1, key)."""
    mask, num_keys = call.mask, call.key.shape[-2]
    if isinstance(mask, Tensor):
        mask = mask[..., query : query + 1, :] if mask.shape[-2] > 1 else mask
    elif mask is not None:  # "causal": the queries are the last positions
        mask = (
            torch.arange(num_keys, device=call.key.device)
            <= query + num_keys - call.query.shape[-2]
        )
        mask = mask.unsqueeze(0)
    return scores_of(call._replace(query=call.query[..., query : query + 1, :], mask=mask))[0]


def _allowed_edges(
    model: nn.Module, call: Call, paths: Sequence[str], budget: int
) -> dict[str, Tensor]:
    """Say for each attention who may look at whom, in any head of any input: (query, key)
    boolean."""
    found: dict[str, Tensor] = {}
    for _, part in portions_that_fit(model, call, budget, keeps_calls=True):
        base = run_plain(model, part, keeps_calls=True)
        for path in paths:
            allowed = allowed_of(base.calls[path])
            found[path] = found[path] | allowed if path in found else allowed
    return found


def _listed_pairs(edges: object) -> Pairs:
    """Return edges as (query, key), each once."""
    if isinstance(edges, Tensor):
        edges = edges.tolist()
    found: list[Any] = list(edges) if isinstance(edges, Iterable) else [edges]
    for each in found:
        if not (
            isinstance(each, Sequence)
            and len(each) == 2
            and all(type(number) is int for number in each)
        ):  # bool is no place
            raise WrongUsage(
                f"edges are pairs (query, key) of integers, such as [(2, 0), (3, 1)]; got {each!r}."
            )
    return list(dict.fromkeys((query, key) for query, key in found))


def _checked_pairs(pairs: Pairs | None, allowed: Tensor, path: str) -> list[tuple[int, int]]:
    if pairs is None:
        return [(query, key) for query, key in allowed.nonzero().tolist()]
    for query, key in pairs:
        pair = (query, key)
        if not (0 <= query < allowed.shape[0] and 0 <= key < allowed.shape[1]):
            raise WrongUsage(
                f"an edge is (query, key), below {tuple(allowed.shape)} in "
                f"{path or 'this attention'}; got {pair}."
            )
        if not bool(allowed[query, key]):
            raise WrongUsage(
                f"no query attends along {pair} in {path or 'this attention'}: it is blocked."
            )
    return list(pairs)
