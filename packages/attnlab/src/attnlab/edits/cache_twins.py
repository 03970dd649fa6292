"""Key/value caches in a call's arguments, and their twins: what they would hold without edits."""

import copy
import weakref
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from attnlab.parts.cache import Cache

Arguments: TypeAlias = tuple[Any, Any]
"""Arguments and keyword arguments of a call."""


class CacheTwins:
    """The twin of each cache that a model is called with: it begins as empty as the cache did."""

    def __init__(self) -> None:
        self._twins: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
        """By cache; None where it was not empty when it was met first, or is forgotten."""

    def forget(self) -> None:
        """Know no longer what the caches would hold."""
        self._twins.update(dict.fromkeys(self._twins))

    def of(self, arguments: Arguments) -> Arguments | None:
        """Return the same arguments with each cache's twin; None where one is unknown."""
        known = list(map(self._follow, _caches_in(arguments)))
        return _mapped(arguments, lambda cache: self._twins[cache]) if all(known) else None

    def _follow(self, cache: Any) -> bool:
        """Make the twin of an empty cache, or advance it; return whether it is as far as the cache
        is."""
        length: Any = cache_length(cache)
        if length == 0:
            self._twins[cache] = copy.deepcopy(cache)
        twin = self._twins.setdefault(cache, None)
        if isinstance(twin, Cache) and twin.lengths == cache.lengths:
            # a model may advance its cache after the part that was run again
            twin.advance(length - twin.length)
        return bool(cache_length(twin) == length)


def with_new_caches(arguments: Any) -> Any:
    """Return the same arguments with another empty cache for each empty cache."""
    return _mapped(arguments, lambda cache: cache if cache_length(cache) else copy.deepcopy(cache))


def has_filled_cache(arguments: Arguments) -> bool:
    """Is a cache that is not empty among the arguments?"""
    return any(cache_length(cache) for cache in _caches_in(arguments))


def cache_length(value: Any) -> int | None:
    """Return how much a cache holds, ours or of transformers; None for what is no cache."""
    if isinstance(value, Cache):
        return value.length
    if callable(getattr(value, "get_seq_length", None)):
        return int(value.get_seq_length())
    return None


def _caches_in(values: Any) -> Iterator[Any]:
    """Yield the caches in arguments, also in lists, tuples and dictionaries."""
    if type(values) is dict:
        values = list(values.values())
    if type(values) in (tuple, list):
        for value in values:
            yield from _caches_in(value)
    elif cache_length(values) is not None:
        yield values


def _mapped(values: Any, function: Callable[[Any], Any]) -> Any:
    """Return arguments with each cache in them replaced by what the function makes of it."""
    if type(values) is dict:
        return {name: _mapped(value, function) for name, value in values.items()}
    if type(values) in (tuple, list):
        return type(values)(_mapped(value, function) for value in values)
    return values if cache_length(values) is None else function(values)
