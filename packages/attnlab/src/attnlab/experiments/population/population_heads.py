"""The heads of all members on the same inputs: aligned, grouped, and how typical each member is."""

import string
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from attnlab import seeds
from attnlab.experiments.population.population import Population
from attnlab.look.alignment import Groups, align, distances, find_groups, medoid, shuffled, to_marks
from attnlab.look.recording import Recording, record
from attnlab.sites import site_names
from attnlab.train.layouts.layout import Batch
from attnlab.train.layouts.sequential import batch_of

MOST_COMPARED = 1_000
"""The most members whose heads are compared, and shown one by one: the first of a population."""

_MOST_NUMBERS = 20_000_000  # attention weights that are compared at once
_MOST_MASKS = 100  # inputs whose masks are looked at
_MOST_LETTERS = 4  # of the groups of a member's heads
_MOST_GROUPED = 1_000  # heads whose groups are searched for


@dataclass(frozen=True)
class AttentionHeads:
    """The heads of one attention of the model, in all members.

    site: its name, without ".weights". means: each head's weights, the mean over the inputs,
    (member, head, query, key). blocked: the pairs that are masked in every input, (query, key).
    marks: each head's pattern, (member, head, row, key), see `to_marks`. order: the aligned order
    of each member's heads, (member, head). spread: the mean distance between two seeds' heads, as
    numbered and aligned, beside aligned untrained and aligned shuffled heads. groups: of all heads,
    member by member.
    """

    site: str
    means: Tensor
    blocked: Tensor
    marks: Tensor
    order: Tensor
    spread: dict[str, float]
    groups: Groups


@dataclass(frozen=True)
class PopulationHeads:
    """The heads of a population's members, and how typical each of these is.

    members: the indices of those that were looked at: of the first 1,000, those that did not
    diverge. middle: of those that solved the problem (of
    all if none did) the one whose heads are nearest to all others'. distances: of each from it, 0
    to 1. percentiles: the share of the others that are no further from it.
    """

    population: Population
    members: list[int]
    parts: list[AttentionHeads]
    middle: int
    distances: Tensor
    percentiles: Tensor

    @property
    def number_words(self) -> str:
        """How many members were looked at, and of how many if these are not all."""
        number, most = f"{len(self.members):,}", f"the first {MOST_COMPARED:,}"
        if len(self.population) <= MOST_COMPARED:
            return number
        return most if len(self.members) == MOST_COMPARED else f"{number} of {most}"

    @property
    def ranking(self) -> list[int]:
        """The indices of the members, the most typical first."""
        return [self.members[at] for at in self.distances.argsort(stable=True).tolist()]

    def kind(self, row: int) -> str:
        """Name the groups of a member's heads: "AAB", of many heads "6A 2B"."""
        kinds = []
        for part in self.parts:
            groups = part.groups.of.view(part.means.shape[:2])[row].tolist()
            letters = Counter(sorted(string.ascii_uppercase[group] for group in groups))
            if len(groups) <= _MOST_LETTERS:
                kinds.append("".join(letters.elements()))
            else:
                kinds.append(" ".join(f"{count}{letter}" for letter, count in letters.items()))
        return " · ".join(kinds)


def record_heads(population: Population) -> PopulationHeads | None:
    """Record the heads of the members that did not diverge, at most of the first 1,000; return None
    if there are none."""
    members = [index for index in population.whole if index < MOST_COMPARED]
    if not members:
        return None
    trained, blocked = _weights(population, trained_models(population, members), len(members))
    if not trained:
        return None
    untrained = [member.model.eval() for member in population.problem_of(members[:64]).members]
    fresh, _ = _weights(population, untrained, len(members))
    parts = []
    for site, weights in trained.items():
        parts.append(_part(site, weights, fresh[site], blocked[site], population.seeds[0]))
    num_heads = sum(part.marks.shape[1] for part in parts)
    whole = torch.cat([aligned(part.marks, part.order).flatten(1) for part in parts], 1)
    whole /= num_heads**0.5
    apart = distances(whole, whole)
    among = population.solved.any(1)[members].nonzero().flatten()
    if not len(among):
        among = torch.arange(len(members))
    middle = int(among[medoid(apart[among][:, among])])
    from_middle = apart[middle].clone()
    from_middle[middle] = 0.0  # exactly, without rounding
    no_further = (from_middle.unsqueeze(1) >= from_middle).sum(1) - 1
    percentiles = no_further.double() / max(1, len(members) - 1)
    return PopulationHeads(population, members, parts, members[middle], from_middle, percentiles)


