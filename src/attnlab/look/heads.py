"""Heads by name: `3.5` is head 5 of layer 3, `encoder.layers.3.attention.5` head 5 of that part, `3` all of layer 3."""

import re
from collections.abc import Sequence

from torch import nn

from attnlab.errors import WrongUsage, did_you_mean
from attnlab.sites import site_names

__all__ = ["attentions", "chosen_heads", "head_name", "layer_name", "number_of_heads"]

_PLAIN = re.compile(r"layers\.(\d+)\.attention")


def attentions(model: nn.Module) -> list[str]:
    """List the parts of a model that have weights, in the order of its layers."""
    return [site.rpartition(".")[0] for site in site_names(model) if site.rpartition(".")[2] == "weights"]


def number_of_heads(model: nn.Module, part: str) -> int:
    """Return how many heads look in a part; a head by itself is one."""
    layout = getattr(model.get_submodule(part), "layout", None)
    return 1 if layout is None else int(layout.num_heads)


def layer_name(part: str) -> str:
    """Name a part as short as can be.

    >>> layer_name("layers.3.attention"), layer_name("encoder.layers.3.attention")
    ('3', 'encoder.layers.3.attention')
    """
    plain = _PLAIN.fullmatch(part)
    return plain[1] if plain else part


def head_name(part: str, head: int) -> str:
    """Name a head of a part.

    >>> head_name("layers.3.attention", 5)
    '3.5'
    """
    return ".".join(filter(None, (layer_name(part), str(head))))


def chosen_heads(model: nn.Module, parts: Sequence[str], names: Sequence[str] | None) -> dict[str, list[int]]:
    """Find heads among these parts by their names; None for all of them.

    Raises:
        WrongUsage: a name that is none, or a head that is not there.
    """
    sizes = {part: number_of_heads(model, part) for part in parts}
    if names is None:
        return {part: list(range(size)) for part, size in sizes.items()}
    if isinstance(names, str) or not all(isinstance(each, str) for each in names):
        raise WrongUsage(f'heads are named by a list of texts such as ["3.5", "3"]; got {names!r}.')
    found: dict[str, list[int]] = {}
    for name in names:
        part, heads = _found(name, sizes)
        found[part] = list(dict.fromkeys([*found.get(part, ()), *heads]))
    return {part: found[part] for part in sizes if part in found}


def _found(name: str, sizes: dict[str, int]) -> tuple[str, list[int]]:
    """Return the part that a name means, and which of its heads."""
    by_name = {layer_name(part): part for part in sizes} | {part: part for part in sizes}
    if name in by_name:
        return by_name[name], list(range(sizes[by_name[name]]))
    layer, _, head = name.rpartition(".")
    if layer not in by_name or not head.isdecimal():
        raise WrongUsage(f"{name!r} is no head, LAYER.HEAD, and no layer; {did_you_mean(layer or name, by_name)}")
    part = by_name[layer]
    if int(head) >= sizes[part]:
        raise WrongUsage(f"there is no head {name}: {part or 'this model'} has {sizes[part]} heads, from 0.")
    return part, [int(head)]
