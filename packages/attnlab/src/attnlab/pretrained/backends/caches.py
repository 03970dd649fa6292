"""The order of the rows of foreign caches.

A beam search changes the order of the rows of a foreign cache between two passes, by the cache's
`reorder_cache`. While a hook is installed these calls are recorded, for caches of all classes.
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

_lock = threading.RLock()
_orders: "weakref.WeakKeyDictionary[Any, Tensor]" = weakref.WeakKeyDictionary()
_originals: list[tuple[type, str, Callable[..., Any]]] = []
_inside = threading.local()
_users: list[None] = []  # one for each open `reorders_recorded`


@contextmanager
def reorders_recorded() -> Iterator[None]:
    """Record within the `with` how caches are reordered."""
    with _lock:
        _users.append(None)
        if len(_users) == 1:
            _wrap_caches()
    try:
        yield
    finally:
        with _lock:
            _users.pop()
            while _originals and not _users:
                kind, name, function = _originals.pop()
                setattr(kind, name, function)
                _orders.clear()


def order_of(cache: object) -> Tensor | None:
    """Return the former rows of a cache's present rows, (batch,), since the last call; None if
    unchanged."""
    with _lock:
        return _orders.pop(cache, None)


def _wrap_caches() -> None:
    module = sys.modules.get("transformers.cache_utils")  # without it there is no such cache
    classes = []
    if module is not None:
        classes.append(module.Cache)
    while classes:
        kind = classes.pop()
        classes += kind.__subclasses__()
        for name in {"reorder_cache", "batch_select_indices"} & vars(kind).keys():
            _originals.append((kind, name, vars(kind)[name]))
            setattr(kind, name, _recording(vars(kind)[name]))


def _recording(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def recorded(cache: Any, rows: Tensor, *args: Any, **options: Any) -> Any:
        # A cache that calls another one, or its parent class, is recorded once.
        if getattr(_inside, "cache", None) is not None:
            return function(cache, rows, *args, **options)
        _inside.cache = cache
        try:
            reordered = function(cache, rows, *args, **options)
        finally:
            _inside.cache = None
        with _lock:
            before, now = _orders.get(cache), rows.detach().cpu().to(torch.int64)
            if before is not None:
                now = before[now]
            _orders[cache] = now
        return reordered

    return recorded
