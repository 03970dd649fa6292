"""The engines of a sweep: this process, several processes, or a Ray cluster.

All give the same answers, in any order. The unit of a worker that dies is computed again. However a
sweep ends, by an error, Ctrl-C or a kill, none of its processes stays behind: each ends when its
input ends.
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
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self, get_args

from attnlab.errors import CouldNotRun, WrongUsage, did_you_mean
from attnlab.experiments.folder import RunConfig
from attnlab.experiments.sweeps.line_process import LineProcess
from attnlab.experiments.sweeps.unit import compute, failure
from attnlab.train.observer import Observer

EngineKind = Literal["local", "ray"]

_ATTEMPTS = 3  # of a unit whose worker dies
_MOST_WORKERS = 256
_PATIENCE = 15.0  # seconds in which a cluster must answer
_WORKER = "attnlab.experiments.sweeps.worker"
_CLUSTER = "attnlab.experiments.sweeps.cluster"
_ADDRESS = re.compile(r"(?:ray://)?(?P<host>\[[0-9a-fA-F:]+\]|[\w.-]+):(?P<port>\d{1,5})")


class Engine:
    """A context manager; `compute` takes the lines of units and yields answers as they come."""

    words = "in this process"
    is_elsewhere = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def compute(self, lines: Sequence[str], observer: Observer | None = None) -> Iterator[str]:
        """Compute one unit after the other in this process."""
        for line in lines:
            yield compute(line, observer)

    def close(self) -> None:
        """End the processes of the engine."""


class _Processes(Engine):
    """Worker processes, started when they are needed and kept until the engine is closed.

    Ctrl-C may come at any point. It can interrupt the standard library's futures while they hold a
    lock, and then they are waited for forever; these queues hold none.
    """

    is_elsewhere = True

    def __init__(self, num_workers: int) -> None:
        self.words = f"in {num_workers} processes"
        self._num_workers, self._num_threads = num_workers, 0
        self._waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._workers: list[LineProcess] = []
        self._is_closed = False
        self._lock = threading.Lock()  # no worker is started while `close` ends them all

    def compute(self, lines: Sequence[str], observer: Observer | None = None) -> Iterator[str]:
        for line in lines:
            self._waiting.put(line)
        while self._num_threads < min(self._num_workers, len(lines)):
            self._num_threads += 1
            threading.Thread(target=self._serve, daemon=True).start()
        for _ in lines:
            yield self._answers.get()

    def close(self) -> None:
        self._is_closed = True
        with self._lock:  # waits for a worker that is being started; no other starts after it
            for worker in self._workers:
                worker.end()
        for _ in range(self._num_threads):
            self._waiting.put("")

    def _serve(self) -> None:
        """Compute one unit after the other with a worker of this thread's own."""
        worker = None
        for line in iter(self._waiting.get, ""):
            try:
                worker, answer = self._answered(worker, line)
            except Exception as error:  # `compute` waits for one answer to each line
                worker = None
                answer = failure(f"no worker process could be started: {error}")
            self._answers.put(answer)

    def _answered(self, worker: LineProcess | None, line: str) -> tuple[LineProcess | None, str]:
        """Return the answer and the worker that gave it; a new one replaces one that died."""
        reason = ""
        for _ in range(_ATTEMPTS):
            worker = worker or self._started()
            if worker is None:
                break
            worker.send(line)
            answer = worker.answer()
            if answer is not None:
                return worker, answer
            reason = _why_it_died(worker)
            worker = None
        return None, failure(f"the worker process died {_ATTEMPTS} times over it, {reason}")

    def _started(self) -> LineProcess | None:
        """Start a worker; return None once the engine is closed."""
        with self._lock:
            if self._is_closed:
                return None
            worker = LineProcess(_WORKER)
            self._workers.append(worker)
            return worker


class _Cluster(Engine):
    is_elsewhere = True

    def __init__(self, address: str) -> None:
        self._name = f"the Ray cluster at {address}"
        self._address = address
        self._driver: LineProcess | None = None
        self.words = f"on {self._name}"

    def compute(self, lines: Sequence[str], observer: Observer | None = None) -> Iterator[str]:
        if self._driver is None:
            self._driver = LineProcess(_CLUSTER, [self._address], _ray_environment(os.environ))
            self._greet(self._driver)
        for line in [*lines, ""]:
            self._driver.send(line)
        for _ in lines:
            answer = self._driver.answer()
            if answer is None:
                raise CouldNotRun(
                    f"the connection to {self._name} was lost; continue with --resume when it is "
                    "back."
                )
            self._check(answer)
            yield answer

    def close(self) -> None:
        if self._driver is not None:
            self._driver.end()

    def _greet(self, driver: LineProcess) -> None:
        """Wait for its first line, for at most `_PATIENCE` seconds."""
        end = time.monotonic() + _PATIENCE
        while True:
            try:
                answer = driver.answer(timeout=0.2)
                break
            except queue.Empty:
                complaint = driver.complaint()
                if time.monotonic() > end or "InvalidAuthToken" in complaint:
                    raise self._unreachable(complaint) from None
        if answer is None:
            raise self._unreachable(driver.complaint())
        self._check(answer)
        if json.loads(answer)["processors"] < 1:
            raise CouldNotRun(f"{self._name} has no free processors; add a node to it.")

    def _check(self, answer: str) -> None:
        result = json.loads(answer)
        if "broken" in result:
            raise self._unreachable(f"{result['broken']}: {result['why']}")

    def _unreachable(self, complaint: str) -> CouldNotRun:
        if "Authentication" in complaint or "AuthToken" in complaint:
            return CouldNotRun(
                f"{self._name} wants a token, and did not accept ours: set RAY_AUTH_MODE=token and "
                "RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH to the token it was started with (`ray "
                "get-auth-token` prints it there)."
            )
        last = f"it did not answer within {_PATIENCE:.0f} seconds"
        if complaint:
            last = complaint.splitlines()[-1][:300]
        return CouldNotRun(f"{self._name} could not be used: {last}")


