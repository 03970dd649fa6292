"""Who computes units: this process, several on this machine, or a Ray cluster. All give the same lines, in any order.

A worker that dies is noticed, and what it had is computed again. Whatever ends a sweep, an error, Ctrl-C or a kill,
no process of ours stays behind: each ends when its input does.
"""

import importlib.util
import json
import os
import queue
import re
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self, get_args

from attnlab.errors import CouldNotRun, WrongUsage, did_you_mean
from attnlab.experiments.sweeps.helper import Helper
from attnlab.experiments.sweeps.unit import compute, failure
from attnlab.train.observer import Observer

__all__ = ["Engine", "EngineKind", "Where", "make_engine", "where_to_compute"]

EngineKind = Literal["local", "ray"]

_ATTEMPTS = 3  # of a unit whose worker dies
_MOST_WORKERS = 256
_PATIENCE = 15.0  # seconds in which a cluster must answer
_WORKER, _CLUSTER = (f"attnlab.experiments.sweeps.{name}" for name in ("worker", "cluster"))
_ADDRESS = re.compile(r"(?:ray://)?(?P<host>\[[0-9a-fA-F:]+\]|[\w.-]+):(?P<port>\d{1,5})")


class Engine:
    """What computes units: `compute` takes their lines and yields the answers as they come. To be used in a `with`."""

    words = "in this process"
    is_elsewhere = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def compute(self, lines: Sequence[str], observer: Observer | None = None) -> Iterator[str]:
        """Compute one unit after the other, here."""
        for line in lines:
            yield compute(line, observer)

    def close(self) -> None:
        """End what was begun."""


class _Processes(Engine):
    is_elsewhere = True

    def __init__(self, num_workers: int) -> None:
        self.words = f"in {num_workers} processes"
        self._num_workers = num_workers
        self._crew = _Crew()

    def compute(self, lines: Sequence[str], observer: Observer | None = None) -> Iterator[str]:
        # Ctrl-C may come at any place in here. The futures of the standard library take locks in code that it can
        # break off, and are then waited for without end; these queues take none.
        waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
        answers: queue.SimpleQueue[str] = queue.SimpleQueue()
        for line in lines:
            waiting.put(line)
        for _ in range(min(self._num_workers, len(lines))):
            threading.Thread(target=self._crew.work_through, args=(waiting, answers), daemon=True).start()
        for _ in lines:
            yield answers.get()

    def close(self) -> None:
        self._crew.dismiss()


class _Crew:
    """Workers, made when they are needed and kept while they live."""

    def __init__(self) -> None:
        self._all: list[Helper] = []
        self._idle: queue.SimpleQueue[Helper] = queue.SimpleQueue()
        self._is_dismissed = False
        self._lock = threading.Lock()  # no worker is made by one thread while another dismisses all there are

    def work_through(self, waiting: "queue.SimpleQueue[str]", answers: "queue.SimpleQueue[str]") -> None:
        """Have a worker compute one unit after the other, until none is left or all are dismissed."""
        while not self._is_dismissed:
            try:
                line = waiting.get_nowait()
            except queue.Empty:
                return
            try:
                answers.put(self.compute(line))
            except Exception as error:  # a worker could not even be started; whoever waits must hear of it
                answers.put(failure(f"no worker process could be started: {error}"))

    def compute(self, line: str) -> str:
        """Have a worker compute a unit, or another one if it dies over it."""
        reason = ""
        for _ in range(_ATTEMPTS):
            worker = self._take()
            if worker is None:
                break
            worker.send(line)
            answer = worker.answer()
            if answer is not None:
                self._idle.put(worker)
                return answer
            reason = _why_it_died(worker)
        return failure(f"the worker process died {_ATTEMPTS} times over it, {reason}")

    def dismiss(self) -> None:
        """End all workers; threads that wait for one are let go."""
        self._is_dismissed = True
        with self._lock:  # one that is being made is waited for; after it none is made
            for worker in self._all:
                worker.end()

    def _take(self) -> Helper | None:
        """Return an idle worker, or a new one; None where all are dismissed."""
        with self._lock:
            if self._is_dismissed:
                return None
            try:
                return self._idle.get_nowait()
            except queue.Empty:
                worker = Helper(_WORKER)
                self._all.append(worker)
                return worker


