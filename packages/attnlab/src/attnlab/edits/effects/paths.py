"""Path patching: the direct effect of one part on another; see `patches` for paths.

Every sender takes two passes. In the first, everything between is held at its old value, and each
receiver's new input is computed, kept, and put back. In the second, that input is put into the
receiver, and everything after it is computed anew. Norms are computed, never frozen.
"""

import dataclasses
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from attnlab.edits.effects import sweep
from attnlab.edits.effects.metrics import MetricLike
from attnlab.edits.effects.pairs import pairs_of
from attnlab.edits.effects.patched import Direction, Patched
from attnlab.edits.effects.patches import Pair, patch_pairs
from attnlab.edits.effects.sweep import USUAL, PatchTarget, Script, SweepCase, SweepOptions, writer
from attnlab.edits.targets import listed
from attnlab.errors import WrongUsage, did_you_mean, require_known
from attnlab.look.heads import attentions, chosen_heads
from attnlab.look.inputs import Inputs
from attnlab.look.target_ids import AnswerTarget
from attnlab.sites import installed, part_of, site_names, site_of, site_suffix

Into = Literal["query", "key", "value"]
_ALL: tuple[Into, ...] = get_args(Into)
LOGITS = PatchTarget("logits")


@dataclass(frozen=True)
class Path:
    """One edge, from a head or feed-forward part to a head, a feed-forward part or the logits.

    sender: whose output changes · receiver: what alone reads the change.
    """

    sender: PatchTarget
    receiver: PatchTarget

    def __str__(self) -> str:
        return f"{self.sender} -> {self.receiver}"


@torch.no_grad()
def patch_paths(
    model: nn.Module,
    clean: Inputs,
    corrupted: Inputs,
    *,
    senders: PatchTarget | str | Iterable[PatchTarget | str] | None = None,
    receivers: PatchTarget | str | Iterable[PatchTarget | str] = "logits",
    into: Into | Sequence[Into] = _ALL,
    metric: MetricLike = "logit_difference",
    target: AnswerTarget = None,
    direction: Direction = "denoise",
    how: SweepOptions = USUAL,
) -> Patched:
    """Patch what one part sends to another, path by path; the `places` of the result are paths.

    Args:
        model: of a run, pretrained, or built of attnlab's parts; in evaluation mode.
        clean, corrupted: see `patch_all`; ids are (row, length).
        senders: heads by their names, such as "0.1" or "0" for those of a layer, and feed-forward
            parts, "layers.0.feed_forward"; or as `PatchTarget`; one or several, None for every
            head.
        receivers: the same, or "logits"; each path goes to those after its sender.
        into: the inputs by which a receiving head is reached; the others keep their values.
        metric, target, direction: see `patch_all`.
        how: memory, threads and progress, which counts senders.

    Returns:
        the effect of each path, a `Patched` whose `places` are pairs of a sender and a receiver.

    Raises:
        WrongUsage: an unknown sender or receiver, no receiver after any sender, or an error of
            `patch_all`.
    """
    how = SweepOptions.of(how, "paths")
    inputs: list[Into] = listed(into)
    for name in inputs:
        require_known("input of a head", name, _ALL)
    if not inputs:
        raise WrongUsage(f"into= names by which inputs a head is reached: {', '.join(_ALL)}.")
    starts = None if senders is None else _listed("senders", senders, model)
    ends = _listed("receivers", receivers, model)

    def patched(pair: Pair, how: SweepOptions) -> tuple[list[Path], Tensor]:
        chosen = starts or _heads(pair)
        for place in chosen:
            _check_place(pair, place)
        for place in ends:
            if place != LOGITS or LOGITS.site not in pair.base.values:
                _check_place(pair, place)
        return _each_path(model, pair, chosen, ends, inputs, how)

    pairs, sites = pairs_of(model, clean, corrupted, metric, target), _sites_kept(model, inputs)
    return patch_pairs(model, pairs, patched, sites, direction=direction, how=how)


def _sites_kept(model: nn.Module, into: Sequence[Into]) -> list[str]:
    """List the sites to keep of the plain passes."""
    sites = [LOGITS.site]
    for name in site_names(model):
        if name.endswith("feed_forward.output"):
            sites.append(name)
        elif site_suffix(name) == "heads" and len(into) < len(_ALL):
            sites.append(site_of(part_of(name), "call"))
    return sites


