"""A decorator: compute a method once for each argument, as long as its object lives."""

from collections.abc import Callable
from functools import wraps
from typing import TypeVar

S = TypeVar("S")
K = TypeVar("K")
V = TypeVar("V")


def memoize(method: Callable[[S, K], V]) -> Callable[[S, K], V]:
    """Keep the results of a method with its object; `functools.cache` would keep the object."""
    name = f"_{method.__name__}_by_argument"

    @wraps(method)
    def look_up(self: S, argument: K) -> V:
        results: dict[K, V] = self.__dict__.setdefault(name, {})
        if argument not in results:
            results[argument] = method(self, argument)
        return results[argument]

    return look_up
