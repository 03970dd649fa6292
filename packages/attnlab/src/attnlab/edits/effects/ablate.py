"""Ablation: take out every head, edge, layer or feed-forward part, one at a time.

    ablation = ablate(model, tokens)  # every head; the change of the answer's logit
    print(ablation)                   # a row for each layer, a column for each head
    ablation.table()                  # the same as a tensor; ablation.frame() as a DataFrame

The results are those of the edits one by one, but for rounding; see `sweep` for the lower cost.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import starmap
from typing import Any, Literal, TypeAlias, get_args

from torch import Tensor, nn

from attnlab.display import Card, NumberTable, card_text, count_words, displayed, frame, plain
from attnlab.edits.effects.baseline import Baseline, allowed_of, attention_calls, scores_of
from attnlab.edits.effects.metrics import Metric, MetricLike
from attnlab.edits.effects.place_tables import place_tables, place_words
from attnlab.edits.effects.sweep import USUAL, PatchTarget, SweepCase, SweepOptions, measure, writer
from attnlab.edits.targets import listed, parts_with
from attnlab.errors import WrongUsage, is_integer, require_known
from attnlab.look.heads import head_name, layer_name
from attnlab.look.inputs import Call, Inputs, texts_of
from attnlab.look.position_names import position_names
from attnlab.look.readers import model_name
from attnlab.look.target_ids import AnswerTarget
from attnlab.parts.attend import attention_weights, weighted_values
from attnlab.parts.heads import share_heads
from attnlab.parts.masks import as_tensor
from attnlab.sites import AttentionCall, site_of

_MOST_LISTED = 10
_MOST_ON_PAGE = 5  # places in the table of a page
_MOST_TEXTS = 3  # on a page
_WIDEST = 90  # letters of a table's numbers, at the prompt
AblatedParts = Literal["heads", "edges", "head edges", "layers", "mlps", "attentions"]
_SITES = {
    "heads": ("heads",),
    "edges": ("heads", "call"),
    "head edges": ("heads", "call"),
    "layers": ("residual_after", "residual_before"),
    "mlps": ("feed_forward.output",),
    "attentions": ("output",),
}
"""The site that is changed, and a second one that a case needs."""
_ONE = {
    "heads": "head",
    "edges": "edge",
    "head edges": "edge of a head",
    "layers": "layer",
    "mlps": "feed-forward part",
    "attentions": "attention",
}
_EDGES = ("edges", "head edges")
_Pairs: TypeAlias = list[tuple[int, int]]


@displayed
@dataclass(frozen=True)
class Ablation:
    """The effect of ablating every place alone.

    what: what is taken out, such as "heads" · metric: its name · places: in order · before (row,):
    the metric of the unedited model · after (place, row): with that place taken out · measured: the
    metric in words, with its answer and position · tokens: the names of the positions of each stack
    · model: its name, its run's, or its class · texts: the inputs, if they are texts.
    """

    what: str
    metric: str
    places: tuple[PatchTarget, ...]
    before: Tensor
    after: Tensor
    measured: str
    tokens: Mapping[str, Sequence[str]] = field(default_factory=dict)
    model: str = ""
    texts: Sequence[str] = ()

    @property
    def effects(self) -> Tensor:
        """After less before: (place, row)."""
        return self.after - self.before

    @property
    def parts(self) -> list[str]:
        """The paths of the parts."""
        return list(dict.fromkeys(place.path for place in self.places))

    def table(self) -> Tensor:
        """Return the mean effect over the inputs, (part, head); NaN where there is no such head.

        For edges (part, query, key), the mean over heads where they were cut one by one.
        """
        return PatchTarget.table(self.places, self.effects.mean(1))

    def largest(self, number: int = 10) -> list[tuple[PatchTarget, float]]:
        """List the places of the largest mean effects of either sign, largest first."""
        means = self.effects.mean(1)
        ranked = means.abs().argsort(descending=True, stable=True)[:number]
        return [(self.places[index], float(means[index])) for index in ranked.tolist()]

    def rows(self) -> list[dict[str, object]]:
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
        number = count_words(len(self.before), "input")
        text = f"{self.measured}, {number}: {before:.4g}; mean changes"
        if self.what != "heads":
            ranked = []
            for place, mean in self.largest(len(self.places)):
                ranked.append([place_words(place, self.tokens), _signed(mean)])
            return Card(f"{text}, largest first", (), ("taken out", "mean change"), ranked)
        text += " where a head is taken out"
        table = self.table()
        columns = [f"head {head}" for head in range(table.shape[1])]
        rows = [list(map(_signed, effects)) for effects in table.tolist()]
        if sum(max(map(len, column)) + 2 for column in zip(*rows, strict=True)) > _WIDEST:
            largest_effect = float(table.nan_to_num().abs().max()) or 1
            unit = 10.0 ** min(0, math.floor(math.log10(largest_effect)))
            rows = [[_signed_short(effect / unit) for effect in row] for row in table.tolist()]
            columns = list(map(str, range(table.shape[1])))
            text += f"; columns are heads{f', numbers in units of {unit:g}' if unit < 1 else ''}"
        rows = [[layer_name(part), *row] for part, row in zip(self.parts, rows, strict=True)]
        facts = []
        if len(self.places) > _MOST_LISTED:  # the prompt may have no room for all rows
            facts.append(("largest", ", ".join(starmap(_head_words, self.largest(3)))))
        return Card(text, facts, ["layer", *columns], rows)

    def __str__(self) -> str:
        card = self._card()
        if self.what != "heads":
            card = card._replace(rows=card.rows[:_MOST_LISTED])
        return card_text(card)

    def number_tables(self) -> list[NumberTable]:
        """Return the mean effects as tables to draw: layer by head, or query by key."""
        label = f"mean change of the {self.measured}"
        return place_tables(self.places, self.effects.mean(1), label, self.tokens)

    @property
    def page_words(self) -> tuple[str, str]:
        """The title of the result's page, and what a cell of its picture is."""
        one = _ONE[self.what]
        return f"Which {one} matters?", f"A cell is one run of the model without this {one}."

    def _page_card(self) -> Card:
        """Return what a page says of the result: model, texts, metric, and the largest effects."""
        facts = [("model", self.model)] * bool(self.model)
        names = self.tokens.get("", self.tokens.get("encoder", ()))
        if self.texts:
            words = " · ".join(self.texts[:_MOST_TEXTS])
            more = len(self.texts) - _MOST_TEXTS
            words += f" · {more:,} more" if more > 0 else ""
            facts.append(("text" if len(self.texts) == 1 else "texts", words))
        elif any(names):
            facts.append(("tokens", " ".join(names)))
        mean = "" if len(self.before) == 1 else f", mean of {len(self.before):,} inputs"
        facts.append(("measured", self.measured))
        facts.append(("of the whole model", f"{float(self.before.mean()):.4g}{mean}"))
        rows = []
        for place, effect in self.largest(_MOST_ON_PAGE):
            rows.append([place_words(place, self.tokens), _signed(effect)])
        facts.append(("listed", f"largest first, {len(rows)} of {len(self.places):,}"))
        title = f"Each {_ONE[self.what]} taken out alone, and how the model's answer changes"
        return Card(title, facts, ("taken out", "mean change"), rows)

    def to_mapping(self) -> Any:
        """Return everything as plain values for JSON."""
        return plain(self)