def _each_path(
    model: nn.Module,
    pair: Pair,
    starts: Sequence[PatchTarget],
    ends: Sequence[PatchTarget],
    into: Sequence[Into],
    how: SweepOptions,
) -> tuple[list[Path], Tensor]:
    """Patch every path from a sender to a receiver after it: the metric, (path, row)."""
    most = max(1, how.budget // (pair.base.row_bytes(None) * pair.base.call.num_rows))
    order, paths, after, done = pair.base.order, [], [], 0
    silent = dataclasses.replace(how, progress=None)
    for chosen in _together(starts, most):
        first = order.index(chosen[0].site)
        later = [end for end in ends if order.index(end.site) > first]
        if later:
            paths += list(itertools.starmap(Path, itertools.product(chosen, later)))
            seen = _first_pass(model, pair, chosen, later, into)
            after.append(_second_pass(model, pair, seen, later, silent))
        done += len(chosen)
        if how.progress is not None:
            how.progress(done, len(starts))
    if not paths:
        raise WrongUsage("no receiver comes after any of the senders in the forward pass.")
    return paths, torch.cat(after)


def _together(senders: Sequence[PatchTarget], most: int) -> Iterable[list[PatchTarget]]:
    """Yield groups of senders of one site, at most `most` each."""
    for site in dict.fromkeys(sender.site for sender in senders):
        alike = [sender for sender in senders if sender.site == site]
        for start in range(0, len(alike), most):
            yield alike[start : start + most]


def _first_pass(
    model: nn.Module,
    pair: Pair,
    senders: Sequence[PatchTarget],
    receivers: Sequence[PatchTarget],
    into: Sequence[Into],
) -> dict[str, Tensor]:
    """Change each sender with everything else held, and return the receivers' inputs."""
    base, site, times = pair.base, senders[0].site, len(senders)
    writes = [writer(pair.source.values[site], sender) for sender in senders]
    held = {site: sweep.side_by_side(base.values[site], writes)}
    for later in base.order[base.order.index(site) + 1 :]:
        if site_suffix(later) in ("heads", "output"):
            held[later] = sweep.copies(base.values[later], times)
    for receiver, name in itertools.product(receivers, set(_ALL) - set(into)):
        if receiver.head is not None:
            tensor = getattr(base.calls[receiver.path], name)
            held[site_of(receiver.path, name)] = sweep.copies(tensor, times)
    keep = frozenset(receiver.site for receiver in receivers)
    script = Script(sweep.known_before(base, site, times), held, keep)
    with installed(model, script):
        base.call.repeated(times)(model)
    return {name: value.view(times, -1, *value.shape[1:]) for name, value in script.kept.items()}


def _second_pass(
    model: nn.Module,
    pair: Pair,
    seen: dict[str, Tensor],
    receivers: Sequence[PatchTarget],
    how: SweepOptions,
) -> Tensor:
    """Put each receiver's changed input into the run: the metric, (sender · receiver, row)."""
    times = next(iter(seen.values())).shape[0]
    inner = [receiver for receiver in receivers if receiver != LOGITS]
    cases = []
    for receiver in inner:
        for value in seen[receiver.site]:
            cases.append(SweepCase(receiver.site, writer(value, receiver)))
    chunks = torch.split(pair.sweep(model, cases, how), times)
    columns = dict(zip(inner, chunks, strict=False))  # of no case there is one empty piece
    if LOGITS.site in seen:
        columns[LOGITS] = pair.metric(seen[LOGITS.site].flatten(0, 1), pair.reference).cpu()
    return torch.stack([columns[receiver] for receiver in receivers], 1).flatten(0, 1)


def _heads(pair: Pair) -> list[PatchTarget]:
    """List every head."""
    values = pair.base.values
    sites = [site for site in values if site_suffix(site) == "heads"]
    return [
        PatchTarget(part_of(site), head) for site in sites for head in range(values[site].shape[1])
    ]


def _listed(name: str, places: object, model: nn.Module) -> list[PatchTarget]:
    """Return one place or several, of their names too, without repeats."""
    targets: list[PatchTarget] = []
    for place in listed(places):
        if isinstance(place, PatchTarget):
            targets.append(place)
        elif not isinstance(place, str):
            raise WrongUsage(
                f'{name} are heads and parts, such as "0.1" or "layers.0.feed_forward"; got '
                f"{place!r}."
            )
        elif place == LOGITS.path or place.endswith("feed_forward"):
            targets.append(PatchTarget(place))
        else:
            for part, heads in chosen_heads(model, attentions(model), [place]).items():
                targets += [PatchTarget(part, head) for head in heads]
    if not targets:
        raise WrongUsage(f"{name}= needs at least one; got none.")
    return list(dict.fromkeys(targets))


def _check_place(pair: Pair, place: PatchTarget) -> None:
    """Raise unless this is a whole head or a feed-forward part."""
    if (place.query, place.key, place.channel) != (None, None, None):
        raise WrongUsage(f"paths begin and end at whole heads and parts; got {place}.")
    value, is_head = pair.base.values.get(place.site), site_suffix(place.site) == "heads"
    if value is None or is_head != (place.head is not None) or place == LOGITS:
        sites = [site for site in pair.base.order if site_suffix(site) in ("heads", "output")]
        known = did_you_mean(place.path, list(map(part_of, sites)))
        raise WrongUsage(f"no head or feed-forward part is {place}; {known}")
    if place.head is not None and not 0 <= place.head < value.shape[1]:
        raise WrongUsage(f"{place.path} has the heads 0 to {value.shape[1] - 1}; got {place.head}.")
