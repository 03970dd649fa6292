"""Every edit beside the same change written out in NumPy loops: one function a kind, from a case to
both.

Each returns the edit and the NumPy side, {site: what becomes of its array}. `Aim` is where: plain
numbers for the loops, and the way they are said to the edit.
"""

import inspect
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch

from attnlab import edits as op
from attnlab.seeds import stream_seed
from attnlab.sites import site_names

from .cases import Case

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


ROWS = ("row", "head", "query")
EDGES = (*ROWS, "key")
MANY = list(range(9))
OPENED = ("scores", "weights")


def aim(case: Case, *narrowed: str) -> Aim:
    """Draw where: attentions and, of rows, heads, queries and keys, those that the edit can tell
    apart."""
    said, parts = case.parts()
    lengths = {case.lengths(part) for part in parts}
    num_queries, num_keys = min(lengths)
    sizes = {"row": case.batch, "head": case.num_heads, "query": num_queries, "key": num_keys}
    found = {}
    for name, size in sizes.items():
        is_free = name in narrowed and (len(lengths) == 1 or name in ("row", "head"))
        found[name] = case.some(size) if is_free else None
        if is_free:
            said[name] = case.said(found[name], size, is_position=name in ("query", "key"))
    rows, heads = found["row"] or range(case.batch), found["head"] or range(case.num_heads)
    # Sites of several lengths are edited everywhere; the loops stop at the end of each.
    return Aim(said, parts, list(rows), list(heads), found["query"] or MANY, found["key"] or MANY)


def rows(where: Aim, own: str, change: Callable[..., Any]) -> dict[str, Loop]:
    """Loop over rows, heads and queries of each part: change(array as it was, b, h, i)."""

    def side(old: np.ndarray) -> np.ndarray:
        new = old.copy()
        queries = [i for i in where.queries if i < old.shape[2]]
        for place in itertools.product(where.rows, where.heads, queries):
            new[place] = change(old, *place)
        return new

    return {f"{part}{own}": side for part in where.parts}


def edges(where: Aim, own: str, change: Callable[..., Any]) -> dict[str, Loop]:
    """Loop over keys too: change(array as it was, b, h, i, j)."""

    def row(old: np.ndarray, b: int, h: int, i: int) -> np.ndarray:
        new = old[b, h, i].copy()
        for j in where.keys:
            if j < len(new):
                new[j] = change(old, b, h, i, j)
        return new

    return rows(where, own, row)


def heads(where: Aim) -> dict[str, Any]:
    return {"head": "all", **where.said}


def zero_head(case: Case) -> Both:
    where = aim(case, *ROWS)
    return op.ZeroHead(**heads(where)), rows(where, "heads", lambda old, *place: 0.0)


def scale_head(case: Case) -> Both:
    where, factor = aim(case, *ROWS), float(case.rng.normal())
    edited = op.ScaleHead(**heads(where), factor=factor)
    return edited, rows(where, "heads", lambda old, *place: factor * old[place])


def mean_head(case: Case) -> Both:
    where, over = aim(case, *ROWS), str(case.rng.choice(["all", "rows", "positions"]))
    sides = {}
    for part in where.parts:
        of_source = case.kind != "encoder-decoder" or part.startswith("encoder")

        def mean(old, b, h, i, real=case.real if of_source else None):
            lines = range(case.batch) if over != "positions" else [b]
            places = range(old.shape[2]) if over != "rows" else [i]
            others = [(c, j) for c in lines for j in places if real is None or real[c, j]]
            return sum(old[c, h, j] for c, j in others) / max(len(others), 1)

        sides |= rows(where._replace(parts=[part]), "heads", mean)
    return op.MeanHead(**heads(where), over=over), sides


def _recorded(
    case: Case, where: Aim, own: str, *, rows: int | None = None, longer: int = 0
) -> dict[str, torch.Tensor]:
    """Made-up recordings of heads or weights at the sites of an aim."""
    found = {}
    for part in where.parts:
        num_queries, num_keys = case.lengths(part)
        width = {"single head": 2}.get(case.kind, 4) if own == "heads" else num_keys
        shape = (rows or case.batch, case.num_heads, num_queries + longer, width)
        made = case.rng.normal(size=shape)
        if own == "weights":
            made = np.abs(made) / np.abs(made).sum(-1, keepdims=True)
        found[f"{part}{own}"] = torch.from_numpy(made)
    return found