class _Cluster(Engine):
    is_elsewhere = True

    def __init__(self, address: str) -> None:
        self._address = address
        self._driver: Helper | None = None
        self.words = f"on the Ray cluster at {address}"

    def compute(self, lines: Sequence[str], observer: Observer | None = None) -> Iterator[str]:
        driver = self._driver = self._driver or self._connected()
        for line in lines:
            driver.send(line)
        driver.send("")
        for _ in lines:
            answer = driver.answer()
            if answer is None:
                raise CouldNotRun(
                    f"the connection to the Ray cluster at {self._address} was lost; go on with --resume when it is "
                    "back."
                )
            self._check(answer)
            yield answer

    def close(self) -> None:
        if self._driver is not None:
            self._driver.end()

    def _connected(self) -> Helper:
        driver = Helper(_CLUSTER, [self._address], _ray_environment(os.environ))
        try:
            self._greet(driver)
        except BaseException:
            driver.end()
            raise
        return driver

    def _greet(self, driver: Helper) -> None:
        """Wait for its first line, and no longer than a person would."""
        end = time.monotonic() + _PATIENCE
        while True:
            try:
                answer = driver.answer(timeout=0.2)
                break
            except TimeoutError:
                complaint = driver.complaint()
                if time.monotonic() > end or "InvalidAuthToken" in complaint:
                    raise self._unreachable(complaint) from None
        if answer is None:
            raise self._unreachable(driver.complaint())
        self._check(answer)
        if json.loads(answer)["processors"] < 1:
            raise CouldNotRun(f"the Ray cluster at {self._address} has no processors to give; add a node to it.")

    def _check(self, answer: str) -> None:
        found = json.loads(answer)
        if "broken" in found:
            raise self._unreachable(f"{found['broken']}: {found['why']}")

    def _unreachable(self, complaint: str) -> CouldNotRun:
        if "Authentication" in complaint or "AuthToken" in complaint:
            return CouldNotRun(
                f"the Ray cluster at {self._address} wants a token, and did not accept ours: set RAY_AUTH_MODE=token "
                "and RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH to the token it was started with (`ray get-auth-token` "
                "prints it there)."
            )
        last = complaint.splitlines()[-1][:300] if complaint else f"it did not answer within {_PATIENCE:.0f} seconds"
        return CouldNotRun(f"no use could be made of the Ray cluster at {self._address}: {last}")


class Where(NamedTuple):
    """Where units are computed, as `make_engine` takes it."""

    kind: str
    num_workers: int
    address: str | None


def where_to_compute(
    kind: str | None, num_workers: int | None, address: str | None, begun: Mapping[str, Any] | None = None
) -> Where:
    """Return what was asked for; where nothing was, what the config of a sweep that was begun names, else here.

    Raises:
        CouldNotRun: the config names something else.
    """
    if (kind, num_workers, address) == (None, None, None) and begun is not None and "computed_by" in begun:
        try:
            return Where(**begun["computed_by"])
        except TypeError:
            raise CouldNotRun(f"its config says that it was computed by {str(begun['computed_by'])[:100]}.") from None
    return Where(kind or "local", 1 if num_workers is None else num_workers, address)


def make_engine(kind: str, *, num_workers: int = 1, address: str | None = None) -> Engine:
    """Make an engine: `local` with some workers, or `ray` with the address of a cluster that runs.

    Raises:
        WrongUsage: an unknown kind, or options that do not go together.
        CouldNotRun: Ray is not installed, or nobody answers at the address.
    """
    if kind not in get_args(EngineKind):
        raise WrongUsage(f"there is no engine {kind!r}; {did_you_mean(kind, get_args(EngineKind))}")
    if isinstance(num_workers, bool) or not isinstance(num_workers, int) or not 1 <= num_workers <= _MOST_WORKERS:
        raise WrongUsage(f"workers must be an integer from 1 to {_MOST_WORKERS}; got {num_workers!r}.")
    if kind == "local":
        if address is not None:
            raise WrongUsage(f"an address, {address}, is for a cluster: give --engine ray with it.")
        return _Processes(num_workers) if num_workers > 1 else Engine()
    if num_workers != 1:
        raise WrongUsage("workers are processes of this machine; a Ray cluster has its own: leave --workers out.")
    if address is None:
        raise WrongUsage(
            "--engine ray needs --address HOST:PORT of a cluster that runs, or --address auto for the one here."
        )
    if importlib.util.find_spec("ray") is None:
        raise CouldNotRun("--engine ray needs Ray, which is not installed here: pip install 'attnlab[ray]'.")
    if address != "auto":
        _knock(address)
    return _Cluster(address)


def _knock(address: str) -> None:
    """See that somebody is at an address, since Ray itself would wait for two minutes."""
    parts = _ADDRESS.fullmatch(address)
    if parts is None or not 0 < int(parts["port"]) < 65_536:
        raise WrongUsage(f"the address of a Ray cluster is HOST:PORT, such as 10.0.0.5:6379, or auto; got {address!r}.")
    try:
        socket.create_connection((parts["host"].strip("[]"), int(parts["port"])), timeout=5).close()
    except OSError as error:
        raise CouldNotRun(
            f"nobody answers at {address}: {error.strerror or error}. Is the cluster running (`ray status`), and is "
            "this the port that `ray start --head` printed?"
        ) from None


def _ray_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Say what Ray shall do: show a token where there is one, and report nothing to its makers.

    A cluster may ask for a token although nobody said so, but a client shows none unless it is told to.
    """
    named = [environment.get(name) for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")]
    has_token = any(named) or (Path.home() / ".ray" / "auth_token").is_file()
    chosen = {"RAY_USAGE_STATS_ENABLED": "0"}
    if has_token and "RAY_AUTH_MODE" not in environment:
        chosen["RAY_AUTH_MODE"] = "token"
    return chosen


def _why_it_died(worker: Helper) -> str:
    complaint = worker.complaint()
    status = worker.end()
    if complaint:
        return f"the last time with: {complaint.splitlines()[-1][:300]}"
    return (
        f"the last time with signal {-status} (9 is what the system sends when memory runs out)" if status < 0 else ""
    )