def _part(site: str, trained: Tensor, fresh: Tensor, blocked: Tensor, seed: int) -> AttentionHeads:
    (marks, places), (fresh_marks, _) = to_marks(trained), to_marks(fresh)
    order = align(marks)
    generator = seeds.generator(seed, "population", "groups", site)
    heads = marks.flatten(0, 1)
    mixed = shuffled(heads, places, generator).view_as(marks)
    spread = {
        "as numbered": _mean_apart(marks),
        "aligned": _mean_apart(aligned(marks, order)),
        "shuffled, aligned": _mean_apart(aligned(mixed, align(mixed))),
        "untrained, aligned": _mean_apart(aligned(fresh_marks, align(fresh_marks))),
    }
    num_grouped = max(1, _MOST_GROUPED // marks.shape[1]) * marks.shape[1]
    groups = find_groups(heads[:num_grouped], places, generator)
    nearest = distances(heads, heads[groups.centers]).argmin(1)
    return AttentionHeads(
        site, trained.mean(2), blocked, marks, order, spread, replace(groups, of=nearest)
    )


def aligned(heads: Tensor, order: Tensor) -> Tensor:
    """Put each member's heads in an order: (member, head, …), (member, head)."""
    return heads[torch.arange(len(heads)).unsqueeze(1), order]


def _mean_apart(marks: Tensor) -> float:
    """Return the mean distance between two members' heads of the same index."""
    num_members = len(marks)
    if num_members < 2:
        return float("nan")
    sums = [float(distances(mark, mark).sum()) for mark in marks.transpose(0, 1)]
    return sum(sums) / len(sums) / (num_members * (num_members - 1))


def _weights(
    population: Population, models: Iterable[nn.Module], num_members: int
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Record all heads on one batch: site -> (member, head, input, query, key), and the masks."""
    problem = population.problem
    batch: Batch = batch_of(problem.members[0].sample(0, 1), 0)
    patterns: dict[str, list[Tensor]] = {}
    blocked: dict[str, Tensor] = {}
    for model in models:
        sites = [site for site in site_names(model) if site.rpartition(".")[2] == "weights"]
        if not sites:
            return {}, {}
        with torch.no_grad(), record(model, sites) as recording:
            problem.loss(model, *batch)
        for site in recording:
            weights = recording[site].transpose(0, 1)
            most = max(1, _MOST_NUMBERS // (num_members * weights[:, 0].numel()))
            name = site.removesuffix(".weights")
            patterns.setdefault(name, []).append(weights[:, :most])
            if name not in blocked:  # the same for all models
                blocked[name] = _blocked(recording, site, weights[0, :most])
    return {site: torch.stack(site_patterns) for site, site_patterns in patterns.items()}, blocked


def _blocked(recording: Recording, site: str, weights: Tensor) -> Tensor:
    """Return the pairs that are masked in every input: (query, key)."""
    nothing = torch.zeros(weights.shape[1:], dtype=torch.bool)
    blocked = ~nothing
    for row in range(min(len(weights), _MOST_MASKS)):
        mask = recording.blocked(site, row)
        if mask is None:
            return nothing
        blocked &= mask
    return blocked


def trained_models(population: Population, members: Sequence[int]) -> Iterator[nn.Module]:
    """Yield each member's model: the same module, with other weights."""
    model = population.model_at(members[0])
    for index in members:
        model.load_state_dict(population.weights_of(index))
        yield model
