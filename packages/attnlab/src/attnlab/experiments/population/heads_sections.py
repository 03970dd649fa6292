"""The sections about heads: groups of like heads, whether seeds agree, and typical members."""

import math
import string
from collections.abc import Iterator, Sequence
from typing import Any

from torch import Tensor

from attnlab.core.stats import share_interval
from attnlab.draw.sections import Bars, BarSeries, Heatmap, MapChoice, Maps, Scalar, Section, Table
from attnlab.errors import not_none
from attnlab.experiments.population.population import WORDS, Population, interval_text
from attnlab.experiments.population.population_heads import AttentionHeads, PopulationHeads, aligned
from attnlab.experiments.sections import finite_or_none, rounded
from attnlab.look.alignment import Groups

_MOST_CELLS = 10_000  # of one picture
_MOST_ROWS = 100  # of a table that a person reads
_AGREEMENT = (
    (0.6, "Yes, nearly"),
    (0.2, "In part"),
    (0.05, "Hardly"),
    (-math.inf, "No, no more than chance"),
)
"""The answer for each share by which aligned heads are nearer to one another than shuffled ones."""


def heads_sections(heads: PopulationHeads) -> Iterator[Section]:
    """Yield the sections about the heads of all members."""
    names = [attention_name(part.site) for part in heads.parts]
    choices: list[MapChoice] = []
    for part in heads.parts:
        if part.means[0, 0].numel() <= _MOST_CELLS:
            choices += _map_choices(heads, part)
    if choices:
        words = WORDS.texts("heads", {"members": heads.number_words})
        yield Maps(figure="heads", choices=choices, **words)
    yield _groups_table(heads)
    spreads = [part.spread for part in heads.parts]
    series = []
    for name in spreads[0]:
        values = [finite_or_none(spread[name]) for spread in spreads]
        series.append(BarSeries(name=name, values=values))
    answers = [f"{name}: {_answer(spread)}" for name, spread in zip(names, spreads, strict=True)]
    texts = WORDS.texts("agreement", {"answers": " ".join(answers)})
    yield Bars(figure="agreement", groups=names, series=series, **texts)
    yield _typical_table(heads)


def _map_choices(heads: PopulationHeads, part: AttentionHeads) -> list[MapChoice]:
    """Draw the mean weights of each group, and of each role."""
    flat, groups = part.means.flatten(0, 1), part.groups
    head_groups, roles = [], []
    for group, center in enumerate(groups.centers):
        members, letter = flat[groups.of == group], string.ascii_uppercase[group]
        of_mean = f"group {letter}, mean of {len(members):,} of {len(flat):,} heads"
        head_groups.append(_map(heads, part, of_mean, members.mean(0)))
        of_middle = f"group {letter}, the head in its middle"
        head_groups.append(_map(heads, part, of_middle, flat[center]))
    for place, mean in enumerate(aligned(part.means, part.order).mean(0)):
        roles.append(_map(heads, part, f"part {place}", mean))
    name = attention_name(part.site)
    return [
        MapChoice(label=f"{name}: groups", note=groups_note(groups), maps=head_groups),
        MapChoice(
            label=f"{name}: aligned",
            note=f"Means over {len(part.means):,} members. Head 0 of one seed need not be head 0 "
            "of another, so heads were paired by their weights: the pairing in which they agree "
            "best.",
            maps=roles,
        ),
    ]


def groups_note(groups: Groups) -> str:
    """Say how many groups the heads fall into, and how far apart these are."""
    if not groups.tried:
        return "One group: there are too few heads to tell groups from chance."
    if len(groups.centers) == 1:
        return (
            "One group: heads do not fall apart into groups any better than shuffled heads do "
            f"(separation {max(groups.tried.values()):.2f} and {groups.chance:.2f}; 1: every group "
            "is one pattern, 0: groups run together)."
        )
    return (
        f"{len(groups.centers)} groups, separation {groups.separation:.2f} (1: every group is one "
        f"pattern, 0: they run together); of shuffled heads, at most {groups.chance:.2f}."
    )


def _map(heads: PopulationHeads, part: AttentionHeads, title: str, mean: Tensor) -> Heatmap:
    """Draw mean weights (query, key), without padding; masked pairs are blank."""
    cut = unpadded(heads.parts, part)
    rows: list[list[float | None]] = list(map(list, rounded(mean[cut].tolist())))
    for query, key in part.blocked[cut].nonzero().tolist():
        rows[query][key] = None
    queries, keys = axis_names(heads.population, part.site, len(rows), len(rows[0]))
    return Heatmap.of_weights(title, rows, queries, keys, masked="masked: may not be looked at")


def axis_names(
    population: Population, site: str, queries: int, keys: int
) -> tuple[list[str], list[str]]:
    """Name the queries and the keys of an attention by their positions."""
    problem = population.problem
    rows = columns = problem.positions
    if site.startswith("encoder."):
        rows = columns = problem.sources or rows
    elif "cross_attention" in site:
        columns = problem.sources
    return _labels(rows, queries), _labels(columns, keys)


