"""Where in a model: which of its sites an edit's `layer` and `site` name."""

import fnmatch
from collections.abc import Sequence

from torch import nn

from attnlab.edits.targets import Target, is_all, numbers
from attnlab.errors import WrongUsage, did_you_mean
from attnlab.look.heads import layer_name
from attnlab.sites import SITES, site_names

__all__ = ["axes_of", "find_sites", "known_sizes", "num_heads", "own_name", "part_of"]


def own_name(site: str) -> str:
    """Return a site's name without its part's path."""
    return site.rpartition(".")[2]


def part_of(site: str) -> str:
    """Return the path of the part that owns a site."""
    return site.rpartition(".")[0]


def axes_of(own: str) -> tuple[str, ...]:
    """Return a site's axes by its last name.

    >>> axes_of("weights"), axes_of("residual_after")
    (('batch', 'head', 'query', 'key'), ('batch', 'length', 'd_model'))
    """
    if own == "mask":
        return ("batch", "head", "query", "key")
    words = SITES[own].partition("(")[2].partition(")")[0].split(",")
    return tuple(word.strip().replace("kv_head", "head") for word in words)


def num_heads(model: nn.Module, part: str) -> int:
    """Return how many heads look in an attention part: (a head by itself is one)."""
    layout = getattr(model.get_submodule(part), "layout", None)
    return 1 if layout is None else int(layout.num_heads)


def known_sizes(model: nn.Module, site: str) -> dict[str, int]:
    """Return the sizes of a site's axes that are known before the model runs."""
    part, own = model.get_submodule(part_of(site)), own_name(site)
    # a block's stream is as wide as its attention's output
    attention = getattr(part, "attention", part)
    sizes = (
        {"head": num_heads(model, part_of(site))}
        if "head" in axes_of(own) and own not in ("key", "value")
        else {}
    )
    config = getattr(part, "config", None)
    owner = {"hidden": "inner", "output": "outer" if hasattr(part, "outer") else "output"}.get(
        own, "output"
    )
    layer = getattr(attention, owner, None)
    width = getattr(layer, "out_features", None) or getattr(config, "d_model", None)
    if width is not None:
        sizes |= {"d_model": int(width), "d_ff": int(width)}
    joined = getattr(layer, "in_features", None)
    if own == "heads" and joined is not None:
        sizes["value_width"] = int(joined) // sizes["head"]
    return {axis: size for axis, size in sizes.items() if axis in axes_of(own)}


def find_sites(
    model: nn.Module, *, own: str, site: str | None, layer: Target, who: str
) -> list[str]:
    """List the sites of one kind ("" for any) that a pattern and a layer select.

    Raises:
        WrongUsage: there are none, a layer is out of range, or a number of a layer does not say
            which attention.
    """
    names = site_names(model)
    if not names:
        raise WrongUsage(
            f"{type(model).__name__} has no sites: none of its modules is a part of attnlab; "
            "attnlab.load(model) gives it hook points."
        )
    known = [name for name in names if not own or own_name(name) == own]
    if not known:
        raise WrongUsage(
            f"{who}: this model has no {own!r}; "
            f"{did_you_mean(own, {own_name(name) for name in names})}"
        )
    found = known if site is None else _matching(site, known, is_part=bool(own), who=who)
    if is_all(layer):
        return found
    placed = {name: number for name in found if (number := _layer_of(name, names)) is not None}
    if not placed:
        raise WrongUsage(f"{who}: {', '.join(found)} stands in no layer; leave layer= out.")
    size = 1 + max(placed.values())
    chosen = numbers("layer", layer, size, f"{who}: this model")
    chosen_names = [name for name in found if placed.get(name) in chosen]
    if site is None:
        for number in chosen:
            here = [part_of(name) for name in chosen_names if placed[name] == number]
            if len(here) > 1:
                heads = ", ".join(f"'{layer_name(part)}.0'" for part in here)
                raise WrongUsage(
                    f"{who}: layer {number} is {' and '.join(here)}; say which with site=, or "
                    f"site='*'; heads are named {heads} and so on."
                )
    return chosen_names


def _matching(site: str, known: Sequence[str], *, is_part: bool, who: str) -> list[str]:
    names = {name: part_of(name) if is_part else name for name in known}
    found = [
        name
        for name, full in names.items()
        if fnmatch.fnmatchcase(full, site) or fnmatch.fnmatchcase(full, f"*.{site}")
    ]
    if not found:
        paths = {full for full in names.values() if full}
        known = (
            did_you_mean(site, paths)
            if paths
            else "it is one attention by itself; leave site= out."
        )
        raise WrongUsage(f"{who}: no site of this model matches {site!r}; {known}")
    return found


def _layer_of(site: str, names: Sequence[str]) -> int | None:
    """Return the number after "layers" in a path, or its first number, or 0."""
    pieces = part_of(site).split(".")
    numbered = [place for place, piece in enumerate(pieces) if piece.isdecimal()]
    if numbered:
        return int(
            pieces[
                next(
                    (place for place in numbered if place and pieces[place - 1] == "layers"),
                    numbered[0],
                )
            ]
        )
    return None if any(piece.isdecimal() for name in names for piece in name.split(".")) else 0
