"""Targets: the sites, heads and positions of a model that an edit is for.

A target is a number (negative ones count from the end), a span "2..5" (both ends are in it; "2.."
and "..5" are open), a list of these, or None for everything. Layers, heads, rows and steps take the
word "all" too; among positions every word is a token's name. The numbers of layers and heads are
known from the model, positions only during a pass.
"""

import fnmatch
import operator
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any, TypeAlias

from torch import nn

from attnlab.errors import WrongUsage, did_you_mean, type_words
from attnlab.look.heads import layer_name
from attnlab.shapes import shape_text
from attnlab.sites import SITES, advice_on, in_our_words, matches, part_of, site_names, site_suffix

ALL = "all"
EditTarget: TypeAlias = int | str | Collection[int | str] | None
_NAMED = ("query", "key")  # positions, which go by their tokens' names too
_SPAN = re.compile(r"(-?\d{1,18})?\.\.(-?\d{1,18})?")
_LARGEST = 10**18
_MOST = 10_000  # things that a list may name


@dataclass(frozen=True)
class Span:
    """The numbers from `low` to `high`, both included; None is an open end.

    >>> Span(3, 3), Span(-3, None)
    (3, '-3..')
    """

    low: int | None
    high: int | None

    @property
    def ends(self) -> list[int]:
        """The ends that are not open."""
        return [end for end in (self.low, self.high) if end is not None]

    def within(self, size: int) -> tuple[int, int]:
        """Return the first and last number of the span among `size` numbers, from the start.

        >>> Span(-3, None).within(10)
        (7, 9)
        """
        low, high = self.low or 0, -1 if self.high is None else self.high
        return low + size * (low < 0), high + size * (high < 0)

    def __repr__(self) -> str:
        if self.low == self.high:
            return repr(self.low)
        return f"'{self.low}..{self.high}'".replace("None", "")


Atom: TypeAlias = Span | str
"""One number, span or token's name."""


def listed(target: Any) -> list[Any]:
    """Return one item or several as a list, without repeats."""
    if isinstance(target, str) or not isinstance(target, Iterable):
        return [target]
    return list(dict.fromkeys(target))


def described(target: Any) -> str:
    """Describe a value in a message: a tensor by its shape, all else by its type."""
    shape = getattr(target, "shape", None)
    return type_words(target) if shape is None else f"shape {shape_text(shape)}"


def normal(name: str, target: Any) -> int | str | tuple[int | str, ...] | None:
    """Return a target as an edit stores it: a number, a text, a tuple of these, or None for all.

    Raises:
        WrongUsage: it is not a target, or an empty list.
    """
    if target is None or (isinstance(target, str) and target == ALL and name not in _NAMED):
        return None
    items = _items(target)
    kept = list(dict.fromkeys(_number_or_word(name, item) for item in items))
    if not kept or None in kept:
        also = "a token's name" if name in _NAMED else "'all'"
        raise WrongUsage(
            f"{name}= takes a number, a list of numbers, a span such as '2..5', or {also}; got "
            f"{items!r:.80}."
        )
    if len(kept) > _MOST:
        raise WrongUsage(f"{name}= has {len(kept):,} items; use a span such as '2..5'.")
    return kept[0] if len(kept) == 1 else tuple(kept)  # type: ignore[arg-type]


def _items(target: Any) -> Sequence[Any]:
    if isinstance(target, set | frozenset):
        return sorted(target, key=lambda item: (isinstance(item, str), item))
    if hasattr(target, "tolist"):  # a tensor or an array
        target = target.tolist()
    if isinstance(target, str) or not isinstance(target, Sequence):
        return [target]
    return target


def _number_or_word(name: str, value: Any) -> int | str | None:
    """Return one item of a target's list; None if it is not valid."""
    if isinstance(value, str):
        is_all = value == ALL and name not in _NAMED
        return None if is_all else value or None
    try:
        number = operator.index(value)
    except TypeError:
        return None
    return number if abs(number) < _LARGEST and not isinstance(value, bool) else None


def atoms_of(name: str, target: EditTarget) -> list[Atom]:
    """Split a target into spans and, among positions, token names; None has none."""
    if target is None:
        return []
    if isinstance(target, int | str):
        target = (target,)
    return [_atom(name, item) for item in target]


def head_example(text: object) -> str:
    """Say how an edit names a head: that of the text, if it is one such as "23.3".

    >>> head_example("23.3"), head_example("one")
    ('Head 23.3 is layer=23, head=3.', 'Head 0.1 is layer=0, head=1.')
    """
    name = str(text) if re.fullmatch(r"\d{1,9}\.\d{1,9}", str(text)) else "0.1"
    layer, _, head = name.partition(".")
    return f"Head {name} is layer={layer}, head={head}."


def _atom(name: str, item: int | str) -> Atom:
    if isinstance(item, int):
        return Span(item, item)
    span = _SPAN.fullmatch(item)
    if span is None:
        if name in _NAMED:
            return item
        raise WrongUsage(
            f"{name}= takes numbers, spans such as '2..5', or 'all'; got {item!r:.80}. "
            f"{head_example(item)}"
        )
    parsed = Span(*(None if end is None else int(end) for end in span.groups()))
    if not parsed.ends:
        raise WrongUsage(f"{name}='..' has no ends; leave {name}= out for all.")
    low, *high = parsed.ends
    if high and (low < 0) == (high[0] < 0) and low > high[0]:
        raise WrongUsage(f"{name}={item!r} is empty; its first end is above its second.")
    return parsed