def unpadded(parts: Sequence[AttentionHeads], part: AttentionHeads) -> tuple[slice, slice]:
    """Cut off padding: keys that are always masked, and queries that are such keys themselves."""
    stack, _, _ = part.site.partition("layers.")
    queries = keys = slice(None)
    for head_part in parts:
        length = slice(None)
        seen = (~head_part.blocked).any(0).nonzero().flatten()
        if len(seen):
            length = slice(int(seen.max()) + 1)
        if head_part is part:
            keys = length
        if (
            head_part.site.partition("layers.")[0] == stack
            and "cross_attention" not in head_part.site
        ):
            queries = length
    return queries, keys


def _labels(names: Sequence[str], count: int) -> list[str]:
    if len(names) >= count:
        return list(names[:count])
    return list(map(str, range(1, count + 1)))


def _groups_table(heads: PopulationHeads) -> Table:
    population, rows = heads.population, list[list[Scalar]]()
    has_solved = population.solved.any(1)[heads.members]
    for part in heads.parts:
        num_members, num_heads = part.means.shape[:2]
        of, centers = part.groups.of.view(num_members, num_heads), part.groups.centers
        for group, center in enumerate(centers):
            has_it = (of == group).any(1)
            owners = int(has_it.sum())
            share = interval_text(share_interval(owners, num_members), ".0%")
            solved = int(has_solved[has_it].sum())
            typical = population.name(heads.members[center // num_heads])
            rows.append(
                [
                    attention_name(part.site),
                    string.ascii_uppercase[group],
                    int((of == group).sum()),
                    f"{owners:,} of {num_members:,}, {share}",
                    f"{solved:,} of {owners:,}",
                    f"head {center % num_heads} of seed {typical}",
                ]
            )
    return Table(rows=rows, **WORDS.texts("groups"))


def _answer(spread: dict[str, float]) -> str:
    """Answer in a sentence whether seeds agree, compared with aligned shuffled heads."""
    distance, chance = spread["aligned"], spread["shuffled, aligned"]
    if not math.isfinite(distance):
        return "there is only one seed, so nothing to compare."
    share = 1 - distance / chance if chance > 0 else 0.0
    words = next(words for least, words in _AGREEMENT if share >= least)
    return (
        f"{words}: paired by what they do, their heads are {distance:.2f} apart, shuffled heads "
        f"{chance:.2f}."
    )


def ranked_members(heads: PopulationHeads) -> tuple[list[str], list[list[Any]]]:
    """List the members, the most typical first, as column names and rows."""
    population, rows = heads.population, []
    figures = population.figures
    for rank, index in enumerate(heads.ranking, 1):
        trained = not_none(population.trained(index))  # members that diverged are not ranked
        at = heads.members.index(index)
        numbers = map(trained.evaluation.figures.__getitem__, figures)
        apart = float(heads.distances[at]), float(heads.percentiles[at])
        rows.append([population.name(index), population.solved_at[index], *numbers, *apart, rank])
    return ["seed", "solved_at", *figures, "distance", "percentile", "rank"], rows


def _typical_table(heads: PopulationHeads) -> Table:
    """Rank the members, with the commands that open the most typical and the oddest."""
    population, rows = heads.population, []
    columns, ranked = ranked_members(heads)
    for name, step, *figures, distance, percentile, rank in ranked:
        solved = "never" if step is None else f"{step:,}"
        shown = [float(f"{figure:.4g}") for figure in figures]
        rows.append([name, solved, *shown, round(distance, 3), f"{percentile:.0%}", rank])
    folder, first, last = population.folder or "RUN", ranked[0][0], ranked[-1][0]
    meanings = []
    for figure, text in population.problem_description.meanings:
        meanings.append(f"{figure.replace('_', ' ')}: {text}")
    cut = ""
    if len(rows) > _MOST_ROWS:
        half = _MOST_ROWS // 2
        cut = f"These are the first and the last {half} of {len(rows):,}; all are in members.csv."
        rows = rows[:half] + rows[-half:]
    numbers = {"first": first, "meanings": " ".join(meanings), "cut": cut}
    numbers["commands"] = f"`attnlab open {folder}/{first}` `attnlab open {folder}/{last}`"
    names = [column.replace("_", " ") for column in columns]
    return Table(columns=names, rows=rows, **WORDS.texts("typical", numbers))


def attention_name(site: str) -> str:
    """Name an attention: `decoder.layers.0.cross_attention` is `Decoder layer 0 cross`."""
    if "layers." not in site:
        return site
    words = site.replace("layers", "layer").removesuffix("attention")
    return words.replace(".", " ").replace("_", " ").strip().capitalize()