def _from_recording(
    where: Aim, own: str, recording: dict[str, torch.Tensor], change: Callable[..., Any]
) -> dict[str, Loop]:
    """Loop over rows, heads and queries: change(the recorded array, b, h, i)."""
    sides = {}
    for site, tensor in recording.items():
        part = where._replace(parts=[site.removesuffix(own)])
        source = tensor.numpy()
        sides |= rows(part, own, lambda old, *place, source=source: change(source, *place))
    return sides


def mean_head_of_a_recording(case: Case) -> Both:
    where, over = aim(case, *ROWS), str(case.rng.choice(["all", "rows", "positions"]))
    recording = _recorded(case, where, "heads", rows=None if over == "positions" else 3)

    def mean(source, b, h, i):
        if over == "all":
            return source[:, h].reshape(-1, source.shape[-1]).sum(0) / source[:, h, :, 0].size
        return np.mean(source[:, h, i] if over == "rows" else source[b, h], 0)

    edited = op.MeanHead(**heads(where), over=over, recording=recording)
    return edited, _from_recording(where, "heads", recording, mean)


def resample_head(case: Case) -> Both:
    """Of two rows each must get the other's, whatever the seed; a recording of one row has one to
    give."""
    where, seed = aim(case, *ROWS), int(case.rng.integers(1000))
    if case.batch == 2:
        edited = op.ResampleHead(**heads(where), seed=seed)
        return edited, rows(where, "heads", lambda old, b, h, i: old[1 - b, h, i])
    recording = _recorded(case, where, "heads", rows=1, longer=2)
    edited = op.ResampleHead(**heads(where), seed=seed, recording=recording)
    sides = _from_recording(where, "heads", recording, lambda source, b, h, i: source[0, h, i])
    return edited, sides


def swap_heads(case: Case) -> Both:
    if case.kind == "single head":
        case = Case(case.seed, "decoder")
    where = aim(case, "row", "query")
    one, other = case.rng.permutation(4)[:2].tolist()
    places = {"head": one - 4 if case.seed % 2 else one, "other": other}
    partner = {one: other, other: one}
    both = where._replace(heads=[one, other])
    sides = rows(both, "heads", lambda old, b, h, i: old[b, partner[h], i])
    return op.SwapHeads(**where.said, **places), sides


def scale_scores(case: Case) -> Both:
    where, factor = aim(case, *EDGES), float(case.rng.normal())

    def scaled(old, *place):
        return old[place] * factor if old[place] > -np.inf else old[place]

    return op.ScaleScores(**where.said, factor=factor), edges(where, "scores", scaled)


def temperature(case: Case) -> Both:
    where, by = aim(case, *ROWS), float(case.rng.uniform(0.2, 3))
    sides = rows(where, "scores", lambda old, *place: old[place] / by)
    return op.Temperature(**where.said, temperature=by), sides


def add_to_scores(case: Case) -> Both:
    where, amount = aim(case, *EDGES), float(case.rng.choice([case.rng.normal(), -np.inf]))
    sides = edges(where, "scores", lambda old, *place: old[place] + amount)
    return op.AddToScores(**where.said, amount=amount), sides


def _shape(case: Case, where: Aim, longer: int = 0) -> tuple[int, ...]:
    """The shape of a tensor for the edges of an aim, with one row or all, one head or all."""
    lengths = [case.lengths(part) for part in where.parts]
    first = (int(case.rng.choice([1, case.batch])), int(case.rng.choice([1, case.num_heads])))
    return (*first, *(np.max(lengths, 0) + longer).tolist())


def add_a_tensor_to_scores(case: Case) -> Both:
    where = aim(case, *EDGES)
    shape = _shape(case, where, longer=1)
    amount = case.rng.normal(size=shape)
    amount[case.rng.random(shape) < 0.2] = -np.inf

    def added(old, b, h, i, j):
        return old[b, h, i, j] + amount[b % shape[0], h % shape[1], i, j]

    tensor = torch.from_numpy(amount)
    edited = op.AddToScores(**where.said, amount=tensor[0, 0] if shape[:2] == (1, 1) else tensor)
    return edited, edges(where, "scores", added)


