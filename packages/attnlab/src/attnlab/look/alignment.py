"""Heads of many models, compared by their weights: how far apart, which is which, and which kinds
there are.

Head 0 of one seed need not be head 0 of another: nothing in a transformer fixes their order. Here a
head is represented by its weights on fixed inputs, and the distance of two heads is

    √(1 - mean over queries of Σ over keys √(w · w′))     0: the same weights, 1: no common key

the root mean square of Hellinger's distance between the rows. It is Euclidean distance between the
*marks* of heads, so everything below is a product of matrices.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from attnlab.core.stats import assign, mean_silhouette

_LEAST_GROUPED = 10  # heads for each group, below which chance decides


def to_marks(weights: Tensor) -> tuple[Tensor, Tensor]:
    """Turn weights into marks: (..., batch, query, key) -> (..., row, key), one row for each input
    and query.

    Rows in which every head has all weight on one key, as a first token must, and rows without any
    weight do not distinguish heads; they are left out, unless all rows are such.

    Returns:
        The marks, and the query of each row: (row,).
    """
    rows = weights.flatten(-3, -2)
    heads = rows.reshape(-1, *rows.shape[-2:])
    tells = ((heads.amax(-1) < 1.0) & (heads.sum(-1) > 0.0)).any(0)
    tells |= ~tells.any()
    kept = rows[..., tells, :]
    places = torch.arange(weights.shape[-2]).repeat(weights.shape[-3])
    return kept.clamp(min=0.0).sqrt() / kept.shape[-2] ** 0.5, places[tells]


def distances(one: Tensor, other: Tensor) -> Tensor:
    """Return the distances between two lists of heads: marks (n, …), (m, …) -> (n, m)."""
    overlap = one.flatten(1) @ other.flatten(1).T
    return (1 - overlap).clamp(min=0.0).sqrt()


def align(marks: Tensor, rounds: int = 10) -> Tensor:
    """Match the heads of all members: marks (member, head, …) -> order (member, head), integers.

    `marks[member, order[member]]` are then in the same order for all members: first that of the
    first member, then that of their common mean, until nothing changes (at most `rounds` times).
    """
    model = marks[0]
    order = torch.arange(marks.shape[1]).repeat(len(marks), 1)
    for _ in range(rounds):
        # The mean squared distance of a pairing is least where its overlap is greatest.
        new = torch.tensor([assign(-(model.flatten(1) @ mark.flatten(1).T)) for mark in marks])
        if bool((new == order).all()):
            break
        order = new
        model = marks[torch.arange(len(marks)).unsqueeze(1), order].mean(0)
    return order


def medoid(apart: Tensor) -> int:
    """Return the item nearest to all others: distances (n, n) -> its number."""
    return int(apart.mean(1).argmin())


@dataclass(frozen=True)
class Groups:
    """Heads in groups.

    centers: the number of each group's most typical head, largest group first. of: each head's
    group, (heads,). separation: the mean silhouette of the groups. chance: the largest
    separation of several shuffles of the heads. tried: the separation for each number of groups.
    """

    centers: list[int]
    of: Tensor
    separation: float
    chance: float
    tried: dict[int, float]


def find_groups(
    marks: Tensor,
    places: Tensor,
    generator: torch.Generator,
    *,
    most: int = 6,
    num_shuffles: int = 20,
) -> Groups:
    """Group heads by their weights, in the best separated number of groups: marks (heads, row,
    key), places (row,).

    There is one group if shuffled heads are separated as well, see `shuffled`; two groups need
    twenty heads, three thirty.
    """
    counts = range(2, min(most, len(marks) // _LEAST_GROUPED) + 1)
    apart = distances(marks, marks)
    groupings = {count: _group(apart, count) for count in counts}
    tried = {count: mean_silhouette(apart, of) for count, (_, of) in groupings.items()}
    best = max(tried, key=tried.__getitem__, default=1)
    chance = 0.0
    if not tried:
        num_shuffles = 0
    for _ in range(num_shuffles):
        mixed = shuffled(marks, places, generator)
        noise = distances(mixed, mixed)
        for count in counts:
            chance = max(chance, mean_silhouette(noise, _group(noise, count)[1]))
    if not tried or tried[best] <= chance:
        one = torch.zeros(len(marks), dtype=torch.int64)
        return Groups([medoid(apart)], one, 0.0, chance, tried)
    centers, of = groupings[best]
    sizes = torch.bincount(of, minlength=len(centers))
    ranking = sizes.argsort(descending=True, stable=True)
    ranked = [centers[group] for group in ranking.tolist()]
    return Groups(ranked, ranking.argsort()[of], tried[best], chance, tried)


def shuffled(marks: Tensor, places: Tensor, generator: torch.Generator) -> Tensor:
    """Make new heads whose weights at each query come from another head: marks (heads, row, key),
    places (row,).

    At each query they vary as before, and are as steady over all inputs; but their weights at one
    query are independent of those at another.
    """
    draws = torch.rand(len(marks), int(places.max()) + 1, generator=generator).argsort(0)
    return marks.gather(0, draws[:, places].unsqueeze(-1).expand_as(marks))


def _group(apart: Tensor, count: int) -> tuple[list[int], Tensor]:
    """Group items around medoids, chosen greedily and then refined in turn (k-medoids).

    Kaufman and Rousseeuw (1990). A start from the furthest item would let one outlier hide two
    kinds.
    """
    centers = [medoid(apart)]
    while len(centers) < count:
        nearest = apart[:, centers].amin(1, keepdim=True)
        centers.append(int(torch.minimum(nearest, apart).sum(0).argmin()))
    for _ in range(20):
        of = apart[:, centers].argmin(1)
        new = list(centers)
        for group in range(count):
            members = (of == group).nonzero().flatten()
            if len(members):
                new[group] = int(members[medoid(apart[members][:, members])])
        if new == centers:
            break
        centers = new
    return centers, apart[:, centers].argmin(1)