@dataclass(frozen=True)
class Where:
    """Where units are computed, as `make_engine` takes it; None for what was not asked for."""

    kind: str | None = None
    num_workers: int | None = None
    address: str | None = None


def where_to_compute(where: Where, begun: RunConfig | None = None) -> Where:
    """Return the engine that was asked for, else the one of the sweep to resume, else this process.

    Raises:
        CouldNotRun: the config of the sweep names something else.
    """
    if where == Where() and begun is not None and "computed_by" in begun:
        try:
            where = Where(**begun["computed_by"])
        except TypeError:
            raise CouldNotRun(
                f"its config says that it was computed by {str(begun['computed_by'])[:100]}."
            ) from None
    num_workers = where.num_workers
    if num_workers is None:
        num_workers = 1
    return Where(where.kind or "local", num_workers, where.address)


def make_engine(
    kind: str | None, *, num_workers: int | None = 1, address: str | None = None
) -> Engine:
    """Make an engine: `local` with some workers, or `ray` with the address of a cluster that runs.

    Raises:
        WrongUsage: an unknown kind, or options that do not go together.
        CouldNotRun: Ray is not installed, or nothing answers at the address.
    """
    if kind not in get_args(EngineKind):
        raise WrongUsage(
            f"there is no engine {kind!r}; {did_you_mean(str(kind), get_args(EngineKind))}"
        )
    if type(num_workers) is not int or not 1 <= num_workers <= _MOST_WORKERS:
        raise WrongUsage(
            f"workers must be an integer from 1 to {_MOST_WORKERS}; got {num_workers!r}."
        )
    if kind == "ray":
        return _make_cluster(address, num_workers)
    if address is not None:
        raise WrongUsage(f"an address, {address}, is for a cluster: give --engine ray with it.")
    return _Processes(num_workers) if num_workers > 1 else Engine()


def _make_cluster(address: str | None, num_workers: int) -> Engine:
    if num_workers != 1:
        raise WrongUsage(
            "workers are processes of this machine; a Ray cluster has its own: leave --workers out."
        )
    if address is None:
        raise WrongUsage(
            "--engine ray needs --address HOST:PORT of a cluster that runs, or --address "
            "auto for the one here."
        )
    if importlib.util.find_spec("ray") is None:
        raise CouldNotRun(
            "--engine ray needs Ray, which is not installed here: pip install 'attnlab[ray]'."
        )
    if address != "auto":
        _check_reachable(address)
    return _Cluster(address)


def _check_reachable(address: str) -> None:
    """Check that something listens at an address, since Ray itself would wait for two minutes."""
    parts = _ADDRESS.fullmatch(address)
    if parts is None or not 0 < int(parts["port"]) < 65_536:
        raise WrongUsage(
            "the address of a Ray cluster is HOST:PORT, such as 10.0.0.5:6379, or auto; got "
            f"{address!r}."
        )
    try:
        socket.create_connection((parts["host"].strip("[]"), int(parts["port"])), timeout=5).close()
    except OSError as error:
        raise CouldNotRun(
            f"nothing answers at {address}: {error.strerror or error}. Is the cluster running "
            "(`ray status`), and is this the port that `ray start --head` printed?"
        ) from None


def _ray_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return environment variables for Ray: send the token if there is one, and no usage reports.

    A cluster may ask for a token, but a client sends none unless it is told to.
    """
    named = environment.get("RAY_AUTH_TOKEN") or environment.get("RAY_AUTH_TOKEN_PATH")
    has_token = named or (Path.home() / ".ray" / "auth_token").is_file()
    chosen = {"RAY_USAGE_STATS_ENABLED": "0"}
    if has_token and "RAY_AUTH_MODE" not in environment:
        chosen["RAY_AUTH_MODE"] = "token"
    return chosen


def _why_it_died(worker: LineProcess) -> str:
    complaint = worker.complaint()
    status = worker.end()
    if complaint:
        return f"the last time with: {complaint.splitlines()[-1][:300]}"
    if status < 0:
        return f"the last time with signal {-status} (the system sends 9 when memory runs out)"
    return ""
