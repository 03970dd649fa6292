"""Where units are computed: in this process, or in several of this machine.

Both give the same results, in any order. However a sweep ends, by an error, Ctrl-C or a kill, none
of its processes stays behind.
"""

import multiprocessing
import os
import queue
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.connection import Connection
from types import ModuleType
from typing import Self

from attnlab.errors import CouldNotRun, WrongUsage, is_integer
from attnlab.experiments.sweeps.unit import Failure, Result, Unit, compute
from attnlab.train.observer import Observer

Answer = Result | Failure

_MAX_WORKERS = 256
_SPAWN = multiprocessing.get_context("spawn")
_CTRL_C = {signal.SIGINT}


class Engine:
    """A context manager; `compute` takes units and yields their results as they come."""

    words = "in this process"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def compute(self, units: Sequence[Unit], observer: Observer | None = None) -> Iterator[Answer]:
        """Compute one unit after the other in this process."""
        for unit in units:
            yield compute(unit, observer)

    def close(self) -> None:
        """End the processes of the engine."""


class _Processes(Engine):
    """A pool of processes of this machine.

    Every worker ends as soon as our end of a pipe is closed, which the system does after a kill.
    """

    def __init__(self, num_workers: int) -> None:
        self.words = f"in {num_workers} processes"
        watched, self._ours = _SPAWN.Pipe(duplex=False)
        self._pool = ProcessPoolExecutor(num_workers, _SPAWN, _begin_worker, (watched,))

    def compute(self, units: Sequence[Unit], observer: Observer | None = None) -> Iterator[Answer]:
        # Ctrl-C may come at any point: this thread only waits for a queue, and never holds a lock
        # of the pool then.
        answers: queue.SimpleQueue[Future[Answer]] = queue.SimpleQueue()
        try:
            with _starting_processes():
                for unit in units:
                    self._pool.submit(compute, unit).add_done_callback(answers.put)
            for _ in units:
                yield answers.get().result()
        except BrokenProcessPool:
            raise CouldNotRun(
                "a worker process ended before its work was done: the system kills one when memory "
                "runs out. What is finished is kept in the folder, if there is one; --resume does "
                "the rest."
            ) from None

    def close(self) -> None:
        self._ours.close()
        self._pool.shutdown(cancel_futures=True)


@contextmanager
def _starting_processes() -> Iterator[None]:
    """Let processes that are started within the `with` never see Ctrl-C, which a terminal sends to
    all of them, nor run the user's script again."""
    main, before = sys.modules["__main__"], signal.pthread_sigmask(signal.SIG_BLOCK, _CTRL_C)
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin_worker(watched: Connection) -> None:
    """End this process once the other end of a pipe is closed; print to standard error alone."""

    def watch() -> None:
        watched.poll(None)
        os._exit(1)

    os.dup2(2, 1)  # standard output is the command's, such as its JSON
    threading.Thread(target=watch, daemon=True).start()


def make_engine(workers: int | None) -> Engine:
    """Make an engine of this process, or of so many workers.

    Raises:
        WrongUsage: `workers` is no number of processes.
    """
    if workers is None:
        return Engine()
    if not (is_integer(workers) and 1 <= workers <= _MAX_WORKERS):
        raise WrongUsage(f"workers must be an integer from 1 to {_MAX_WORKERS}; got {workers!r}.")
    return Engine() if workers == 1 else _Processes(workers)