def _head_words(place: PatchTarget, effect: float) -> str:
    return f"{head_name(place.path, place.head or 0)} {_signed(effect)}"


def _signed(effect: float) -> str:
    return "" if math.isnan(effect) else f"{effect:+.4g}"


def _signed_short(effect: float) -> str:
    return "" if math.isnan(effect) else f"{effect:+.2f}"


def ablate(
    model: nn.Module,
    inputs: Inputs,
    what: AblatedParts = "heads",
    *,
    metric: MetricLike = "logit",
    target: AnswerTarget = None,
    parts: str | Sequence[str] = "*",
    heads: int | Iterable[int] | None = None,
    edges: Iterable[tuple[int, int]] | None = None,
    how: SweepOptions = USUAL,
) -> Ablation:
    """Take out each head, edge, layer or part, one at a time, and measure the effect.

    Every head of a run's model, by the logit of the first letter that it answers::

        model = attnlab.load("runs/sorting")
        print(attnlab.ablate(model, ["cab", "bca"]))

    Args:
        model: of a run, pretrained, or built of attnlab's parts; in evaluation mode.
        inputs: a text, or several of as many tokens, for the model of a run or a pretrained one; a
            tensor of ids, a tuple (source, target), or a mapping of what the model's forward takes.
            A text is read to its end, where the answer begins; `record` reads the answer too.
        what: "heads": a head's output is zero. "edges": one query may not attend to one key, in all
            heads at once, and its other weights are renormalized; "head edges": in one head alone.
            "layers": a block returns its input. "mlps", "attentions": the part adds nothing.
        metric: "logit", "probability", "loss", "accuracy", "kl" or "cosine"; a function of the
            logits; or a `Metric`, such as `Metric("logit_difference", " Mary", " John")`.
        target: the answer to measure: " Mary", an id, a list with one for each input, or ids (row,
            length); None for the model's answer at the last position.
        parts: paths of the parts, with `*` for anything, such as `"*.cross_attention"`.
        heads: numbers of the heads; None for all.
        edges: (query, key) pairs; None for every allowed one.
        how: memory, threads and progress, see `SweepOptions`.

    Returns:
        the effect of each place on each input: printed, a table of heads, or the largest effects;
        `table()`, `largest()`, `frame()`.

    Raises:
        WrongUsage: nothing matches, an edit is in force, the model is in training mode, a
            target that is no token.

    >>> import attnlab, torch
    >>> model = attnlab.Decoder(attnlab.DecoderConfig()).eval()
    >>> tokens = torch.tensor([[3, 1, 2, 0]])
    >>> ablation = ablate(model, tokens)
    >>> ablation.table().shape  # (layer, head): the mean change of the logit
    torch.Size([1, 4])
    >>> len(ablate(model, tokens, "edges").places)  # under a causal mask
    10
    """
    how = SweepOptions.of(how, "ablations")
    require_known("sweep over", what, get_args(AblatedParts))
    site, *_ = names = _SITES[what]
    if heads is not None and site != "heads":
        raise WrongUsage(f"heads= goes with heads and edges; {what} are ablated whole.")
    if edges is not None and what not in _EDGES:
        raise WrongUsage(f"edges= goes with what='edges'; got what={what!r}.")
    paths = parts_with(model, site, parts)
    call = Call.of(inputs, model)
    sites = [site_of(path, name) for path in paths for name in names]
    named = None if heads is None else listed(heads)
    make_cases = partial(_taken_out, what, paths, named)
    if what in _EDGES:
        pairs = None if edges is None else _listed_pairs(edges)
        allowed = _allowed_edges(model, call, sites, how.budget)
        each_head = what == "head edges"
        make_cases = partial(_edges_cut, paths, allowed, named, pairs, each_head)
    prepared = Metric.of(metric, target, model, inputs)
    return Ablation(
        what,
        *measure(model, call, make_cases, prepared, sites, how),
        tokens=position_names([call], model),
        model=model_name(model),
        texts=texts_of(inputs),
    )


