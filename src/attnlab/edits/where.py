"""Where in a model: which of its sites an edit's `layer` and `site` name."""

import fnmatch
import itertools
from collections.abc import Sequence

from torch import nn

from attnlab.edits.targets import Target, numbers
from attnlab.errors import WrongUsage, did_you_mean
from attnlab.look.heads import layer_name, number_of_heads
from attnlab.sites import SITES, matches


def own_name(site: str) -> str:
    """Return a site's name without its part's path."""
    return site.rpartition(".")[2]


def part_of(site: str) -> str:
    """Return the path of the part that owns a site."""
    return site.rpartition(".")[0]


def site_of(part: str, own: str) -> str:
    """Join a part's path and a site's name; the path of a single-part model is empty."""
    return f"{part}.{own}" if part else own


def axes_of(own: str) -> tuple[str, ...]:
    """Return a site's axes by its last name.

    >>> axes_of("weights"), axes_of("residual_after")
    (('batch', 'head', 'query', 'key'), ('batch', 'length', 'd_model'))
    """
    if own == "mask":
        return ("batch", "head", "query", "key")
    words = SITES[own].partition("(")[2].partition(")")[0].split(",")
    return tuple(word.strip().replace("kv_head", "head") for word in words)


def known_sizes(model: nn.Module, site: str) -> dict[str, int]:
    """Return the sizes of a site's axes that are known before the model runs."""
    path, own = part_of(site), own_name(site)
    part, axes = model.get_submodule(path), axes_of(own)
    sizes: dict[str, int] = {}
    if "head" in axes and own not in ("key", "value"):
        sizes["head"] = number_of_heads(model, path)
    name = "output"
    if own == "hidden":
        name = "inner"
    elif own == "output" and hasattr(part, "outer"):
        name = "outer"
    # a block's stream is as wide as its attention's output
    layer = getattr(getattr(part, "attention", part), name, None)
    width = getattr(layer, "out_features", None)
    if width is None:
        width = getattr(getattr(part, "config", None), "d_model", None)
    if width is not None:
        sizes |= {axis: int(width) for axis in ("d_model", "d_ff") if axis in axes}
    joined = getattr(layer, "in_features", None)
    if own == "heads" and joined is not None:
        sizes["value_width"] = int(joined) // sizes["head"]
    return sizes


def find_sites(
    model: nn.Module, *, own: str, site: str | None, layer: Target, who: str
) -> list[str]:
    """List the sites of one kind ("" for any) that a pattern and a layer select.

    Raises:
        WrongUsage: there are none, a layer is out of range, or a number of a layer does not say
            which attention.
    """
    names = matches("*", model)
    found = [name for name in names if not own or own_name(name) == own]
    if not found:
        kinds = {own_name(name) for name in names}
        raise WrongUsage(f"{who}: this model has no {own!r}; {did_you_mean(own, kinds)}")
    if site is not None:
        found = _matching(site, found, is_part=bool(own), who=who)
    if layer is None:
        return found
    layers = {name: number for name in found if (number := _layer_of(name, names)) is not None}
    if not layers:
        raise WrongUsage(f"{who}: {', '.join(found)} is in no layer; leave layer= out.")
    chosen = numbers("layer", layer, 1 + max(layers.values()), f"{who}: this model")
    found = [name for name in found if layers.get(name) in chosen]
    if site is None:
        _check_one_attention_a_layer(found, layers, who)
    return found


def _check_one_attention_a_layer(found: Sequence[str], layers: dict[str, int], who: str) -> None:
    for number in dict.fromkeys(layers[name] for name in found):
        here = [part_of(name) for name in found if layers[name] == number]
        if len(here) > 1:
            heads = ", ".join(f"'{layer_name(part)}.0'" for part in here)
            raise WrongUsage(
                f"{who}: layer {number} is {' and '.join(here)}; say which with site=, or "
                f"site='*'; heads are named {heads} and so on."
            )


def _matching(site: str, known: Sequence[str], *, is_part: bool, who: str) -> list[str]:
    paths = {name: part_of(name) if is_part else name for name in known}
    found = [
        name
        for name, path in paths.items()
        if fnmatch.fnmatchcase(path, site) or fnmatch.fnmatchcase(path, f"*.{site}")
    ]
    if not found:
        hint = "it is one attention by itself; leave site= out."
        if any(paths.values()):
            hint = did_you_mean(site, set(paths.values()) - {""})
        raise WrongUsage(f"{who}: no site of this model matches {site!r}; {hint}")
    return found


def _layer_of(site: str, names: Sequence[str]) -> int | None:
    """Return the number after "layers" in a path, or its first number, or 0."""
    pieces = part_of(site).split(".")
    for before, piece in itertools.pairwise(pieces):
        if before == "layers" and piece.isdecimal():
            return int(piece)
    for piece in pieces:
        if piece.isdecimal():
            return int(piece)
    has_layers = any(piece.isdecimal() for name in names for piece in name.split("."))
    return None if has_layers else 0