def cut_edge(case: Case) -> Both:
    where = aim(case, *EDGES)
    if {"query", "key"} & set(where.said) == set() or (
        where.said["query"] is None is where.said["key"]
    ):
        where.said["key"], where = 0, where._replace(keys=[0])
    return op.CutEdge(**where.said), edges(where, "mask", lambda old, *place: False)


def cut_edge_for_good(case: Case) -> Both:
    cut, sides = cut_edge(case)

    def zeroed(side):
        return lambda array: np.where(side(np.ones_like(array, dtype=bool)), array, 0.0)

    sides = {site.replace("mask", "weights"): zeroed(side) for site, side in sides.items()}
    told = {name: getattr(cut, name) for name in ("layer", "site", "head", "query", "key", "row")}
    return op.CutEdge(**told, renormalize=False), sides


def cut_tokens(case: Case) -> Both:
    if case.kind == "single head":
        case = Case(case.seed, "decoder")
    said, parts = case.parts()
    parts = parts if len(parts) == 1 or case.kind != "encoder-decoder" else parts[:1]
    said = {"site": parts[0].removesuffix(".")} if case.kind == "encoder-decoder" else said
    source, own = case.inputs[0], case.inputs[-1]
    is_encoder, is_cross = parts[0].startswith("encoder"), "cross" in parts[0]
    looking = source if is_encoder else own
    seen = source if is_encoder or is_cross or case.kind != "encoder-decoder" else own
    queries, keys = (case.rng.choice(np.unique(each), 2).tolist() for each in (looking, seen))

    def cut(old, b, h, i, j):
        return old[b, h, i, j] and not (looking[b, i] in queries and seen[b, j] in keys)

    where = Aim(said, parts, list(range(case.batch)), list(range(case.num_heads)), MANY, MANY)
    names = {"query": {f"t{each}" for each in queries}, "key": [f"t{each}" for each in keys]}
    return op.CutTokens(**said, **names), edges(where, "mask", cut)


def set_mask(case: Case) -> Both:
    where, kind = aim(case, *EDGES), str(case.rng.choice(["causal", "all", "tensor"]))
    shape = _shape(case, where)
    given = case.rng.random(shape) < 0.6

    def allowed(old, b, h, i, j):
        if kind == "tensor":
            return given[b % shape[0], h % shape[1], i, j]
        return kind == "all" or j <= i

    mask = torch.from_numpy(given) if kind == "tensor" else kind
    return op.SetMask(**where.said, mask=mask), edges(where, "mask", allowed)


def shift_mask(case: Case) -> Both:
    where, by = aim(case, *ROWS), int(case.rng.integers(-2, 3))

    def shifted(old, b, h, i):
        came = np.arange(old.shape[3]) - by
        return np.where(came < len(came), old[b, h, i, came.clip(0, len(came) - 1)], False)

    return op.ShiftMask(**where.said, by=by), rows(where, "mask", shifted)


def relax_mask(case: Case) -> Both:
    where = aim(case, *EDGES)
    return op.RelaxMask(**where.said), edges(where, "mask", lambda old, *place: True)


def set_pattern(case: Case) -> Both:
    where = aim(case, *EDGES)
    lengths = [case.lengths(part) for part in where.parts]
    num_queries = max(n for n, _ in lengths)
    pattern = case.rng.random((num_queries, min(n for _, n in lengths)))
    if len(set(lengths)) > 1:
        pattern = np.ones((1, 1)) / 3

    def put(old, b, h, i, j):
        return pattern[i % len(pattern), j % pattern.shape[1]]

    return op.SetPattern(**where.said, pattern=pattern.tolist()), edges(where, "weights", put)


def freeze_pattern(case: Case) -> Both:
    where = aim(case, *ROWS)
    longer = int(case.rng.integers(0, 2))
    one = None if case.seed % 2 else 1
    recording = _recorded(case, where, "weights", rows=one, longer=longer)
    put = lambda source, b, h, i: source[b % len(source), h, i]  # noqa: E731
    sides = _from_recording(where, "weights", recording, put)
    return op.FreezePattern(**where.said, recording=recording), sides


