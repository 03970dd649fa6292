"""The sections about heads: groups of like heads, and how well the heads of seeds agree."""

import math
import re
from collections.abc import Sequence

from torch import Tensor

from attnlab.core.stats import share_interval
from attnlab.draw.sections import Bars, BarSeries, Heatmap, MapChoice, Maps, Scalar, Section, Table
from attnlab.experiments.population.members import TrainedMembers
from attnlab.experiments.population.population_heads import AttentionHeads, PopulationHeads

_MOST_CELLS = 10_000  # of one picture
_SITE = re.compile(
    r"(?:(?P<stack>encoder|decoder)\.)?layers\.(?P<layer>\d+)\.(?:(?P<kind>\w+?)_)?attention"
)
_AGREEMENT = (
    (0.6, "Yes, nearly"),
    (0.2, "In part"),
    (0.05, "Hardly"),
    (-math.inf, "No, no more than chance"),
)
"""The answer for each share by which aligned heads are nearer to one another than shuffled ones."""


def heads_sections(population: TrainedMembers, heads: PopulationHeads) -> list[Section]:
    """Return the sections about the heads of all members."""
    parts = [part for part in heads.parts if part.means[0, 0].numel() <= _MOST_CELLS]
    sections: list[Section] = [_groups_section(population, heads), _agreement_section(heads)]
    if parts:
        sections.insert(0, _maps_section(population, heads, parts))
    return sections


def _maps_section(
    population: TrainedMembers, heads: PopulationHeads, parts: Sequence[AttentionHeads]
) -> Maps:
    choices = []
    lengths = _lengths(heads.parts)
    for part in parts:
        cut = (
            slice(lengths.get((_stack(part.site), "queries"))),
            slice(lengths.get((part.site, "keys"))),
        )
        pictures, sizes = [], _group_sizes(part)
        flat = part.means.flatten(0, 1)
        for group, centre in enumerate(part.groups.centres):
            own = part.groups.of == group
            title = f"group {_letter(group)}, mean of {sizes[group]:,} of {len(flat):,} heads"
            pictures.append(_map(population, part, title, flat[own].mean(0)[cut], cut))
            middle = f"group {_letter(group)}, the head in its middle"
            pictures.append(_map(population, part, middle, flat[centre][cut], cut))
        choices.append(
            MapChoice(label=f"{_called(part.site)}: groups", note=_groups_note(part), maps=pictures)
        )
        aligned = part.means.gather(1, part.order[..., None, None].expand_as(part.means)).mean(0)
        choices.append(
            MapChoice(
                label=f"{_called(part.site)}: aligned",
                note=f"Means over {len(part.means):,} members. Head 0 of one seed need not be head "
                "0 of another, so heads were paired by their weights: the pairing in which "
                "they agree best.",
                maps=[
                    _map(population, part, f"part {place}", mean[cut], cut)
                    for place, mean in enumerate(aligned)
                ],
            )
        )
    return Maps(
        figure="heads",
        title="Where heads look, over all seeds",
        caption=f"Mean weights of {len(heads.members):,} members' heads on the same inputs: by "
        "groups of like heads, and by the role of each head in its model.",
        choices=choices,
    )


def _groups_note(part: AttentionHeads) -> str:
    groups = part.groups
    if not groups.tried:
        return "One group: there are too few heads to tell groups from chance."
    if len(groups.centres) == 1:
        return (
            "One group: heads do not fall apart into groups any better than shuffled heads do "
            f"(separation {max(groups.tried.values()):.2f} and {groups.chance:.2f}; 1: every "
            "group is one pattern, 0: groups run together)."
        )
    return (
        f"{len(groups.centres)} groups, separation {groups.separation:.2f} (1: every group is one "
        f"pattern, 0: they run together); of shuffled heads, at most {groups.chance:.2f}."
    )


