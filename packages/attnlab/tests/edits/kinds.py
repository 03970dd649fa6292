"""Every edit beside the same change written out in NumPy loops: one function a kind, from a case to
both.

Each returns the edit and the NumPy side, {site: what becomes of its array}. `Aim` is where: plain
numbers for the loops, and the way they are said to the edit.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch

from attnlab import edits as op
from attnlab.seeds import stream_seed
from attnlab.sites import site_names

from .cases import VOCABULARY, Case

Loop = Callable[[np.ndarray], np.ndarray]
Both = tuple[op.Edit, dict[str, Loop]]


class Aim(NamedTuple):
    """Parts, and in them rows, heads, queries and keys."""

    said: dict[str, Any]
    parts: list[str]
    rows: list[int]
    heads: list[int]
    queries: list[int]
    keys: list[int]

    def edges(self) -> Iterator[tuple[int, int, int, int]]:
        for b, h, i in self.places():
            for j in self.keys:
                yield b, h, i, j

    def places(self) -> Iterator[tuple[int, int, int]]:
        for b in self.rows:
            for h in self.heads:
                for i in self.queries:
                    yield b, h, i


def aim(case: Case, *narrowed: str) -> Aim:
    """Draw where: attentions and, of rows, heads, queries and keys, those that the edit can tell
    apart."""
    said, parts = case.parts()
    lengths = {case.lengths(part) for part in parts}
    num_queries, num_keys = min(lengths)
    found = {}
    for name, size in (
        ("row", case.batch),
        ("head", case.num_heads),
        ("query", num_queries),
        ("key", num_keys),
    ):
        is_free = name in narrowed and (len(lengths) == 1 or name in ("row", "head"))
        found[name] = case.some(size) if is_free else None
        if is_free:
            said[name] = case.said(found[name], size, is_position=name in ("query", "key"))
    rows, heads = found["row"] or range(case.batch), found["head"] or range(case.num_heads)
    # Sites of several lengths are edited everywhere; the loops stop at the end of each.
    return Aim(
        said,
        parts,
        list(rows),
        list(heads),
        found["query"] or list(range(9)),
        found["key"] or list(range(9)),
    )


def at(where: Aim, own: str, loop: Callable[[np.ndarray, Aim], None]) -> dict[str, Loop]:
    """The same loop for each part, on a copy, with only what is there."""

    def side(array: np.ndarray) -> np.ndarray:
        new = array.copy()
        queries = [i for i in where.queries if i < array.shape[2]]
        keys = (
            [j for j in where.keys if j < array.shape[-1]]
            if own in ("mask", "scores", "weights")
            else where.keys
        )
        keys = [j for j in keys if own != "value" or j < array.shape[2]]
        loop(new, where._replace(queries=queries, keys=keys))
        return new

    return {f"{part}{own}": side for part in where.parts}


ROWS = ("row", "head", "query")
EDGES = (*ROWS, "key")


def zero_head(case: Case) -> Both:
    where = aim(case, *ROWS)

    def loop(new, where):
        for b, h, i in where.places():
            new[b, h, i, :] = 0.0

    return op.ZeroHead(**{"head": "all", **where.said}), at(where, "heads", loop)


def scale_head(case: Case) -> Both:
    where, factor = aim(case, *ROWS), float(case.rng.normal())

    def loop(new, where):
        for b, h, i in where.places():
            new[b, h, i, :] = factor * new[b, h, i, :]

    return op.ScaleHead(**{"head": "all", **where.said}, factor=factor), at(where, "heads", loop)


def mean_head(case: Case) -> Both:
    where, over = aim(case, *ROWS), str(case.rng.choice(["all", "rows", "positions"]))
    real = case.real

    def side_of(part):
        def loop(new, where):
            old = new.copy()
            of_source = case.kind != "both" or part.startswith("encoder")
            for b, h, i in where.places():
                others = [
                    (c, j)
                    for c in (range(case.batch) if over != "positions" else [b])
                    for j in (range(new.shape[2]) if over != "rows" else [i])
                    if real is None or not of_source or real[c, j]
                ]
                new[b, h, i, :] = sum(old[c, h, j] for c, j in others) / max(len(others), 1)

        return at(where._replace(parts=[part]), "heads", loop)

    sides = {site: side for part in where.parts for site, side in side_of(part).items()}
    return op.MeanHead(**{"head": "all", **where.said}, over=over), sides


def _recorded(
    case: Case, where: Aim, own: str, *, rows: int | None = None, longer: int = 0
) -> dict[str, torch.Tensor]:
    """Made-up recordings of heads or weights at the sites of an aim."""
    found = {}
    for part in where.parts:
        num_queries, num_keys = case.lengths(part)
        width = {"single": 2}.get(case.kind, 4) if own == "heads" else num_keys
        shape = (rows or case.batch, case.num_heads, num_queries + longer, width)
        made = case.rng.normal(size=shape)
        if own == "weights":
            made = np.abs(made) / np.abs(made).sum(-1, keepdims=True)
        found[f"{part}{own}"] = torch.from_numpy(made)
    return found


def mean_head_of_a_recording(case: Case) -> Both:
    where, over = aim(case, *ROWS), str(case.rng.choice(["all", "rows", "positions"]))
    recording = _recorded(case, where, "heads", rows=None if over == "positions" else 3)

    def side_of(site):
        source = recording[site].numpy()

        def loop(new, where):
            for b, h, i in where.places():
                if over == "all":
                    new[b, h, i] = (
                        source[:, h].reshape(-1, source.shape[-1]).sum(0) / source[:, h, :, 0].size
                    )
                else:
                    new[b, h, i] = (
                        np.mean(source[:, h, i], 0) if over == "rows" else np.mean(source[b, h], 0)
                    )

        return at(where._replace(parts=[site.removesuffix("heads")]), "heads", loop)

    sides = {site: side for each in recording for site, side in side_of(each).items()}
    return op.MeanHead(**{"head": "all", **where.said}, over=over, recording=recording), sides


def resample_head(case: Case) -> Both:
    """Of two rows each must get the other's, whatever the seed; a recording of one row has one to
    give."""
    where, seed = aim(case, *ROWS), int(case.rng.integers(1000))
    if case.batch == 2:

        def loop(new, where):
            old = new.copy()
            for b, h, i in where.places():
                new[b, h, i] = old[1 - b, h, i]

        return op.ResampleHead(**{"head": "all", **where.said}, seed=seed), at(where, "heads", loop)
    recording = _recorded(case, where, "heads", rows=1, longer=2)

    def side_of(site):
        def loop(new, where):
            for b, h, i in where.places():
                new[b, h, i] = recording[site].numpy()[0, h, i]

        return at(where._replace(parts=[site.removesuffix("heads")]), "heads", loop)

    sides = {site: side for each in recording for site, side in side_of(each).items()}
    return op.ResampleHead(**{"head": "all", **where.said}, seed=seed, recording=recording), sides


def swap_heads(case: Case) -> Both:
    if case.kind == "single":
        case = Case(case.seed, "decoder")
    where = aim(case, "row", "query")
    one, other = case.rng.permutation(4)[:2].tolist()

    def loop(new, where):
        old = new.copy()
        for b in where.rows:
            for i in where.queries:
                new[b, one, i], new[b, other, i] = old[b, other, i], old[b, one, i]

    said = {"head": one - 4 if case.seed % 2 else one, "other": other}
    return op.SwapHeads(**where.said, **said), at(where, "heads", loop)


def scale_scores(case: Case) -> Both:
    where, factor = aim(case, *EDGES), float(case.rng.normal())

    def loop(new, where):
        for place in where.edges():
            if new[place] > -np.inf:
                new[place] = new[place] * factor

    return op.ScaleScores(**where.said, factor=factor), at(where, "scores", loop)


def temperature(case: Case) -> Both:
    where, by = aim(case, *ROWS), float(case.rng.uniform(0.2, 3))

    def loop(new, where):
        for b, h, i in where.places():
            new[b, h, i] = new[b, h, i] / by

    return op.Temperature(**where.said, temperature=by), at(where, "scores", loop)


def add_to_scores(case: Case) -> Both:
    where, amount = aim(case, *EDGES), float(case.rng.choice([case.rng.normal(), -np.inf]))

    def loop(new, where):
        for place in where.edges():
            new[place] = new[place] + amount

    return op.AddToScores(**where.said, amount=amount), at(where, "scores", loop)


def add_a_tensor_to_scores(case: Case) -> Both:
    where = aim(case, *EDGES)
    lengths = [case.lengths(part) for part in where.parts]
    shape = [1, 1, max(n for n, _ in lengths) + 1, max(n for _, n in lengths) + 1]
    shape[0], shape[1] = (
        int(case.rng.choice([1, case.batch])),
        int(case.rng.choice([1, case.num_heads])),
    )
    amount = case.rng.normal(size=shape)
    amount[case.rng.random(shape) < 0.2] = -np.inf

    def loop(new, where):
        for b, h, i, j in where.edges():
            new[b, h, i, j] += amount[b % shape[0], h % shape[1], i, j]

    tensor = torch.from_numpy(amount)
    return op.AddToScores(**where.said, amount=tensor[0, 0] if shape[:2] == [1, 1] else tensor), at(
        where, "scores", loop
    )


def cut_edge(case: Case) -> Both:
    where = aim(case, *EDGES)
    if {"query", "key"} & set(where.said) == set() or (
        where.said["query"] is None is where.said["key"]
    ):
        where.said["key"], where = 0, where._replace(keys=[0])

    def loop(new, where):
        for place in where.edges():
            new[place] = False

    return op.CutEdge(**where.said), at(where, "mask", loop)


def cut_edge_for_good(case: Case) -> Both:
    cut, sides = cut_edge(case)

    def zeroed(side):
        def loop(array):
            kept = side(np.ones_like(array, dtype=bool))
            return np.where(kept, array, 0.0)

        return loop

    sides = {site.replace("mask", "weights"): zeroed(side) for site, side in sides.items()}
    told = {name: getattr(cut, name) for name in ("layer", "site", "head", "query", "key", "row")}
    return op.CutEdge(**told, renormalise=False), sides


def cut_tokens(case: Case) -> Both:
    if case.kind == "single":
        case = Case(case.seed, "decoder")
    said, parts = case.parts()
    parts = parts if len(parts) == 1 or case.kind != "both" else parts[:1]
    said = {"site": parts[0].removesuffix(".")} if case.kind == "both" else said
    source, own = case.inputs[0], case.inputs[-1]
    looking, seen = (
        (source if parts[0].startswith("encoder") else own),
        (
            source
            if case.lengths(parts[0])[1] == source.shape[1]
            and ("cross" in parts[0] or parts[0].startswith("encoder") or case.kind != "both")
            else own
        ),
    )
    queries, keys = (case.rng.choice(np.unique(each), 2).tolist() for each in (looking, seen))

    def loop(new, where):
        for b in range(case.batch):
            for i in range(new.shape[2]):
                for j in range(new.shape[3]):
                    if looking[b, i] in queries and seen[b, j] in keys:
                        new[b, :, i, j] = False

    names = {
        "query": {VOCABULARY[each] for each in queries},
        "key": [VOCABULARY[each] for each in keys],
    }
    return op.CutTokens(**said, **names), at(Aim(said, parts, [], [], [], []), "mask", loop)


def set_mask(case: Case) -> Both:
    where, kind = aim(case, *EDGES), str(case.rng.choice(["causal", "all", "tensor"]))
    lengths = [case.lengths(part) for part in where.parts]
    shape = (
        int(case.rng.choice([1, case.batch])),
        int(case.rng.choice([1, case.num_heads])),
        *np.max(lengths, 0).tolist(),
    )
    given = case.rng.random(shape) < 0.6

    def loop(new, where):
        for b, h, i, j in where.edges():
            new[b, h, i, j] = {
                "causal": j <= i,
                "all": True,
                "tensor": given[b % shape[0], h % shape[1], i, j],
            }[kind]

    mask = torch.from_numpy(given) if kind == "tensor" else kind
    return op.SetMask(**where.said, mask=mask), at(where, "mask", loop)


def shift_mask(case: Case) -> Both:
    where, by = aim(case, *ROWS), int(case.rng.integers(-2, 3))

    def loop(new, where):
        old = new.copy()
        for b, h, i in where.places():
            for j in range(new.shape[3]):
                came = j - by
                new[b, h, i, j] = old[b, h, i, max(came, 0)] if came < new.shape[3] else False

    return op.ShiftMask(**where.said, by=by), at(where, "mask", loop)


def relax_mask(case: Case) -> Both:
    where = aim(case, *EDGES)

    def loop(new, where):
        for place in where.edges():
            new[place] = True

    return op.RelaxMask(**where.said), at(where, "mask", loop)


def set_pattern(case: Case) -> Both:
    where = aim(case, *EDGES)
    lengths = [case.lengths(part) for part in where.parts]
    num_queries = max(n for n, _ in lengths)
    pattern = case.rng.random((num_queries, min(n for _, n in lengths)))
    if len(set(lengths)) > 1:
        pattern = np.ones((1, 1)) / 3

    def loop(new, where):
        for b, h, i, j in where.edges():
            new[b, h, i, j] = pattern[i % len(pattern), j % pattern.shape[1]]

    return op.SetPattern(**where.said, pattern=pattern.tolist()), at(where, "weights", loop)


def freeze_pattern(case: Case) -> Both:
    where = aim(case, *ROWS)
    recording = _recorded(
        case,
        where,
        "weights",
        rows=None if case.seed % 2 else 1,
        longer=int(case.rng.integers(0, 2)),
    )

    def side_of(site):
        source = recording[site].numpy()

        def loop(new, where):
            for b, h, i in where.places():
                new[b, h, i] = source[b % len(source), h, i]

        return at(where._replace(parts=[site.removesuffix("weights")]), "weights", loop)

    sides = {site: side for each in recording for site, side in side_of(each).items()}
    return op.FreezePattern(**where.said, recording=recording), sides


def _over_visible(case: Case, function: Callable[..., np.ndarray]) -> tuple[Aim, dict[str, Loop]]:
    """For edits of weights that ask what may be looked at: the scores on the way there are
    noted."""
    where, seen = aim(case, *ROWS), {}
    sides: dict[str, Loop] = {}
    for part in where.parts:

        def note(array, part=part):
            seen[part] = array > -np.inf
            return array

        def change(array, part=part):
            def loop(new, where):
                for b, h, i in where.places():
                    visible = [j for j in range(new.shape[3]) if seen[part][b, h, i, j]]
                    if visible:
                        new[b, h, i] = function(new[b, h, i], visible, (f"{part}weights", b, h, i))

            return at(where._replace(parts=[part]), "weights", loop)[f"{part}weights"](array)

        sides[f"{part}scores"], sides[f"{part}weights"] = note, change
    return where, sides


def uniform_pattern(case: Case) -> Both:
    def uniform(row, visible, place):
        return np.array([1.0 / len(visible) if j in visible else 0.0 for j in range(len(row))])

    where, sides = _over_visible(case, uniform)
    return op.UniformPattern(**where.said), sides


def redirect_to_first(case: Case) -> Both:
    def first(row, visible, place):
        return np.array([1.0 if j == visible[0] else 0.0 for j in range(len(row))])

    where, sides = _over_visible(case, first)
    return op.RedirectToFirst(**where.said), sides


def shuffle_pattern(case: Case) -> Both:
    seed = int(case.rng.integers(1000))

    def shuffled(row, visible, place):
        site, *numbers = place
        order = sorted(
            visible, key=lambda j: split_mix(stream_seed(seed, "shuffle", site), *numbers, j)
        )
        new = np.zeros_like(row)
        for source, goal in zip(visible, order, strict=True):
            new[goal] = row[source]
        return new

    where, sides = _over_visible(case, shuffled)
    return op.ShufflePattern(**where.said, seed=seed), sides


def split_mix(state: int, *numbers: int) -> int:
    """SplitMix64 with a number added at each step, in Python's own integers; signed, as torch has
    it."""
    most = (1 << 64) - 1
    for number in numbers:
        state = (state + number + 1) * 0x9E3779B97F4A7C15 & most
        state = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 & most
        state = (state ^ state >> 27) * 0x94D049BB133111EB & most
        state ^= state >> 31
    return state - (1 << 64) if state >> 63 else state


def zero_value(case: Case) -> Both:
    where = aim(case, "row", "head", "key")

    def loop(new, where):
        for b in where.rows:
            for h in where.heads:
                for j in where.keys:
                    new[b, h, j] = 0.0

    return op.ZeroValue(**where.said), at(where._replace(queries=[]), "value", loop)


def _site(
    case: Case, *without: str
) -> tuple[str, np.ndarray, dict[str, Any], tuple[np.ndarray, ...]]:
    """Some site, its array, targets as said, and the same as a mask over the array, split by
    axis."""
    arrays: dict[str, np.ndarray] = {}
    case.expected(arrays.setdefault)
    skipped = ("mask", *without)
    sites = [site for site in site_names(case.model) if site.rpartition(".")[2] not in skipped]
    site = sites[case.rng.integers(len(sites))]
    array, own = arrays[site], site.rpartition(".")[2]
    axes = {
        "key": ("row", "head", "key"),
        "value": ("row", "head", "key"),
        "logits": ("row", "query"),
    }.get(
        own,
        ("row", "head", "query", "key")
        if own in ("scores", "weights")
        else ROWS
        if array.ndim == 4
        else ("row", "query"),
    )
    axes = axes[:1] if array.ndim == 2 else axes
    said: dict[str, Any] = {"site": site}
    chosen = []
    for place, axis in enumerate(axes):
        some = case.some(array.shape[place])
        said[axis] = case.said(some, array.shape[place], is_position=axis in ("query", "key"))
        chosen.append(np.isin(np.arange(array.shape[place]), some))
    meant = np.ones(array.shape, bool)
    for place, each in enumerate(chosen):
        meant &= each.reshape([-1 if p == place else 1 for p in range(array.ndim)])
    return site, array, said, meant


OPENED = ("scores", "weights")


def zero_site(case: Case) -> Both:
    site, _, said, meant = _site(case, *OPENED)
    return op.ZeroSite(**said), {site: lambda array: np.where(meant, 0.0, array)}


def scale_site(case: Case) -> Both:
    site, _, said, meant = _site(case, *OPENED)
    factor = float(case.rng.normal())
    return op.ScaleSite(**said, factor=factor), {
        site: lambda array: np.where(meant, factor * array, array)
    }


def mean_site(case: Case) -> Both:
    case = Case(case.seed, "decoder") if case.kind in ("both", "encoder", "single") else case
    site, array, said, meant = _site(case, *OPENED)
    over = str(case.rng.choice(["all", "rows", "positions"]))
    axes = {"all": (0, array.ndim - 2), "rows": 0, "positions": array.ndim - 2}[over]
    real = np.ones((case.batch, case.length), bool) if case.real is None else case.real
    real = real.reshape(case.batch, *[1] * (array.ndim - 3), case.length, 1)

    def meaned(array):
        count = np.maximum(real.sum(axes, keepdims=True), 1)
        return np.where(meant, np.where(real, array, 0).sum(axes, keepdims=True) / count, array)

    return op.MeanSite(**said, over=over), {site: meaned}


def add_vector(case: Case) -> Both:
    site, array, said, meant = _site(case, *OPENED)
    shape, scale = array.shape[-1:] if case.seed % 2 else array.shape[1:], float(case.rng.normal())
    if site.endswith(("key", "value")):
        shape = array.shape[-1:]
    vector = case.rng.normal(size=shape)
    return op.AddVector(**said, vector=torch.from_numpy(vector), scale=scale), {
        site: lambda array: np.where(meant, array + scale * vector, array)
    }


def patch(case: Case) -> Both:
    site, array, said, meant = _site(case)
    given = case.rng.normal(size=array.shape if case.seed % 2 else (1, *array.shape[1:]))
    if site.endswith("weights"):
        given = np.abs(given)
    return op.Patch(**said, recording={site: torch.from_numpy(given)}), {
        site: lambda array: np.where(meant, given, array)
    }


KINDS = {
    function.__name__: function
    for function in (
        zero_head,
        scale_head,
        mean_head,
        mean_head_of_a_recording,
        resample_head,
        swap_heads,
        scale_scores,
        temperature,
        add_to_scores,
        add_a_tensor_to_scores,
        cut_edge,
        cut_edge_for_good,
        cut_tokens,
        set_mask,
        shift_mask,
        relax_mask,
        set_pattern,
        freeze_pattern,
        uniform_pattern,
        redirect_to_first,
        shuffle_pattern,
        zero_value,
        zero_site,
        scale_site,
        mean_site,
        add_vector,
        patch,
    )
}
