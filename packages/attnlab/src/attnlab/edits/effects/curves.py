"""Curves: places patched together, one more at a time, in the order that a method gives them.

    order = patch_all(model, clean, corrupted, "heads", estimate="gradient")
    print(patch_together(model, clean, corrupted, order))

Insertion puts clean values into the corrupted run, deletion corrupted ones into the clean run
(Petsiuk et al. 2018). A good order comes to the other run after a few places, so its curves enclose
a large area: 1 if the first place does everything, 0.5 if each does its share, 0 if only the last.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from attnlab.core.stats import Interval
from attnlab.display import Card, card_text, count_words, displayed
from attnlab.edits.effects.metrics import MetricLike
from attnlab.edits.effects.pairs import pairs_of
from attnlab.edits.effects.patched import Direction, Patched
from attnlab.edits.effects.patches import Pair, patch_pairs
from attnlab.edits.effects.sweep import USUAL, PatchTarget, SweepOptions
from attnlab.errors import WrongUsage
from attnlab.look.inputs import Inputs
from attnlab.look.target_ids import AnswerTarget
from attnlab.sites import Hook, installed, matches

_POINTS = 32  # of a curve, at most


@displayed
@dataclass(frozen=True)
class Curves:
    """How far the places of an order go together.

    places: in their order · numbers: how many of them are patched at each point · insertion,
    deletion: the points as patches, whose `effects` are the curve.
    """

    places: tuple[PatchTarget, ...]
    numbers: tuple[int, ...]
    insertion: Patched
    deletion: Patched

    @property
    def areas(self) -> dict[str, Interval]:
        """The areas under both curves, with 95 % intervals over inputs."""
        areas = {}
        for name in ("insertion", "deletion"):
            curve = getattr(self, name)
            weights = torch.tensor(_widths(self.numbers)).to(curve.after)
            area = replace(curve, places=("area",), after=(weights @ curve.after).unsqueeze(0))
            areas[name] = area.intervals[0]
        return areas

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each point: how many places, and how far both curves are."""
        both = zip(self.insertion.effects.tolist(), self.deletion.effects.tolist(), strict=True)
        return [
            {"places": number, "insertion": one, "deletion": other}
            for number, (one, other) in zip(self.numbers, both, strict=True)
        ]

    def __str__(self) -> str:
        facts = []
        for name, area in self.areas.items():
            ends = "" if math.isnan(area.low) else f" [{area.low:.3f}, {area.high:.3f}]"
            facts.append((f"area of {name}", f"{area.value:.3f}{ends}"))
        names = ("insertion", "deletion")
        rows = [
            [str(row["places"]), *(f"{row[name]:.3f}" for name in names)] for row in self.rows()
        ]
        title = f"{count_words(len(self.places), 'place')} patched together, in their order"
        return card_text(Card(title, facts, ("places", "insertion", "deletion"), rows, ()))


class _Together(Hook):
    """Writes the values of another run at many places of one."""

    def __init__(self, source: dict[str, Tensor], places: Sequence[PatchTarget]) -> None:
        self._source = source
        self._places: dict[str, list[PatchTarget]] = {}
        for place in places:
            self._places.setdefault(place.site, []).append(place)

    def wants(self, site: str) -> bool:
        return site in self._places

    def visit(self, site: str, value: Tensor) -> Tensor:
        changed = value.clone()
        for place in self._places.get(site, ()):
            changed[place.index] = self._source[site][place.index]
        return changed


def patch_together(
    model: nn.Module,
    clean: Inputs,
    corrupted: Inputs,
    order: Patched | Sequence[PatchTarget],
    *,
    metric: MetricLike = "logit_difference",
    target: AnswerTarget = None,
    how: SweepOptions = USUAL,
) -> Curves:
    """Patch more and more places together, in both directions.

    Args:
        model: any that can be edited.
        clean, corrupted: pairs of texts, or ids of the same shape, (row, length).
        metric, target: what is measured, and of which answer; see `patch_all`.
        how: memory and threads.
        order: what `patch_all` returns, whose largest effects come first; or places.

    Returns:
        the `Curves`: the metric by how many places are patched, and the areas below.

    Raises:
        WrongUsage: no place, or see `patch_all`.
    """
    how = SweepOptions.of(how, "passes")
    if isinstance(order, Patched):
        order = [place for place, _ in order.largest(len(order.places))]
    places = tuple(order)
    if not all(isinstance(place, PatchTarget) for place in places) or not places:
        raise WrongUsage(
            "order= is what patch_all returns, or places such as PatchTarget(path, 0)."
        )
    sites = [site for place in places for site in matches(place.site, model)]
    points = torch.linspace(0, len(places), min(len(places), _POINTS) + 1).round().int().tolist()
    pairs = pairs_of(model, clean, corrupted, metric, target)

    def patched(pair: Pair, how: SweepOptions) -> tuple[list[int], Tensor]:
        values = []
        for number in points:
            hook = _Together(pair.source.values, places[:number])
            with torch.no_grad(), installed(model, hook):
                logits = pair.base.call(model)
            values.append(pair.metric(logits, pair.reference)[0].cpu())
            if how.progress is not None:
                how.progress(len(values), len(points))
        return points, torch.stack(values)

    def curve(direction: Direction) -> Patched:
        return patch_pairs(model, pairs, patched, sites, direction=direction, how=how)

    return Curves(places, tuple(points), curve("denoise"), curve("noise"))


def _widths(numbers: Sequence[int]) -> list[float]:
    """Return the weights of points in the area under the lines that join them; they add up to 1."""
    shares = [(after - before) / numbers[-1] for before, after in pairwise(numbers)]
    return [(before + after) / 2.0 for before, after in pairwise([0.0, *shares, 0.0])]