def _over_visible(
    case: Case, kind: type[op.Edit], function: Callable[..., np.ndarray], **settings: Any
) -> Both:
    """Edits of weights that ask what may be looked at: the scores on the way there are noted."""
    where, seen = aim(case, *ROWS), {}
    sides: dict[str, Loop] = {}
    for part in where.parts:

        def note(array, part=part):
            seen[part] = array > -np.inf
            return array

        def changed(old, *place, part=part):
            visible = np.flatnonzero(seen[part][place]).tolist()
            if not visible:
                return old[place]
            return function(old[place], visible, (f"{part}weights", *place))

        sides[f"{part}scores"] = note
        sides |= rows(where._replace(parts=[part]), "weights", changed)
    return kind(**where.said, **settings), sides


def uniform_pattern(case: Case) -> Both:
    def uniform(row, visible, place):
        return np.array([1.0 / len(visible) if j in visible else 0.0 for j in range(len(row))])

    return _over_visible(case, op.UniformPattern, uniform)


def redirect_to_first(case: Case) -> Both:
    def first(row, visible, place):
        return np.array([1.0 if j == visible[0] else 0.0 for j in range(len(row))])

    return _over_visible(case, op.RedirectToFirst, first)


def shuffle_pattern(case: Case) -> Both:
    seed = int(case.rng.integers(1000))

    def shuffled(row, visible, place):
        site, *numbers = place
        state = stream_seed(seed, "shuffle", site)
        order = sorted(visible, key=lambda j: split_mix(state, *numbers, j))
        new = np.zeros_like(row)
        new[order] = row[visible]
        return new

    return _over_visible(case, op.ShufflePattern, shuffled, seed=seed)


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
    sides = rows(where._replace(queries=where.keys), "value", lambda old, *place: 0.0)
    return op.ZeroValue(**where.said), sides


def _site(case: Case, *without: str) -> tuple[str, np.ndarray, dict[str, Any], np.ndarray]:
    """Some site, its array, targets as said, and the same as a mask over the array."""
    arrays: dict[str, np.ndarray] = {}
    case.expected(arrays.setdefault)
    skipped = ("mask", *without)
    sites = [site for site in site_names(case.model) if site.rpartition(".")[2] not in skipped]
    site = sites[case.rng.integers(len(sites))]
    array, own = arrays[site], site.rpartition(".")[2]
    axes = ROWS if array.ndim == 4 else ("row", "query")
    if own in ("key", "value"):
        axes = ("row", "head", "key")
    elif own in ("scores", "weights"):
        axes = EDGES
    elif array.ndim == 2:
        axes = ("row",)
    places = dict(enumerate(axes))
    if own not in OPENED and case.rng.random() < 0.5:
        places[array.ndim - 1] = "channel"
    said: dict[str, Any] = {"site": site}
    meant = np.ones(array.shape, bool)
    for place, axis in places.items():
        some = case.some(array.shape[place])
        said[axis] = case.said(some, array.shape[place], is_position=axis in ("query", "key"))
        is_chosen = np.isin(np.arange(array.shape[place]), some)
        meant &= is_chosen.reshape([-1 if p == place else 1 for p in range(array.ndim)])
    return site, array, said, meant


def zero_site(case: Case) -> Both:
    site, _, said, meant = _site(case, *OPENED)
    return op.ZeroSite(**said), {site: lambda array: np.where(meant, 0.0, array)}


def scale_site(case: Case) -> Both:
    site, _, said, meant = _site(case, *OPENED)
    factor = float(case.rng.normal())
    change = lambda array: np.where(meant, factor * array, array)  # noqa: E731
    return op.ScaleSite(**said, factor=factor), {site: change}


def mean_site(case: Case) -> Both:
    if case.kind != "decoder":
        case = Case(case.seed, "decoder")
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
    change = lambda array: np.where(meant, array + scale * vector, array)  # noqa: E731
    return op.AddVector(**said, vector=torch.from_numpy(vector), scale=scale), {site: change}


def patch(case: Case) -> Both:
    site, array, said, meant = _site(case)
    given = case.rng.normal(size=array.shape if case.seed % 2 else (1, *array.shape[1:]))
    if site.endswith("weights"):
        given = np.abs(given)
    edited = op.Patch(**said, recording={site: torch.from_numpy(given)})
    return edited, {site: lambda array: np.where(meant, given, array)}


KINDS: dict[str, Callable[[Case], Both]] = {
    name: function
    for name, function in list(globals().items())
    if inspect.isfunction(function)
    and name[0] != "_"
    and function.__annotations__.get("return") is Both
}
