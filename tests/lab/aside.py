"""Work with an event loop, done in a thread: the browser of other tests has a loop in this one."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any


def aside(work: Callable[..., Any], *given: Any) -> Any:
    """Do some work in another thread and wait for it."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work, *given).result()
