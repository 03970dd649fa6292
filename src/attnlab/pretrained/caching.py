"""How the rows of a foreign cache are put in another order between two passes, as a beam search does it.

A cache of transformers is told so by `reorder_cache`. While somebody looks that is noted, for caches of all kinds, and
nothing else is changed; whoever leaves last takes the notes away.
"""

import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import torch
from torch import Tensor

__all__ = ["is_noted", "order_of", "orders_noted"]

_NAMES = ("reorder_cache", "batch_select_indices")
_lock = threading.RLock()
_orders: "weakref.WeakKeyDictionary[Any, Tensor]" = weakref.WeakKeyDictionary()
_kept: list[tuple[type, str, Callable[..., Any]]] = []
_inside = threading.local()
_standing: list[object] = []  # one for each that looks


@contextmanager
def orders_noted() -> Iterator[None]:
    """Note while the `with` lasts how caches are put in another order."""
    with _lock:
        _standing.append(None)
        if len(_standing) == 1:
            _stand()
    try:
        yield
    finally:
        with _lock:
            _standing.pop()
            if not _standing:
                _leave()


def order_of(cache: object) -> Tensor | None:
    """Return which rows a cache's rows have been since this was asked last, (batch,); None where they stayed."""
    with _lock:
        return _orders.pop(cache, None)


def is_noted() -> bool:
    """Say whether anything of transformers is covered now."""
    return bool(_kept)


def _stand() -> None:
    module = sys.modules.get("transformers.cache_utils")  # without it nobody has such a cache
    found = [] if module is None else [module.Cache]
    while found:
        kind = found.pop()
        found += kind.__subclasses__()
        for name in _NAMES:
            if name in vars(kind):
                _kept.append((kind, name, vars(kind)[name]))
                setattr(kind, name, _noting(vars(kind)[name]))


def _leave() -> None:
    while _kept:
        kind, name, function = _kept.pop()
        setattr(kind, name, function)
    _orders.clear()


def _noting(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def noted(cache: Any, rows: Tensor, *args: Any, **options: Any) -> Any:
        if getattr(_inside, "cache", None) is not None:  # one kind of cache asks another, or its parent
            return function(cache, rows, *args, **options)
        _inside.cache = cache
        try:
            found = function(cache, rows, *args, **options)
        finally:
            _inside.cache = None
        with _lock:
            before, now = _orders.get(cache), rows.detach().cpu().to(torch.int64)
            _orders[cache] = now if before is None else before[now]
        return found

    return noted
