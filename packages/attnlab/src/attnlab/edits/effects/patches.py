"""Patching: which part of a clean run, put into a corrupted one, restores the answer.

A patch is measured by the usual normalised metric: 0 if it leaves the metric at the corrupted
run's, 1 if it brings it to the clean run's (Wang et al. 2022; Heimersheim and Nanda 2024). Where
clean and corrupted barely differ, shares lie far beyond 0 and 1: `Patched.contrast` compares the
difference of the runs with the changes by patches, and `Patched.caution` warns.

    patch_all(model, clean, corrupted)       # the stream before each block, at each position
    patch_all(model, clean, corrupted, "heads")     # each head, at all positions
    patch_all(model, clean, corrupted, "*.hidden", channel="0..9")  # ten neurons of each block
    patch_paths(model, clean, corrupted)            # the direct effect of each head on the logits

A path (Wang et al. 2022; Goldowsky-Dill et al. 2023) is one edge: the sender's change reaches the
receiver by the residual stream alone, every head and feed-forward part between them stays as it
was; from the receiver on everything is computed anew.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import chain, product, starmap
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn

from attnlab.edits.effects.baseline import Baseline, portions_that_fit, run_plain
from attnlab.edits.effects.estimates import Estimate, estimate_patches
from attnlab.edits.effects.metrics import MetricLike, PreparedMetric, prepare_metric
from attnlab.edits.effects.pairs import PairGroup, Pairs, pairs_of
from attnlab.edits.effects.patched import Direction, Patched, Recovery
from attnlab.edits.effects.sweep import USUAL, PatchTarget, SweepCase, SweepOptions, sweep, writer
from attnlab.edits.targets import EditTarget, normal, numbers
from attnlab.errors import WrongUsage, not_none, require_known
from attnlab.look.inputs import Inputs
from attnlab.look.position_names import position_names
from attnlab.look.target_ids import AnswerTarget
from attnlab.sites import matches, part_of, site_names, site_suffix

PatchedSites = Literal["stream", "heads", "attentions", "mlps"]

_PATTERNS = {
    "stream": "*residual_before",
    "heads": "*heads",
    "attentions": "*attention.output",
    "mlps": "*feed_forward.output",
}


class PairFacts(NamedTuple):
    """Both plain runs in numbers; see the fields of `Patched`."""

    ends: Recovery
    answers: Sequence[tuple[str, str]]
    chances: Recovery | None
    chosen: Recovery | None


@dataclass(frozen=True)
class Pair:
    """Two plain runs of one shape: values of `source` are patched into `base`.

    reference: the clean run's logits, the base of a divergence.
    """

    base: Baseline
    source: Baseline
    metric: PreparedMetric
    facts: PairFacts
    reference: Tensor

    def sweep(self, model: nn.Module, cases: Sequence[SweepCase], how: SweepOptions) -> Tensor:
        """Measure the cases on the base: (case, row)."""
        return sweep(model, self.base, cases, self.metric, reference=self.reference, how=how)


def patch_all(
    model: nn.Module,
    clean: Inputs,
    corrupted: Inputs,
    what: PatchedSites | str = "stream",
    *,
    metric: MetricLike = "logit_difference",
    target: AnswerTarget = None,
    each_position: bool | None = None,
    channel: EditTarget = None,
    direction: Direction = "denoise",
    estimate: Estimate | None = None,
    how: SweepOptions = USUAL,
) -> Patched:
    """Patch values of one input's run into another's, place by place, and measure the effect.

    This is activation patching. Which position carries the difference of two inputs::

        model = attnlab.load("runs/sorting")
        print(attnlab.patch_all(model, "abc", "cbb"))

    Args:
        model: of a run, pretrained, or built of attnlab's parts; in evaluation mode.
        clean, corrupted: a text each, or lists of texts, pair by pair of as many tokens; or other
            inputs of the same shapes, row by row a pair.
        what: "stream" (before each block), "heads", "attentions", "mlps", or sites with `*` for
            anything.
        metric: "logit", "probability", "loss", "accuracy", "kl" or "cosine"; a function of the
            logits; or a `Metric`, such as `Metric("logit_difference", " Mary", " John")`. A
            difference without `others` is that of the answer and the likeliest other one to the
            corrupted input.
        target: the answer to measure: " Mary", an id, a list with one or None for each input, or
            ids (row, length); None for the model's answer to the clean input.
        each_position: patch position by position; None for all but heads and channels, which are
            patched whole, as everything is where the texts of different pairs have different
            numbers of tokens.
        channel: numbers along the last axis, each patched alone, such as the neurons 17, "0..9" or
            "all" of `layers.2.feed_forward.hidden`; None for all together.
        direction: "denoise" puts clean values into the corrupted run, "noise" corrupted ones into
            the clean run.
        estimate: None patches; "gradient" and "integrated" estimate all patches together from one
            pass with gradients or sixteen, see `attnlab.edits.effects.estimates`.
        how: memory, threads and progress, see `SweepOptions`; an estimate needs none of them.

    Returns:
        the effect of each patch, a `Patched`: `effects`, `intervals` over the inputs, `table()` to
        draw, `refused` pairs.

    Raises:
        WrongUsage: the shapes differ, or the metric is the same for both, so that nothing can be
            restored. Of several pairs of texts those that do not fit are `refused` in the result.

    >>> import attnlab, torch
    >>> _ = torch.manual_seed(0)
    >>> model = attnlab.Decoder(attnlab.DecoderConfig()).eval()
    >>> tokens = torch.tensor([[3, 1, 2, 0]])
    >>> patched = patch_all(model, tokens, torch.tensor([[1, 1, 2, 0]]))
    >>> patched.table().shape  # (layer, position) of the stream before each block
    torch.Size([1, 4])
    """
    how = SweepOptions.of(how, "patches")
    sites = _sites_of(model, what)
    pairs, note = pairs_of(model, clean, corrupted, metric, target), ""
    if pairs.lengths:
        note = (
            f"the texts have {pairs.lengths} tokens, and positions of different texts do not "
            "correspond"
        )
        if each_position or (each_position is None and what == "stream" and channel is None):
            raise WrongUsage(f"{note}: patch heads, attentions or mlps, without positions.")
        each_position, note = False, f"{note}: each patch is of all positions"

    if estimate is not None:
        require_known("estimate", estimate, get_args(Estimate))

    def estimated(pair: Pair, how: SweepOptions) -> tuple[list[PatchTarget], Tensor]:
        values = pair.base.values
        by_site = {site: _places(site, values[site], each_position, channel) for site in sites}
        runs = (pair.base, pair.source, pair.metric, pair.reference)
        after = estimate_patches(model, *runs, by_site, not_none(estimate))
        return list(chain.from_iterable(by_site.values())), after

    def patched(pair: Pair, how: SweepOptions) -> tuple[list[PatchTarget], Tensor]:
        places: list[PatchTarget] = []
        cases, changed = [], []
        for site in sites:
            base, source = pair.base.values[site], pair.source.values[site]
            for place in _places(site, base, each_position, channel):
                if not torch.equal(base[place.index], source[place.index]):
                    changed.append(len(places))
                    cases.append(SweepCase(site, writer(source, place), place))
                places.append(place)
        plain = pair.metric(pair.base.logits, pair.reference)[0].cpu()
        after = plain.repeat(len(places), 1)  # of places where both runs are equal
        after[changed] = pair.sweep(model, cases, how)
        return places, after

    measure = patched if estimate is None else estimated
    result = patch_pairs(model, pairs, measure, sites, direction=direction, how=how)
    return replace(result, note=note, estimate=estimate)


def _sites_of(model: nn.Module, what: str) -> list[str]:
    """List the sites whose values are patched."""
    is_site = isinstance(what, str) and ("." in what or "*" in what or what in site_names(model))
    if not is_site:
        require_known("set of patches", what, _PATTERNS)
    sites = matches(_PATTERNS.get(what, what), model)
    for site in sites:
        if site_suffix(site) in ("mask", "scores", "weights", "logits"):
            raise WrongUsage(f"patch_all does not patch {site}; use the edit Patch.")
    return sites


def _places(
    site: str, value: Tensor, each_position: bool | None, channel: EditTarget
) -> list[PatchTarget]:
    """List the patches at a site: heads, positions, channels, all of these, or the whole value."""
    heads: Sequence[int | None] = [None]
    queries: Sequence[int | None] = [None]
    channels: Sequence[int | None] = [None]
    path, is_heads = site, site_suffix(site) == "heads"
    if each_position is None:
        each_position = not is_heads and channel is None
    if is_heads:
        path, heads = part_of(site), range(value.shape[1])
    # the outputs of some modules have no axis of positions
    if each_position and value.dim() == 3 + is_heads:
        queries = range(value.shape[-2])
    if channel is not None:
        channels = numbers("channel", normal("channel", channel), value.shape[-1], site)
    return list(starmap(partial(PatchTarget, path), product(heads, queries, [None], channels)))


def patch_pairs(
    model: nn.Module,
    pairs: Pairs,
    patched: Callable[[Pair, SweepOptions], tuple[list[Any], Tensor]],
    sites: Sequence[str],
    *,
    direction: Direction,
    how: SweepOptions,
) -> Patched:
    """Run the model on both inputs, as many rows at a time as fit, and patch one run.

    Args:
        model, direction, how: see `patch_all`.
        pairs: the inputs and the metric. A user's own metric is a function of all rows of one
            shape, which then stay together.
        patched: returns the places patched in a pair of runs, and the metric, (place, row).
        sites: the kept sites of both runs; see `Baseline`.
    """
    require_known("direction", direction, get_args(Direction))
    portions = _portions(model, pairs, sites, how.budget // 2)

    @lru_cache(maxsize=1)  # a single portion runs once, of several one is held at a time
    def run(number: int) -> Pair:
        return _run_pair(model, *portions[number], sites, direction)

    order = torch.tensor(list(chain.from_iterable(group.rows for group in pairs.groups))).argsort()
    backwards = [run(number).facts for number in reversed(range(len(portions)))]
    facts = _join_facts(backwards[::-1], order)
    name, has_positions = run(0).metric.name, run(0).reference.dim() > 2
    _check_apart(facts.ends, name, torch.finfo(run(0).base.logits.dtype).eps)
    after = []
    for number in range(len(portions)):
        places, values = patched(run(number), how.portion(number, len(portions)))
        after.append(values)
    calls = list(chain.from_iterable((group.clean, group.corrupted) for group in pairs.groups))
    names = {} if pairs.lengths else position_names(calls, model)
    return Patched(
        tuple(places),
        name,
        direction,
        facts.ends,
        torch.cat(after, 1)[:, order],
        names,
        facts.answers,
        facts.chances,
        pairs.refused,
        texts=pairs.texts,
        model=getattr(model, "name", ""),
        position=_position_words(pairs, names) if facts.answers and has_positions else "",
        chosen=facts.chosen,
    )


def _position_words(pairs: Pairs, names: Mapping[str, Sequence[str]]) -> str:
    """Say at which position all pairs are measured: "last position '␣to'"; "" where they differ."""
    values = [torch.as_tensor(group.metric.position).flatten() for group in pairs.groups]
    places = set(torch.cat(values).tolist())
    if len(places) != 1:
        return ""
    [place] = places
    words = "last position" if place == -1 else f"position {place}"
    tokens = names.get("decoder", names.get("", ()))
    token = tokens[place] if -len(tokens) <= place < len(tokens) else ""
    return f"{words} {token!r}" if token else words


def _portions(
    model: nn.Module, pairs: Pairs, sites: Sequence[str], budget: int
) -> list[tuple[PairGroup, slice]]:
    """Split the rows of each group so that both of its plain passes fit."""
    portions: list[tuple[PairGroup, slice]] = []
    for group in pairs.groups:
        if callable(group.metric.measure):
            portions.append((group, slice(None)))
            continue
        fitting = portions_that_fit(model, group.clean, budget, sites)
        portions += [(group, span) for span, _ in fitting]
    return portions


def _join_facts(facts: Sequence[PairFacts], order: Tensor) -> PairFacts:
    """Join the facts of portions, in this order of all rows."""
    answers = list(chain.from_iterable(part.answers for part in facts))
    chances = list(filter(None, (part.chances for part in facts)))
    chosen = list(filter(None, (part.chosen for part in facts)))
    return PairFacts(
        _joined([part.ends for part in facts], order),
        [answers[row] for row in order.tolist()] if answers else [],
        _joined(chances, order) if chances else None,
        _joined(chosen, order) if chosen else None,
    )


def _joined(ends: Sequence[Recovery], order: Tensor) -> Recovery:
    """Join the ends of portions, in this order of all rows."""
    return Recovery(*(torch.cat(values)[order] for values in zip(*ends, strict=True)))


def _run_pair(
    model: nn.Module, group: PairGroup, span: slice, sites: Sequence[str], direction: Direction
) -> Pair:
    """Run the model on both inputs of some rows of a group."""
    clean_call = group.clean.rows(span)
    clean = run_plain(model, clean_call, sites)
    corrupted = run_plain(model, group.corrupted.rows(span), sites)
    # The clean run is the base of labels and divergences.
    reference = clean.logits
    metric = prepare_metric(
        group.metric.rows(span), reference, clean_call.real, rivals=corrupted.logits
    )
    ends = _measure_both(metric, reference, corrupted.logits)
    answers, chances, chosen = metric.answers(model, reference.shape[-1]), None, None
    if answers:
        chance = replace(metric, name="probability", others=None)
        chances = _measure_both(chance, reference, corrupted.logits)
        is_chosen = replace(metric, name="accuracy", others=None)
        chosen = _measure_both(is_chosen, reference, corrupted.logits)
    facts = PairFacts(ends, answers, chances, chosen)
    both = (corrupted, clean) if direction == "denoise" else (clean, corrupted)
    return Pair(*both, metric, facts, reference)


def _measure_both(metric: PreparedMetric, clean: Tensor, corrupted: Tensor) -> Recovery:
    return Recovery(metric(clean, clean)[0].cpu(), metric(corrupted, clean)[0].cpu())


def _check_apart(ends: Recovery, metric: str, precision: float) -> None:
    high, low = float(ends.clean.mean()), float(ends.corrupted.mean())
    if not math.isfinite(high - low):
        raise WrongUsage(
            f"the metric {metric} is {high:.6g} for the clean and {low:.6g} for the corrupted "
            "input; shares need finite numbers. Look at what the model says of both first."
        )
    if abs(high - low) <= max(1e-9, precision * max(abs(high), abs(low))):
        raise WrongUsage(
            f"the metric {metric} is {high:.6g} for the clean and for the corrupted input, but "
            "for rounding: a patch has nothing to restore."
        )
