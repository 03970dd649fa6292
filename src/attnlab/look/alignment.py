"""Heads of many models, compared by what they do: how far apart, which is which, and which kinds there are.

Head 0 of one seed need not be head 0 of another: nothing in a transformer fixes their order. Here a head is what it
does on fixed inputs, its weights, and two heads are as far apart as these are on the mean of all queries:

    distance = √(1 - mean over queries of Σ over keys √(w · w′))         0: the same weights, 1: no key in common

the root mean square of Hellinger's distance between the rows. It is Euclidean distance between the *marks* of heads,
so that everything below is a product of matrices.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from attnlab.errors import WrongUsage

__all__ = ["Groups", "align", "assign", "distances", "find_groups", "medoid", "separation", "shuffled", "to_marks"]

_LEAST_GROUPED = 10  # heads for each group, below which chance decides


def to_marks(weights: Tensor) -> tuple[Tensor, Tensor]:
    """Turn weights into marks: (..., batch, query, key) -> (..., row, key), one row for each input and query.

    Rows that every head spends on one key, as a first token must, and rows that may look at nothing tell heads apart
    from nobody; they are left out, unless all rows are such.

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
    """Return the distance of each head of one list from each of the other: marks (n, …), (m, …) -> (n, m)."""
    overlap = one.flatten(1) @ other.flatten(1).T
    return (1 - overlap).clamp(min=0.0).sqrt()


def assign(costs: Tensor) -> list[int]:
    """Return for each row its column, so that the costs of all pairs sum to the least: (n, n) -> n columns.

    The Hungarian method by shortest augmenting paths (Jonker and Volgenant 1987), O(n³).

    >>> assign(torch.tensor([[1.0, 2.0, 9.0], [1.0, 5.0, 9.0], [9.0, 9.0, 1.0]]))
    [1, 0, 2]
    """
    size = len(costs)
    if costs.shape != (size, size) or not bool(torch.isfinite(costs).all()):
        raise WrongUsage(f"expected a square of finite costs; got the shape {tuple(costs.shape)}.")
    table = costs.tolist()
    of_row, of_column = [0.0] * size, [0.0] * size  # the prices that make every chosen pair cost nothing
    row_at = [-1] * size
    for start in range(size):
        least, before = [float("inf")] * size, [-1] * size
        done = [False] * size
        row, last = start, -1
        while True:
            nearest = -1
            for column in range(size):
                if done[column]:
                    continue
                cost = table[row][column] - of_row[row] - of_column[column]
                if cost < least[column]:
                    least[column], before[column] = cost, last
                if nearest < 0 or least[column] < least[nearest]:
                    nearest = column
            step = least[nearest]
            of_row[start] += step
            for column in range(size):
                if done[column]:
                    of_row[row_at[column]] += step
                    of_column[column] -= step
                else:
                    least[column] -= step
            done[nearest], last = True, nearest
            row = row_at[nearest]
            if row < 0:
                break
        while last >= 0:  # give the columns along the path to the rows before them
            row_at[last] = row_at[before[last]] if before[last] >= 0 else start
            last = before[last]
    columns = [0] * size
    for column, row in enumerate(row_at):
        columns[row] = column
    return columns


def align(marks: Tensor, rounds: int = 10) -> Tensor:
    """Say which head of each member plays which part: marks (member, head, …) -> order (member, head), integers.

    `marks[member, order[member]]` then stand in the same order for all members: that of the first member at the
    start, of their common mean afterwards, until nothing changes any more (at most `rounds` times).
    """
    model = marks[0]
    order = torch.arange(marks.shape[1]).repeat(len(marks), 1)
    for _ in range(rounds):
        # Among pairings the mean squared distance is least where the overlap is greatest.
        new = torch.tensor([assign(-(model.flatten(1) @ own.flatten(1).T)) for own in marks])
        if bool((new == order).all()):
            break
        order = new
        model = marks[torch.arange(len(marks)).unsqueeze(1), order].mean(0)
    return order


def medoid(apart: Tensor) -> int:
    """Return which of n things is nearest to all others: distances (n, n) -> its number."""
    return int(apart.mean(1).argmin())


