"""Path patching: what one part says to another directly; see `patching` for what a path is.

Two passes a sender. In the first, all that stands between is held where it was, and each receiver
shows what it would make of the sender's change: computed, kept, and put back. In the second that is
put into the receiver, and all after it is computed anew. Norms are computed, never frozen.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn

from attnlab.edits.effects.baseline import row_bytes
from attnlab.edits.effects.measurement import Place
from attnlab.edits.effects.metrics import Metric, MetricLike
from attnlab.edits.effects.patches import Direction, Pair, Patched, make_pairs, writer
from attnlab.edits.effects.sweep import (
    USUAL,
    Case,
    How,
    Script,
    Stage,
    check_how,
    copies,
    in_portion,
    known_before,
    sweep,
)
from attnlab.errors import WrongUsage, did_you_mean
from attnlab.look.inputs import Inputs
from attnlab.sites import installed, site_names

__all__ = ["LOGITS", "Path", "patch_paths"]

Into = Literal["query", "key", "value"]
_ALL: tuple[Into, ...] = get_args(Into)
LOGITS = Place("logits")


class Path(NamedTuple):
    """One edge, from a head or feed-forward part to a head, a feed-forward part or the logits."""

    sender: Place
    receiver: Place

    def __str__(self) -> str:
        return f"{self.sender} -> {self.receiver}"


@torch.no_grad()
def patch_paths(
    model: nn.Module,
    clean: Inputs,
    corrupted: Inputs,
    *,
    senders: Place | Iterable[Place] | None = None,
    receivers: Place | Iterable[Place] = (LOGITS,),
    into: Into | Sequence[Into] = _ALL,
    metric: MetricLike = "logit",
    labels: Tensor | None = None,
    direction: Direction = "denoise",
    how: How = USUAL,
) -> Patched:
    """Patch one path after another; the `places` of what comes back are `Path`s.

    Args:
        model: made of attnlab's parts, in evaluation mode.
        clean, corrupted: inputs of the same shapes, row by row a pair.
        senders: such as Place("layers.0.attention", head=1) or Place("layers.0.feed_forward"); None
            for every head.
        receivers: the same, or Place("logits"); each path goes to those that come after its sender.
        into: by which of its inputs a receiving head is reached; the others stay as they were.
        metric, labels, direction: see `patch_all`.
        how: it is computed: memory, threads, progress (which counts senders).

    Raises:
        WrongUsage: an unknown sender or receiver, no receiver after any sender, and what
            `patch_all` refuses.
    """
    how = check_how(how, "paths")
    into = _checked_inputs(into)
    sites = [
        name
        for name in site_names(model)
        if name.endswith("feed_forward.output") or name == "logits"
    ]
    asked = Metric.of(metric, labels)
    both, makers = make_pairs(
        model,
        clean,
        corrupted,
        asked,
        direction=direction,
        sites=sites,
        keeps_calls=len(into) < 3,
        budget=how.budget,
    )
    named = None if senders is None else _listed("senders", senders)
    ends = _listed("receivers", receivers)
    after = []
    for number, make in enumerate(makers):
        pair = make()
        starts = _heads(pair) if named is None else named
        _check(pair, starts, ends)
        paths, found = _each_path(
            model, pair, starts, ends, into, in_portion(how, number, len(makers))
        )
        after.append(found)
    return Patched(tuple(paths), pair.metric.name, direction, both, torch.cat(after, 1))


def _each_path(
    model: nn.Module,
    pair: Pair,
    starts: Sequence[Place],
    ends: Sequence[Place],
    into: Sequence[Into],
    how: How,
) -> tuple[list[Path], Tensor]:
    """Patch every path from a sender to a receiver after it: the metric, (path, row)."""
    most = max(1, how.budget // (row_bytes(pair.base, None) * pair.base.call.num_rows))
    order, paths, after, done = pair.base.order, [], [], 0
    for chosen in _together(starts, most):
        later = [each for each in ends if order.index(each.site) > order.index(chosen[0].site)]
        if later:
            paths += [Path(sender, receiver) for sender in chosen for receiver in later]
            seen = _first_pass(model, pair, chosen, later, into)
            after.append(_second_pass(model, pair, seen, later, how._replace(progress=None)))
        done += len(chosen)
        if how.progress is not None:
            how.progress(done, len(starts))
    if not paths:
        raise WrongUsage(
            "no receiver comes after any of the senders in the order of the forward pass."
        )
    return paths, torch.cat(after)


def _checked_inputs(into: object) -> tuple[Into, ...]:
    named = (into,) if isinstance(into, str) or not isinstance(into, Iterable) else tuple(into)
    for name in named:
        if name not in get_args(Into):
            raise WrongUsage(
                f"heads have no input {name!r}; {did_you_mean(str(name), get_args(Into))}"
            )
    if not named:
        raise WrongUsage(
            f"into= names by which inputs a head is reached, of {', '.join(get_args(Into))}; "
            "got none."
        )
    return named


def _listed(name: str, places: object) -> list[Place]:
    """Return one place or several, each once."""
    found: list[Any] = (
        [places] if isinstance(places, Place) or not isinstance(places, Iterable) else list(places)
    )
    for each in found:
        if not isinstance(each, Place):
            raise WrongUsage(
                f'{name} are places, such as Place("layers.0.attention", head=1); got {each!r}.'
            )
    if not found:
        raise WrongUsage(f"name at least one of the {name}; got none.")
    return list(dict.fromkeys(found))


def _first_pass(
    model: nn.Module,
    pair: Pair,
    senders: Sequence[Place],
    receivers: Sequence[Place],
    into: Sequence[Into],
) -> dict[str, Tensor]:
    """Change each sender with all else held, and return the receivers' inputs."""
    base, site, times = pair.base, senders[0].site, len(senders)
    changed = base.values[site].unsqueeze(0).repeat(times, *[1] * base.values[site].dim())
    for own, sender in zip(changed, senders, strict=True):
        writer(pair.source.values[site], sender)(own)
    change: dict[str, Callable[[Tensor], Tensor]] = {site: _held(changed.flatten(0, 1))}
    for later in base.order[base.order.index(site) + 1 :]:
        if later.rpartition(".")[2] in ("heads", "output"):
            change[later] = _held(copies(base.values[later], times))
    for receiver in receivers:
        if receiver.head is not None:
            call = base.calls[receiver.path]._asdict()
            for name in set(get_args(Into)) - set(into):
                change[f"{receiver.path}.{name}".lstrip(".")] = _held(copies(call[name], times))
    stage, keep = Stage(), frozenset(receiver.site for receiver in receivers)
    script = Script(known_before(base, site, times), change, keep)
    with installed(model, stage), stage.playing(script):
        base.call.repeated(times)(model)
    return {name: value.view(times, -1, *value.shape[1:]) for name, value in script.kept.items()}