def numbers(name: str, target: EditTarget, size: int, where: str) -> list[int]:
    """Return the numbers from 0 to size - 1 that a target names, in its order.

    >>> numbers("head", (-1, "0..1"), 4, "layers.0.attention")
    [3, 0, 1]
    """
    if target is None:
        return list(range(size))
    chosen: list[int] = []
    for atom in atoms_of(name, target):
        assert isinstance(atom, Span)
        low, high = atom.within(size)
        if not 0 <= low <= high < size:
            there = number_words(name, size)
            raise WrongUsage(f"{name}={atom!r} is out of range: {where} has {there}.")
        chosen += range(low, high + 1)
    return list(dict.fromkeys(chosen))


def number_words(name: str, size: int) -> str:
    """Say how many things there are, and their numbers.

    >>> number_words("head", 4), number_words("row", 1)
    ('4 heads, 0 to 3 (or -4 to -1)', 'one row, number 0')
    """
    if size == 1:
        return f"one {name}, number 0"
    return f"{size} {name}s, 0 to {size - 1} (or -{size} to -1)"


def axes_of(suffix: str) -> tuple[str, ...]:
    """Return a site's axes by its last name.

    >>> axes_of("weights"), axes_of("residual_after")
    (('batch', 'head', 'query', 'key'), ('batch', 'length', 'd_model'))
    """
    if suffix == "mask":
        return ("batch", "head", "query", "key")
    words = SITES[suffix].partition("(")[2].partition(")")[0].split(",")
    return tuple(word.strip().replace("kv_head", "head") for word in words)


def find_sites(
    model: nn.Module, *, suffix: str, site: str | None, layer: EditTarget, who: str
) -> list[str]:
    """List the sites of one kind ("" for any) that a pattern and a layer select.

    Raises:
        WrongUsage: there are none, a layer is out of range, or a layer has several attentions.
    """
    names = matches("*", model)
    names_there = [name for name in names if suffix in ("", site_suffix(name))]
    if not names_there:
        hint = did_you_mean(suffix, set(map(site_suffix, names)))
        raise WrongUsage(f"{who}: this model has no {suffix!r}; {hint}")
    if site is not None:
        names_there = _matching(model, site, names_there, is_part=bool(suffix), who=who)
    if layer is None:
        return names_there
    layers = {name: _layer_of(name, names) for name in names_there}
    last = max(layers.values())
    if last < 0:
        raise WrongUsage(f"{who}: {', '.join(names_there)} is in no layer; leave layer= out.")
    chosen = numbers("layer", layer, 1 + last, f"{who}: this model")
    names_there = [name for name in names_there if layers[name] in chosen]
    if site is None:
        _check_one_attention_a_layer(names_there, layers, who)
    return names_there


def parts_with(model: nn.Module, site: str, patterns: str | Sequence[str]) -> list[str]:
    """List the parts that have a site and match a pattern, in the model's order."""
    ends = [name for name in site_names(model) if f".{name}".endswith(f".{site}")]
    if site == "output":
        ends = [name for name in ends if not name.endswith("feed_forward.output")]
    if not ends:
        raise WrongUsage(f"no part of {type(model).__name__} has the site {site!r}.")
    sites: set[str] = set()
    for pattern in listed(patterns):
        sites.update(ends if pattern == "*" else matches(f"{pattern}.{site}", model))
    return [name.removesuffix(site).rstrip(".") for name in ends if name in sites]


def _check_one_attention_a_layer(sites: Sequence[str], layers: dict[str, int], who: str) -> None:
    for number in dict.fromkeys(layers[name] for name in sites):
        here = [part_of(name) for name in sites if layers[name] == number]
        if len(set(here)) < len(here):  # an edit of any site
            raise WrongUsage(
                f"{who}: layer {number} has {len(here)} sites that it could change; choose one "
                f"with site=, such as site={next(n for n in sites if layers[n] == number)!r}."
            )
        if len(here) > 1:
            heads = ", ".join(f"'{layer_name(part)}.0'" for part in here)
            raise WrongUsage(
                f"{who}: layer {number} has {' and '.join(here)}; choose with site=, or site='*' "
                f"for all; heads are named {heads} and so on."
            )


def _matching(
    model: nn.Module, site: str, known: Sequence[str], *, is_part: bool, who: str
) -> list[str]:
    paths = [part_of(name) if is_part else name for name in known]
    # the dot lets the last words of a path match, too
    are_matches = [fnmatch.fnmatchcase(f".{path}", f"*.{site}") for path in paths]
    matching = list(compress(known, are_matches))
    if not matching:
        hint = "it is a single attention; leave site= out."
        if any(paths):
            hint = advice_on(site, model) or did_you_mean(
                in_our_words(site, paths), set(paths) - {""}
            )
        raise WrongUsage(f"{who}: no site of this model matches {site!r}; {hint}")
    return matching


def _layer_of(site: str, names: Sequence[str]) -> int:
    """Return the number after "layers" in a path, or its first number; without one 0, or -1 where
    others have numbers."""
    after = re.search(r"(?:^|\.)layers\.(\d+)\.", site) or re.search(r"(?:^|\.)(\d+)\.", site)
    if after is not None:
        return int(after[1])
    if any(re.search(r"(?:^|\.)\d+(?:\.|$)", name) for name in names):
        return -1
    return 0
