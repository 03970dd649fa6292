"""Ablation: take out every head, edge, layer or feed-forward part, one at a time.

    found = ablate(model, tokens)     # every head; what happens to the logit of the answer
    print(found)                         # a row for each layer, a column for each head
    found.table()                        # the same as a tensor; found.frame() as a DataFrame

Each is what the edit by itself would give, but for rounding; see `sweep` for why it costs far less.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias, get_args

import torch
from torch import Tensor, nn

from attnlab.display import Card, card_text, displayed, frame
from attnlab.edits.effects.baseline import Baseline, run_plain
from attnlab.edits.effects.measurement import (
    Place,
    measure,
    parts_with,
    portions_that_fit,
    table_of,
)
from attnlab.edits.effects.metrics import Metric, MetricLike
from attnlab.edits.effects.patterns import allowed_of, scores_of
from attnlab.edits.effects.sweep import USUAL, Case, How, check_how
from attnlab.edits.where import site_of
from attnlab.errors import WrongUsage, did_you_mean
from attnlab.look.heads import layer_name
from attnlab.look.inputs import Call, Inputs
from attnlab.parts.attend import attention_weights, weighted_values
from attnlab.parts.heads import share_heads
from attnlab.sites import AttentionCall

_MOST_LISTED = 10
What = Literal["heads", "edges", "head edges", "layers", "mlps", "attentions"]
_SITE = {
    "heads": "heads",
    "edges": "heads",
    "head edges": "heads",
    "layers": "residual_after",
    "mlps": "feed_forward.output",
    "attentions": "output",
}
_Pairs: TypeAlias = list[tuple[int, int]]


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
        return table_of(self.places, self.effects.mean(1))

    def largest(self, number: int = 10) -> list[tuple[Place, float]]:
        """List the places of the largest mean effects, either way, largest first."""
        means = self.effects.mean(1)
        ranked = means.abs().argsort(descending=True, stable=True)[:number]
        return [(self.places[index], float(means[index])) for index in ranked.tolist()]

    def rows(self) -> list[dict[str, Any]]:
        """Return one mapping per place: part, head, query, key, and the mean effect."""
        means = self.effects.mean(1).tolist()
        pairs = zip(self.places, means, strict=True)
        return [{**asdict(place), "effect": mean} for place, mean in pairs]

    def frame(self) -> Any:
        """Return `rows` as a pandas DataFrame.

        Raises:
            CouldNotRun: pandas is not installed.
        """
        return frame(self.rows())

    def _card(self) -> Card:
        before = float(self.before.mean())
        found = f"{self.metric} of {len(self.before)} inputs: {before:.4g}; mean changes"
        rows: list[list[str]] = []
        if self.what != "heads":
            for place, effect in self.largest(len(self.places)):
                rows.append([str(place), f"{effect:+.4g}"])
            return Card(f"{found}, largest first", columns=("taken out", "mean change"), rows=rows)
        table = self.table()
        for part, effects in zip(self.parts, table.tolist(), strict=True):
            cells = ["" if math.isnan(effect) else f"{effect:+.4g}" for effect in effects]
            rows.append([layer_name(part), *cells])
        columns = ["layer", *(f"head {head}" for head in range(table.shape[1]))]
        return Card(f"{found} where a head is taken out", columns=columns, rows=rows)

    def __str__(self) -> str:
        card = self._card()
        if self.what != "heads":
            card = card._replace(rows=card.rows[:_MOST_LISTED])
        return card_text(card)

    def to_mapping(self) -> dict[str, Any]:
        """Return everything as plain values for JSON."""
        return {
            "what": self.what,
            "metric": self.metric,
            "places": [asdict(place) for place in self.places],
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
    _check_what(what, heads, edges)
    paths = parts_with(model, _SITE[what], parts)
    call = Call.of(inputs, model)
    own_sites = [site_of(path, _SITE[what]) for path in paths]
    has_edges = "edges" in what
    if isinstance(heads, int):
        heads = [heads]
    numbers = None if heads is None else list(heads)
    pairs = None if edges is None else _listed_pairs(edges)
    if what == "layers":
        own_sites += [site_of(path, "residual_before") for path in paths]
    seen = _allowed_edges(model, call, paths, how.budget) if has_edges else {}

    def cases(base: Baseline) -> list[Case]:
        found: list[Case] = []
        for path in paths:
            if has_edges:
                chosen = _checked_pairs(pairs, seen[path], path)
                found += _edges(base.calls[path], path, numbers, chosen, each_head=what != "edges")
            elif what == "heads":
                found += _heads(base, path, numbers)
            else:
                before = base.values.get(site_of(path, "residual_before"))  # kept for layers alone
                found.append(Case(site_of(path, _SITE[what]), _giving(before), Place(path)))
        return found

    asked = Metric.of(metric, labels)
    found = measure(model, call, cases, asked, sites=own_sites, keeps_calls=has_edges, how=how)
    return Ablation(what, found.metric, tuple(found.places), found.before, found.after)


def _check_what(what: object, heads: object, edges: object) -> None:
    if what not in get_args(What):
        raise WrongUsage(
            f"there is no sweep over {what!r}; {did_you_mean(str(what), get_args(What))}"
        )
    if heads is not None and what not in ("heads", "edges", "head edges"):
        raise WrongUsage(f"heads= goes with heads and edges; {what} are taken out whole.")
    if edges is not None and what not in ("edges", "head edges"):
        raise WrongUsage(f"edges= goes with what='edges'; got what={what!r}.")


def _heads(base: Baseline, path: str, chosen: Sequence[int] | None) -> Iterator[Case]:
    site = site_of(path, "heads")
    for head in _checked_heads(chosen, base.values[site].shape[1], path):
        yield Case(site, _silencing(head), Place(path, head))


def _silencing(head: int) -> Callable[[Tensor], object]:
    return lambda value: value[:, head].zero_()


def _giving(given: Tensor | None) -> Callable[[Tensor], object]:
    """What puts these values there, or zeros."""
    return lambda value: value.zero_() if given is None else value.copy_(given)


def _edges(
    call: AttentionCall, path: str, chosen: Sequence[int] | None, pairs: _Pairs, *, each_head: bool
) -> Iterator[Case]:
    site, num_heads = site_of(path, "heads"), call.query.shape[1]
    call = call._replace(key=share_heads(call.key, num_heads))
    value = share_heads(call.value, num_heads)
    heads = _checked_heads(chosen, num_heads, path)
    for query, key in pairs:
        if each_head:
            for head in heads:
                write = _cutting(call, value, [head], query, key)
                yield Case(site, write, Place(path, head, query, key))
        else:
            write = _cutting(call, value, heads, query, key)
            yield Case(site, write, Place(path, None, query, key))


def _cutting(
    call: AttentionCall, value: Tensor, heads: list[int], query: int, key: int
) -> Callable[[Tensor], object]:
    """What lets a query of these heads look at all but one of its keys; only this query's scores
    are made."""

    def write(whole: Tensor) -> None:
        left = _row_of_scores(call, query)[:, heads]
        left[..., key] = float("-inf")
        gathered = weighted_values(attention_weights(left), value[:, heads])
        whole[:, heads, query] = gathered.squeeze(-2).to(whole.dtype)

    return write


def _row_of_scores(call: AttentionCall, query: int) -> Tensor:
    """Make the scores of one query: (row, head, 1, key)."""
    mask, num_keys = call.mask, call.key.shape[-2]
    if isinstance(mask, Tensor):
        if mask.shape[-2] > 1:
            mask = mask[..., query : query + 1, :]
    elif mask is not None:  # "causal": the queries are the last positions
        place = query + num_keys - call.query.shape[-2]
        mask = (torch.arange(num_keys, device=call.key.device) <= place).unsqueeze(0)
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
            found[path] = allowed | found.get(path, allowed)
    return found


def _listed_pairs(edges: object) -> _Pairs:
    """Return edges as (query, key), each once."""
    if isinstance(edges, Tensor):
        edges = edges.tolist()
    if not isinstance(edges, Iterable):
        edges = [edges]
    found: list[Any] = list(edges)
    for each in found:
        is_pair = isinstance(each, Sequence) and len(each) == 2
        if not is_pair or not all(type(number) is int for number in each):  # bool is no place
            raise WrongUsage(
                f"edges are pairs (query, key) of integers, such as [(2, 0), (3, 1)]; got {each!r}."
            )
    return list(dict.fromkeys((query, key) for query, key in found))


def _checked_pairs(pairs: _Pairs | None, allowed: Tensor, path: str) -> _Pairs:
    if pairs is None:
        return [(query, key) for query, key in allowed.nonzero().tolist()]
    for query, key in pairs:
        if not (0 <= query < allowed.shape[0] and 0 <= key < allowed.shape[1]):
            raise WrongUsage(
                f"an edge is (query, key), below {tuple(allowed.shape)} in "
                f"{path or 'this attention'}; got {(query, key)}."
            )
        if not bool(allowed[query, key]):
            raise WrongUsage(
                f"no query attends along {(query, key)} in {path or 'this attention'}: it is "
                "blocked."
            )
    return pairs


def _checked_heads(heads: Sequence[int] | None, size: int, part: str) -> list[int]:
    """Return the numbers of heads, each once, all if none are named; there are `size` in this
    part."""
    if heads is None:
        return list(range(size))
    for head in heads:
        if isinstance(head, bool) or not isinstance(head, int) or not 0 <= head < size:
            raise WrongUsage(
                f"{part or 'this attention'} has the heads 0 to {size - 1}; got {head!r}."
            )
    return list(dict.fromkeys(heads))