def _taken_out(
    what: AblatedParts, paths: Sequence[str], heads: Sequence[int] | None, base: Baseline
) -> list[SweepCase]:
    """List a case for each head, layer or part."""
    cases = []
    for path in paths:
        site, places = site_of(path, _SITES[what][0]), [PatchTarget(path)]
        if what == "heads":
            chosen = _checked_heads(heads, base.values[site].shape[1], path)
            places = [PatchTarget(path, head) for head in chosen]
        before = base.values.get(site_of(path, "residual_before"))  # kept for layers alone
        cases += [SweepCase(site, writer(before, place), place) for place in places]
    return cases


def _edges_cut(
    paths: Sequence[str],
    allowed: Mapping[str, Tensor],
    heads: Sequence[int] | None,
    pairs: _Pairs | None,
    each_head: bool,
    base: Baseline,
) -> list[SweepCase]:
    """List a case for each edge, in all of the heads at once or in one."""
    cases: list[SweepCase] = []
    for path in paths:
        chosen = _checked_heads(heads, base.values[site_of(path, "heads")].shape[1], path)
        edges = _checked_pairs(pairs, allowed[path], path)
        cases += _edges(base.calls[path], path, chosen, edges, each_head=each_head)
    return cases


def _edges(
    call: AttentionCall, path: str, heads: list[int], pairs: _Pairs, *, each_head: bool
) -> list[SweepCase]:
    num_heads, cases = call.query.shape[1], []
    sizes: Any = (call.mask, call.query.shape[-2], call.key.shape[-2], call.key.device)
    call = call._replace(key=share_heads(call.key, num_heads), mask=as_tensor(*sizes))
    value = share_heads(call.value, num_heads)
    for query, key in pairs:
        places = {PatchTarget(path, None, query, key): heads}
        if each_head:
            places = {PatchTarget(path, head, query, key): [head] for head in heads}
        for place, place_heads in places.items():
            write = partial(_cut_edge, call, value, place_heads, query, key)
            cases.append(SweepCase(site_of(path, "heads"), write, place))
    return cases