def _second_pass(
    model: nn.Module, pair: Pair, seen: dict[str, Tensor], receivers: Sequence[Place], how: How
) -> Tensor:
    """Put each receiver's changed input into the run: the metric, (sender · receiver, row)."""
    times = next(iter(seen.values())).shape[0]
    columns = (
        {LOGITS: pair.metric(seen["logits"].flatten(0, 1), pair.reference).cpu()}
        if "logits" in seen
        else {}
    )
    inner = [each for each in receivers if each != LOGITS]
    cases = [Case(each.site, writer(own, each)) for each in inner for own in seen[each.site]]
    found = sweep(model, pair.base, cases, pair.metric, reference=pair.reference, how=how)
    for index, each in enumerate(inner):
        columns[each] = found[index * times : (index + 1) * times]
    return torch.stack([columns[each] for each in receivers], 1).flatten(0, 1)


def _held(value: Tensor) -> Callable[[Tensor], Tensor]:
    return lambda came: value


def _heads(pair: Pair) -> list[Place]:
    """Every head there is."""
    return [
        Place(site.removesuffix("heads").rstrip("."), head)
        for site in pair.base.order
        if site.rpartition(".")[2] == "heads"
        for head in range(pair.base.values[site].shape[1])
    ]


def _together(senders: Sequence[Place], most: int) -> list[list[Place]]:
    """Senders of one site side by side, at most so many."""
    by_site: dict[str, list[Place]] = {}
    for sender in senders:
        by_site.setdefault(sender.site, []).append(sender)
    return [
        each[start : start + most]
        for each in by_site.values()
        for start in range(0, len(each), most)
    ]


def _check(pair: Pair, senders: Sequence[Place], receivers: Sequence[Place]) -> None:
    heads = {
        site: value.shape[1]
        for site, value in pair.base.values.items()
        if site.rpartition(".")[2] == "heads"
    }
    known = [
        each.rpartition(".")[0]
        for each in pair.base.order
        if each.rpartition(".")[2] in ("heads", "output")
    ]
    for place in (*senders, *(each for each in receivers if each != LOGITS)):
        if place.query is not None or place.key is not None:
            raise WrongUsage(f"paths begin and end at whole heads and parts; got {place}.")
        if (
            place.site not in pair.base.order
            or (place.head is None) == (place.site in heads)
            or place == LOGITS
        ):
            raise WrongUsage(
                f"there is no head or feed-forward part {place}; {did_you_mean(place.path, known)}"
            )
        if place.head is not None and not 0 <= place.head < heads[place.site]:
            raise WrongUsage(
                f"{place.path} has the heads 0 to {heads[place.site] - 1}; got {place.head}."
            )
    if LOGITS in receivers and LOGITS.site not in pair.base.order:
        raise WrongUsage("this model has no logits to send anything to.")