def _groups_section(population: TrainedMembers, heads: PopulationHeads) -> Table:
    records: list[dict[str, Scalar]] = []
    for part in heads.parts:
        num_members, num_heads = part.means.shape[:2]
        of = part.groups.of.view(num_members, num_heads)
        centres = part.groups.centres
        for group in range(len(centres)):
            has_it = (of == group).any(1)
            owners = [heads.members[at] for at in has_it.nonzero().flatten().tolist()]
            share, low, high = share_interval(len(owners), num_members)
            solved = sum(population.solved_at[index] is not None for index in owners)
            typical = heads.members[centres[group] // num_heads]
            has = f"{len(owners):,} of {num_members:,}, {share:.0%} ({low:.0%} to {high:.0%})"
            head = f"head {centres[group] % num_heads} of seed {population.name(typical)}"
            records.append(
                {
                    "attention": _called(part.site),
                    "group": _letter(group),
                    "heads": int((of == group).sum()),
                    "seeds that have it": has,
                    "of these solved": f"{solved:,} of {len(owners):,}",
                    "most typical": head,
                }
            )
    return Table.of_records(
        title="Groups of heads",
        caption="Which seeds have a head of each group (with a 95 % interval), how many of those "
        "solve the problem, and the head in the middle of the group. Groups are separated only "
        "where they are further apart than those found in shuffled heads, which take the "
        "weights of another head at each query.",
        records=records,
    )


def _agreement_section(heads: PopulationHeads) -> Bars:
    names = list(heads.parts[0].spread)
    answers = [f"{_called(part.site)}: {_answer(part.spread)}" for part in heads.parts]
    return Bars(
        figure="agreement",
        title="Do seeds agree?",
        caption=f"{' '.join(answers)}\n\nThe mean distance between two seeds' heads on the same "
        "inputs (0: the same weights, 1: no token in common): as they are numbered; aligned, "
        "each paired with the most similar head; and for comparison aligned shuffled heads, "
        "and the aligned heads of the same models before training (heads with uniform "
        "weights are near each other, though they agree on nothing).",
        y_label="mean distance between seeds",
        groups=[_called(part.site) for part in heads.parts],
        series=[
            BarSeries(name=name, values=[_number(part.spread[name]) for part in heads.parts])
            for name in names
        ],
    )


def _answer(spread: dict[str, float]) -> str:
    """Answer in a sentence whether seeds agree, compared with aligned shuffled heads."""
    found, chance = spread["aligned"], spread["shuffled, aligned"]
    if not math.isfinite(found):
        return "there is only one seed, so nothing to compare."
    share = 1 - found / chance if chance > 0 else 0.0
    words = next(words for least, words in _AGREEMENT if share >= least)
    return (
        f"{words}: paired by what they do, their heads are {found:.2f} apart, shuffled heads "
        f"{chance:.2f}."
    )


def _lengths(parts: Sequence[AttentionHeads]) -> dict[tuple[str, str], int]:
    """Return the number of keys of each site, and of queries of each stack, without padding.

    Padding keys are always masked; the queries of a stack are the keys of its self-attention.
    """
    found = {}
    for part in parts:
        seen = (~part.blocked).any(0).nonzero().flatten()
        if len(seen):
            found[part.site, "keys"] = int(seen.max()) + 1
            if "cross_attention" not in part.site:
                found[_stack(part.site), "queries"] = int(seen.max()) + 1
    return found


def _stack(site: str) -> str:
    return site.partition("layers.")[0]


def _map(
    population: TrainedMembers,
    part: AttentionHeads,
    title: str,
    mean: Tensor,
    cut: tuple[slice, slice],
) -> Heatmap:
    """Draw a head's mean weights (query, key), without padding; masked pairs are blank."""
    num_queries, num_keys = mean.shape
    rows = zip(mean.tolist(), part.blocked[cut].tolist(), strict=True)
    queries, keys = _names(population, part.site)
    return Heatmap.of_weights(
        title,
        [
            [None if no else float(f"{value:.4f}") for value, no in zip(*row, strict=True)]
            for row in rows
        ],
        _labels(queries, num_queries),
        _labels(keys, num_keys),
        masked="masked: may not be looked at",
    )


def _names(population: TrainedMembers, site: str) -> tuple[Sequence[str], Sequence[str]]:
    """Return the labels of the queries and of the keys of an attention."""
    own, sources = population.problem.positions, population.problem.sources
    if site.startswith("encoder."):
        return (sources or own,) * 2
    return (own, sources) if "cross_attention" in site else (own, own)


def _labels(names: Sequence[str], count: int) -> list[str]:
    return (
        list(names[:count]) if len(names) >= count else [str(place + 1) for place in range(count)]
    )


def _called(site: str) -> str:
    """Name an attention: `decoder.layers.0.cross_attention` is `Decoder layer 0 cross`."""
    found = _SITE.fullmatch(site)
    if found is None:
        return site
    words = " ".join(
        word for word in (found["stack"], "layer", found["layer"], found["kind"]) if word
    )
    return words[0].upper() + words[1:]


def _group_sizes(part: AttentionHeads) -> list[int]:
    return [int((part.groups.of == group).sum()) for group in range(len(part.groups.centres))]


def _letter(group: int) -> str:
    return "ABCDEFGHIJKLMNOPQRSTUVWXYZ"[group]


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None
