"""The heads of all members on the same inputs, aligned between members and grouped."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from attnlab import seeds
from attnlab.experiments.population.members import TrainedMembers
from attnlab.look.alignment import Groups, align, distances, find_groups, shuffled, to_marks
from attnlab.look.recording import Recording, record
from attnlab.sites import site_names
from attnlab.train.layouts.layout import Batch
from attnlab.train.layouts.sequential import batch_of

_MOST_MEMBERS = 1_000
_MOST_NUMBERS = 20_000_000  # attention weights that are compared at once
_MOST_MASKS = 100  # inputs whose masks are looked at
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
    """The heads of the members that were looked at; apart: distances, (member, member)."""

    members: list[int]
    parts: list[AttentionHeads]
    apart: Tensor


def record_heads(population: TrainedMembers) -> PopulationHeads | None:
    """Record the heads of all members that did not diverge; return None if there are no heads."""
    faults = population.history.faults
    members = [index for index, fault in enumerate(faults) if fault is None][:_MOST_MEMBERS]
    trained, blocked = _weights(population, _trained_models(population, members), len(members))
    if not trained:
        return None
    fresh, _ = _weights(population, _fresh_models(population, members[:64]), len(members))
    parts = [
        _part(site, trained[site], fresh[site], blocked[site], population.seeds[0])
        for site in trained
    ]
    whole = torch.cat([_aligned(part.marks, part.order).flatten(1) for part in parts], 1)
    num_heads = sum(part.marks.shape[1] for part in parts)
    apart = distances(whole / num_heads**0.5, whole / num_heads**0.5)
    return PopulationHeads(members, parts, apart)


def _part(site: str, trained: Tensor, fresh: Tensor, blocked: Tensor, seed: int) -> AttentionHeads:
    (marks, places), (fresh_marks, _) = to_marks(trained), to_marks(fresh)
    order = align(marks)
    generator = seeds.generator(seed, "population", "groups", site)
    heads = marks.flatten(0, 1)
    mixed = shuffled(heads, places, generator).view_as(marks)
    spread = {
        "as numbered": _mean_apart(marks),
        "aligned": _mean_apart(_aligned(marks, order)),
        "shuffled, aligned": _mean_apart(_aligned(mixed, align(mixed))),
        "untrained, aligned": _mean_apart(_aligned(fresh_marks, align(fresh_marks))),
    }
    num_grouped = max(1, _MOST_GROUPED // marks.shape[1]) * marks.shape[1]
    groups = find_groups(heads[:num_grouped], places, generator)
    nearest = distances(heads, heads[groups.centres]).argmin(1)
    return AttentionHeads(
        site, trained.mean(2), blocked, marks, order, spread, groups._replace(of=nearest)
    )


def _aligned(marks: Tensor, order: Tensor) -> Tensor:
    return marks[torch.arange(len(marks)).unsqueeze(1), order]


def _mean_apart(marks: Tensor) -> float:
    """Return the mean distance between two members' heads of the same index."""
    num_members = len(marks)
    if num_members < 2:
        return float("nan")
    sums = [float(distances(own, own).sum()) for own in marks.transpose(0, 1)]
    return sum(sums) / len(sums) / (num_members * (num_members - 1))


def _weights(
    population: TrainedMembers, models: Iterator[nn.Module], num_members: int
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Record all heads on one batch: site -> (member, head, input, query, key), and the masks."""
    problem = population.problem
    batch: Batch = batch_of(problem.members[0].draw(0, 1), 0)
    found: dict[str, list[Tensor]] = {}
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
            found.setdefault(name, []).append(weights[:, :most])
            if name not in blocked:  # the same for all models
                blocked[name] = _blocked(recording, site, weights[0, :most])
    return {site: torch.stack(each) for site, each in found.items()}, blocked


def _blocked(recording: Recording, site: str, weights: Tensor) -> Tensor:
    """Return the pairs that are masked in every input: (query, key)."""
    nothing = torch.zeros(weights.shape[1:], dtype=torch.bool)
    rows = [recording.blocked(site, row) for row in range(min(len(weights), _MOST_MASKS))]
    return torch.stack([nothing if row is None else row.expand_as(nothing) for row in rows]).all(0)


def _trained_models(population: TrainedMembers, members: Sequence[int]) -> Iterator[nn.Module]:
    """Yield each member's model; within a variant the same module is reused with other weights."""
    model, variant = None, -1
    for index in members:
        if model is None or population.member_ids[index].variant != variant:
            model, variant = population.model_at(index), population.member_ids[index].variant
        model.load_state_dict({name: value[index] for name, value in population.weights.items()})
        yield model


def _fresh_models(population: TrainedMembers, members: Sequence[int]) -> Iterator[nn.Module]:
    """Yield members' models before their training."""
    configs = [population.config_of(index) for index in members]
    problem = population.learnable.problem(
        configs, [population.member_ids[index].seed for index in members]
    )
    for member in problem.members:
        yield member.model.eval()