class Groups(NamedTuple):
    """Heads in groups.

    centres: the number of each group's most typical head, largest group first. of: each head's group, (heads,).
    separation: how far the groups stand apart, see `separation`. chance: what the same search finds in shuffled
    heads, the greatest of several shuffles. tried: the separation found for each number of groups.
    """

    centres: list[int]
    of: Tensor
    separation: float
    chance: float
    tried: dict[int, float]


def find_groups(
    marks: Tensor, places: Tensor, generator: torch.Generator, *, most: int = 6, num_shuffles: int = 20
) -> Groups:
    """Group heads by what they do, in as many groups as stand furthest apart: marks (heads, row, key), places (row,).

    There is one group only, where shuffled heads fall apart just as well, see `shuffled`; and for two groups it takes
    twenty heads, for three thirty.
    """
    counts = range(2, min(most, len(marks) // _LEAST_GROUPED) + 1)
    apart = distances(marks, marks)
    found = {count: _group(apart, count) for count in counts}
    tried = {count: separation(apart, of) for count, (_, of) in found.items()}
    best = max(tried, key=lambda count: tried[count], default=1)
    chance = 0.0
    for _ in range(num_shuffles if tried else 0):
        mixed = shuffled(marks, places, generator)
        noise = distances(mixed, mixed)
        chance = max(chance, *(separation(noise, _group(noise, count)[1]) for count in counts))
    if not tried or tried[best] <= chance:
        return Groups([medoid(apart)], torch.zeros(len(marks), dtype=torch.int64), 0.0, chance, tried)
    centres, of = found[best]
    sizes = torch.bincount(of, minlength=len(centres))
    ranking = sizes.argsort(descending=True, stable=True)
    return Groups([centres[group] for group in ranking.tolist()], ranking.argsort()[of], tried[best], chance, tried)


def shuffled(marks: Tensor, places: Tensor, generator: torch.Generator) -> Tensor:
    """Put new heads together, what they do at each query from another head: marks (heads, row, key), places (row,).

    At each query they are as varied as before, and as steady over all inputs; but what they do at one query says
    nothing of what they do at another.
    """
    draws = torch.rand(len(marks), int(places.max()) + 1, generator=generator).argsort(0)
    return marks.gather(0, draws[:, places].unsqueeze(-1).expand_as(marks))


def separation(apart: Tensor, of: Tensor) -> float:
    """Return the mean silhouette (Rousseeuw 1987) of a grouping: 1 where groups are points, 0 where they run together.

    Args:
        apart: distances, (n, n).
        of: each one's group, (n,); a group of one counts as 0.
    """
    member = torch.nn.functional.one_hot(of).to(apart.dtype)
    sizes = member.sum(0)
    sums = apart @ member
    own = sums.gather(1, of.unsqueeze(1)).squeeze(1) / (sizes[of] - 1).clamp(min=1)
    others = (sums / sizes.clamp(min=1)).masked_fill(member.bool() | (sizes == 0), float("inf")).amin(1)
    silhouette = (others - own) / torch.maximum(others, own).clamp(min=1e-12)
    return float(torch.where(sizes[of] > 1, silhouette, 0.0).mean())


def _group(apart: Tensor, count: int) -> tuple[list[int], Tensor]:
    """Choose medoids one after the other, each where it brings all heads nearest, then all by turns (k-medoids).

    Kaufman and Rousseeuw (1990). Begun with the furthest, one odd head would hide two kinds.
    """
    centres = [medoid(apart)]
    while len(centres) < count:
        nearest = apart[:, centres].amin(1, keepdim=True)
        centres.append(int(torch.minimum(nearest, apart).sum(0).argmin()))
    for _ in range(20):
        of = apart[:, centres].argmin(1)
        new = [_central(apart, (of == group).nonzero().flatten(), centres[group]) for group in range(count)]
        if new == centres:
            break
        centres = new
    return centres, apart[:, centres].argmin(1)


def _central(apart: Tensor, own: Tensor, before: int) -> int:
    """Return the medoid of some; of none, the one that was it before."""
    return int(own[medoid(apart[own][:, own])]) if len(own) else before
