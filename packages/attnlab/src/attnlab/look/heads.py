"""The names of heads, in the terminal, on pages, in figures and in errors.

    3.5            head 5 of layer 3, where a model has one kind of attention
    encoder 3.5    of the encoder's layer 3; `decoder 3.5` of the decoder's
    cross 3.5      of the cross-attention of layer 3
    PART.5         of any other part, by its path

Without `.5` it is the whole layer. `draw/report/elements.js` writes the same names.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import TypedDict

from torch import nn

from attnlab.errors import WrongUsage, did_you_mean
from attnlab.sites import site_names

_PLAIN = re.compile(r"(?:(encoder|decoder)\.)?layers\.(\d+)\.attention")
_CROSS = re.compile(r"(?:decoder\.)?layers\.(\d+)\.cross_attention")
_NAME = re.compile(r"(?:(encoder|decoder|cross) )?(-?\d+)\.(-?\d+)")
_SITES = {
    "encoder": "encoder.layers.*.attention",
    "decoder": "decoder.layers.*.attention",
    "cross": "layers.*.cross_attention",
}


def attentions(model: nn.Module) -> list[str]:
    """List the attentions of a model, in the order of its layers."""
    parts = []
    for site in site_names(model):
        part, _, name = site.rpartition(".")
        if name == "weights":
            parts.append(part)
    return parts


def number_of_heads(model: nn.Module, part: str) -> int:
    """Return how many query heads a part has; a single head is one."""
    layout = getattr(model.get_submodule(part), "layout", None)
    return 1 if layout is None else int(layout.num_heads)


def layer_name(part: str) -> str:
    """Return the short name of a part.

    >>> layer_name("layers.3.attention"), layer_name("encoder.layers.3.attention")
    ('3', 'encoder 3')
    >>> layer_name("decoder.layers.3.cross_attention"), layer_name("blocks.3.attn")
    ('cross 3', 'blocks.3.attn')
    """
    plain, cross = _PLAIN.fullmatch(part), _CROSS.fullmatch(part)
    if cross:
        return f"cross {cross[1]}"
    if plain:
        return " ".join(filter(None, plain.groups()))
    return part or "0"  # the model is a single attention


def head_name(part: str, head: int) -> str:
    """Return the name of a head of a part.

    >>> head_name("layers.3.attention", 5)
    '3.5'
    """
    return f"{layer_name(part)}.{head}"


def head_at(site: str, head: int) -> str:
    """Return the name of a head, given the site of its weights.

    >>> head_at("decoder.layers.0.cross_attention.weights", 1)
    'cross 0.1'
    """
    return head_name(site.removesuffix("weights").rstrip("."), head)


class HeadArguments(TypedDict, total=False):
    """The arguments of an edit that name a head."""

    site: str
    layer: int
    head: int


def read_head(text: str) -> HeadArguments:
    """Parse a head's name into the arguments of an edit: layer= or site= or both, and head=.

    >>> read_head("0.1"), read_head("cross 0.1")
    ({'layer': 0, 'head': 1}, {'site': 'layers.*.cross_attention', 'layer': 0, 'head': 1})

    Raises:
        WrongUsage: it is not the name of a head.
    """
    named = _NAME.fullmatch(text)
    if named:
        arguments: HeadArguments = {"layer": int(named[2]), "head": int(named[3])}
        if named[1]:
            arguments = {"site": _SITES[named[1]], **arguments}
        return arguments
    part, dot, head = text.rpartition(".")
    if not (dot and re.fullmatch(r"\S+", part) and re.fullmatch(r"-?\d+", head)):
        raise WrongUsage(
            "a head is LAYER.HEAD, such as 0.1, 'encoder 0.1' or 'cross 0.1', or PART.HEAD; "
            f"got {text!r}."
        )
    return {"site": part, "head": int(head)}


def chosen_heads(
    model: nn.Module, parts: Sequence[str], names: Sequence[str] | None
) -> dict[str, list[int]]:
    """Find heads among these parts by their names; None for all of them.

    Raises:
        WrongUsage: an invalid name, or an unknown head.
    """
    sizes = {part: number_of_heads(model, part) for part in parts}
    if names is None:
        return {part: list(range(size)) for part, size in sizes.items()}
    return heads_named(names, sizes)


def heads_named(names: Sequence[str], sizes: Mapping[str, int]) -> dict[str, list[int]]:
    """Find heads by their names, or all heads of a layer by its name, in parts of these sizes.

    Raises:
        WrongUsage: an invalid name, or an unknown head.
    """
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise WrongUsage(f'heads are named by a list of texts such as ["3.5", "3"]; got {names!r}.')
    by_name = parts_by_name(sizes)
    chosen: dict[str, dict[int, None]] = {part: {} for part in sizes}
    for name in names:
        part, heads = _heads_of(name, by_name, sizes)
        chosen[part] |= dict.fromkeys(heads)
    return {part: list(heads) for part, heads in chosen.items() if heads}


def _heads_of(
    name: str, by_name: Mapping[str, str], sizes: Mapping[str, int]
) -> tuple[str, Sequence[int]]:
    """Return the part of a name, and the head that it names or all heads of its layer."""
    if name in by_name:
        part = by_name[name]
        return part, range(sizes[part])
    layer, _, head = name.rpartition(".")
    if layer not in by_name and _NAME.fullmatch(name):
        layers = list(map(layer_name, sizes))
        known = f"{', '.join(layers):.200}"
        if len(layers) > 1 and layers == list(map(str, range(len(layers)))):
            known = f"0 to {len(layers) - 1}"
        else:
            known += f", whose first head is {layers[0]}.0"
        raise WrongUsage(f"there is no head {name}; the layers with heads are {known}.")
    if layer not in by_name or not head.isdecimal():
        # the paths of parts name the layers once more: they are guessed, and listed only then
        guess = did_you_mean(layer or name, by_name)
        if not guess.startswith("did you mean"):
            guess = did_you_mean(layer or name, map(layer_name, sizes))
        raise WrongUsage(
            f"{name!r} is neither a head, LAYER.HEAD such as 0.1, nor a layer; {guess}"
        )
    part = by_name[layer]
    if int(head) >= sizes[part]:
        raise WrongUsage(f"there is no head {name}; the layer has {sizes[part]} heads, from 0.")
    return part, [int(head)]


def parts_by_name(parts: Collection[str]) -> dict[str, str]:
    """Return parts by their short names and by their paths."""
    by_name = {layer_name(part): part for part in parts}
    by_name.update(zip(parts, parts, strict=True))
    return by_name


def one_head(model: nn.Module, head: str) -> tuple[str, int]:
    """Return the part and the number of a head."""
    if not isinstance(head, str):
        raise WrongUsage(f'head= is a name such as "0.1", layer and head; got {head!r}.')
    [(part, numbers)] = chosen_heads(model, attentions(model), [head]).items()
    if len(numbers) != 1:
        raise WrongUsage(f"head= names one head, such as {head}.0; got {head!r}, a layer.")
    return part, numbers[0]