def _cut_edge(
    call: AttentionCall, value: Tensor, heads: list[int], query: int, key: int, whole: Tensor
) -> None:
    """Write the output of these heads without one edge."""
    row, mask = slice(query, query + 1), call.mask
    if isinstance(mask, Tensor) and mask.shape[-2] > 1:
        mask = mask[..., row, :]
    scores, _ = scores_of(call._replace(query=call.query[..., row, :], mask=mask))
    left = scores[:, heads]
    left[..., key] = float("-inf")
    gathered = weighted_values(attention_weights(left), value[:, heads])
    whole[:, heads, query] = gathered.squeeze(-2).to(whole.dtype)


def _allowed_edges(
    model: nn.Module, call: Call, sites: Sequence[str], budget: int
) -> dict[str, Tensor]:
    """Return the edges that any head of any input allows, by attention: (query, key) boolean."""
    values: dict[str, Tensor] = {}
    for path, attention in attention_calls(model, call, budget, sites):
        allowed = allowed_of(attention)
        values[path] = allowed | values.get(path, allowed)
    return values


def _listed_pairs(edges: Any) -> _Pairs:
    """Return edges as (query, key) pairs without repeats."""
    if isinstance(edges, Tensor):
        edges = edges.tolist()
    if not isinstance(edges, Iterable):
        edges = [edges]
    pairs: dict[tuple[int, int], None] = {}
    for edge in edges:
        match edge:
            case [query, key] if type(query) is type(key) is int:  # bool is no place
                pairs[query, key] = None
            case _:
                raise WrongUsage(f"edges are pairs (query, key) of integers; got {edge!r}.")
    return list(pairs)


def _checked_pairs(pairs: _Pairs | None, allowed: Tensor, path: str) -> _Pairs:
    if pairs is None:
        return [(query, key) for query, key in allowed.nonzero().tolist()]
    for query, key in pairs:
        is_there = 0 <= query < allowed.shape[0] and 0 <= key < allowed.shape[1]
        if not is_there or not allowed[query, key]:
            raise WrongUsage(
                f"an edge is (query, key), below {tuple(allowed.shape)}, that the mask allows; in "
                f"{path or 'this attention'} there is no {(query, key)}, or it is blocked."
            )
    return pairs


def _checked_heads(heads: Sequence[int] | None, size: int, part: str) -> list[int]:
    """Return the numbers of heads of a part with `size` heads; None for all."""
    for head in heads or ():
        if not is_integer(head) or not 0 <= head < size:
            raise WrongUsage(
                f"{part or 'this'} has the heads 0 to {size - 1}; got {head!r}. heads= takes their "
                'numbers, parts= the layer: head 0.1 is parts="layers.0.attention", heads=1.'
            )
    return list(range(size) if heads is None else heads)
