"""Ctrl-C and SIGTERM while an operation must not be interrupted: the first waits, the second does
not."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


class DeferredSignal:
    """The signal that is held back, if one came."""

    def __init__(self) -> None:
        self._heard_before: dict[int, Callable[[int, FrameType | None], object]] = {}
        self._number: int | None = None

    def came(self) -> bool:
        """Is a signal waiting?"""
        return self._number is not None

    def deliver(self) -> None:
        """Deliver the signal to its former handler (in Python this raises KeyboardInterrupt), if
        one came."""
        number, self._number = self._number, None
        if number is not None:
            self._heard_before[number](number, None)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._number is None:
            self._number = number
        else:  # a second one: at once
            self._heard_before[number](number, frame)


@contextmanager
def held_back() -> Iterator[DeferredSignal]:
    """Hold back the first SIGINT or SIGTERM within the `with`, until `deliver` is called or it
    ends.

    A signal without a handler in Python (SIGTERM by default) is left as it is, and so are all
    signals outside the main thread, where no handler can be set.
    """
    held = DeferredSignal()
    if threading.current_thread() is threading.main_thread():
        for held_signal in (signal.SIGINT, signal.SIGTERM):
            handler = signal.getsignal(held_signal)
            if callable(handler):
                held._heard_before[held_signal] = handler
    try:
        for number in held._heard_before:
            signal.signal(number, held._note)
        yield held
    finally:
        for number, before in held._heard_before.items():
            signal.signal(number, before)
    held.deliver()
