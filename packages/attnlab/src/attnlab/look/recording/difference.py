"""Two recordings compared: the difference of their values at each site, and its place."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from attnlab.display import displayed
from attnlab.errors import WrongUsage
from attnlab.shapes import shape_text

_SHOWN = 3  # sites of each side that have none in common


@dataclass(frozen=True)
class Difference:
    """The difference of two values.

    largest: the largest absolute one · mean: the mean absolute one · where: the index of the
    largest.
    """

    largest: float
    mean: float
    where: tuple[int, ...]


@displayed
@dataclass(frozen=True)
class RecordingComparison:
    """Differences by site of two recordings.

    sites: the difference at each site that both have · only_here, only_there: the sites of one of
    them.
    """

    sites: dict[str, Difference]
    only_here: tuple[str, ...]
    only_there: tuple[str, ...]

    @property
    def largest(self) -> float:
        """The largest difference of all sites; NaN if any is NaN."""
        values = [difference.largest for difference in self.sites.values()]
        return float(torch.tensor(values, dtype=torch.float64).max())

    def __str__(self) -> str:
        """One line a site, the largest differences first."""
        width = max(map(len, self.sites))
        lines = []
        for site, difference in sorted(self.sites.items(), key=lambda pair: -pair[1].largest):
            largest = f"largest {difference.largest:.3g} at {difference.where}"
            lines.append(f"{site:{width}}  {largest}, mean {difference.mean:.3g}")
        for where, sites in (("here", self.only_here), ("there", self.only_there)):
            if sites:
                lines.append(f"only {where}: {', '.join(sites)}")
        return "\n".join(lines)


def compared(one: Mapping[str, object], other: Mapping[str, object]) -> RecordingComparison:
    """Compare the sites of both recordings, one at a time."""
    sites, only_here = {}, []
    for site in one:
        if site in other:
            sites[site] = _difference(site, one[site], other[site])
        else:
            only_here.append(site)
    if not sites:
        raise WrongUsage(
            f"the recordings have no site in common: {_first(one)} here, {_first(other)} there."
        )
    only_there = [site for site in other if site not in one]
    return RecordingComparison(sites, tuple(only_here), tuple(only_there))


def _first(sites: Mapping[str, object]) -> str:
    return ", ".join(list(sites)[:_SHOWN]) or "none"


def _difference(site: str, here: Any, there: Any) -> Difference:
    if not (isinstance(here, Tensor) and isinstance(there, Tensor)):
        raise WrongUsage(f"{site} was reduced; only values can be compared.")
    if here.shape != there.shape:
        raise WrongUsage(
            f"{site} has shape {shape_text(here.shape)} here and {shape_text(there.shape)} there. "
            "Compare recordings of inputs of the same size, or parts of them by select()."
        )
    if here.numel() == 0:
        return Difference(0.0, 0.0, ())
    here, there = here.to("cpu", torch.float64), there.to("cpu", torch.float64)
    # Equal infinities, as in blocked scores, are no difference.
    apart = (here - there).abs().masked_fill_(here == there, 0.0)
    largest, place = apart.flatten().max(0)
    where = tuple(map(int, torch.unravel_index(place, apart.shape)))
    return Difference(float(largest), float(apart.mean()), where)
