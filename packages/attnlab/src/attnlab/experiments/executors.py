"""Where work is computed: in this process, in several of this machine, on a Ray cluster, or in jobs
of SLURM.

The units of a sweep, the blocks of a population and the shares of a census are such work. All
engines give the same results, in any order. However a command ends, by an error, Ctrl-C or a kill,
none of its processes stays behind.
"""

import importlib.util
import logging
import multiprocessing
import os
import queue
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, Protocol, Self, get_args

from attnlab.core.store import refusing_damage
from attnlab.errors import AttnlabError, CouldNotRun, WrongUsage, did_you_mean, is_integer, not_none
from attnlab.experiments.folder import RunConfig
from attnlab.train.observer import Observer, SilentObserver

EngineKind = Literal["local", "ray", "slurm"]


class ExecutorTask(Protocol):
    """What an engine computes; it and its result, errors included, can be pickled."""

    @property
    def number(self) -> int:
        """Its number among all."""

    def compute(self, observer: Observer | None = None) -> Any:
        """Compute it, on whatever machine."""


@dataclass(frozen=True)
class UnitFailure:
    """Why a piece of work, by its number, could not be computed."""

    unit: int
    error: AttnlabError


_MAX_WORKERS = 256
_RETRIES = 3  # by Ray, of a unit whose worker or machine was lost
_PATIENCE = 15.0  # seconds in which a cluster must answer
_SPAWN = multiprocessing.get_context("spawn")
_CTRL_C = {signal.SIGINT}
_HERE = "here"  # the address of jobs on this machine
_JOB_MINUTES, _JOB_LOOK = 24 * 60, 0.2  # the limit of a job; seconds between looks at them


class Executor:
    """A context manager; `compute` takes units and yields their results as they come."""

    words = "in this process"
    is_elsewhere = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def compute(
        self, units: Sequence[ExecutorTask], observer: Observer | None = None
    ) -> Iterator[Any]:
        """Compute one unit after the other in this process."""
        for unit in units:
            yield unit.compute(observer)

    def close(self) -> None:
        """End the processes of the engine."""


class _Processes(Executor):
    """A pool of processes of this machine.

    Every worker ends as soon as our end of a pipe is closed, which the system does after a kill.
    """

    is_elsewhere = True

    def __init__(self, num_workers: int) -> None:
        self.words = f"in {num_workers} processes"
        watched, self._ours = _SPAWN.Pipe(duplex=False)
        self._pool = ProcessPoolExecutor(num_workers, _SPAWN, _begin_worker, (watched,))

    def compute(
        self, units: Sequence[ExecutorTask], observer: Observer | None = None
    ) -> Iterator[Any]:
        # Ctrl-C may come at any point: this thread only waits for a queue, and never holds a lock
        # of the pool then.
        answers: queue.SimpleQueue[Future[Any]] = queue.SimpleQueue()
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


class _Cluster(Executor):
    """A Ray cluster, and the process that talks to it.

    Ray kills the process that talks to a cluster when the cluster goes away, waits for minutes
    before it gives up, and writes to the terminal.
    """

    is_elsewhere = True

    def __init__(self, address: str) -> None:
        self._name = f"the Ray cluster at {address}"
        self._link, theirs = _SPAWN.Pipe()
        self._driver = _SPAWN.Process(target=_drive, args=(address, theirs), daemon=True)
        self.words = f"on {self._name}"
        with _starting_processes():
            self._driver.start()
        theirs.close()
        if not self._link.poll(_PATIENCE):
            self.close()
            raise CouldNotRun(
                f"{self._name} did not answer within {_PATIENCE:.0f} seconds: is it running (`ray "
                "status`), is this the port that `ray start --head` printed, and are "
                "RAY_AUTH_MODE=token and RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH set to its token, "
                "if it has one (`ray get-auth-token` prints it there)?"
            )
        self._receive()

    def compute(
        self, units: Sequence[ExecutorTask], observer: Observer | None = None
    ) -> Iterator[Any]:
        self._link.send(list(units))
        for _ in units:
            yield self._receive()

    def close(self) -> None:
        self._driver.kill()
        self._driver.join()

    def _receive(self) -> Any:
        try:
            answer = self._link.recv()
        except (EOFError, OSError):
            raise CouldNotRun(
                f"the connection to {self._name} was lost; continue with --resume when it is back."
            ) from None
        if isinstance(answer, str):
            raise CouldNotRun(f"{self._name} could not be used: {answer}")
        return answer


def _drive(address: str, link: Connection) -> None:
    """Connect to a cluster, then take lists of units and send their results.

    An error of the connection is sent as text. Every unit is a task of one processor.
    """
    os.environ.update(_ray_environment(os.environ))
    for stream in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
    import ray as module

    ray: Any = module  # Ray is typed only in part
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        link.send(ray.cluster_resources())
        task = ray.remote(num_cpus=1, max_retries=_RETRIES)(compute)
        while True:
            waiting = {task.remote(unit): unit for unit in link.recv()}
            while waiting:
                (done,), _ = ray.wait(list(waiting))
                link.send(_answer("Ray", ray.get, done, waiting.pop(done)))
    except EOFError:  # our parent is gone
        return
    except Exception as error:
        link.send(f"{type(error).__name__}: {_last_line(error)}")


def compute(unit: ExecutorTask) -> Any:
    """Compute a unit, in a worker of a cluster."""
    return unit.compute()


def _answer(who: str, get: Callable[[Any], Any], task: Any, unit: ExecutorTask) -> Any:
    try:
        return get(task)
    except Exception as error:  # the worker was lost too often, or has no attnlab
        reason = f"{who} could not compute it: {_last_line(error)}."
        return UnitFailure(unit.number, CouldNotRun(reason))


def _last_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[-1][:300]


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


class _Slurm(Executor):
    """Jobs of SLURM, submitted from this machine; or processes of it where there is no SLURM and
    the address says "here".

    The home folder must be shared with the nodes: jobs and their results are files there.
    """

    is_elsewhere = True

    def __init__(self, partition: str | None) -> None:
        from submitit import AutoExecutor

        is_here = partition == _HERE
        folder = Path.home() / ".cache" / "attnlab" / "jobs"
        self._executor = AutoExecutor(folder, cluster="local" if is_here else "slurm")
        self._executor.update_parameters(cpus_per_task=1, timeout_min=_JOB_MINUTES, name="attnlab")
        if partition is not None and not is_here:
            self._executor.update_parameters(slurm_partition=partition)
        self.words = "in jobs on this machine" if is_here else "in jobs of SLURM"
        self._jobs: list[Any] = []

    def compute(
        self, units: Sequence[ExecutorTask], observer: Observer | None = None
    ) -> Iterator[Any]:
        self._jobs = self._executor.map_array(compute, units)
        waiting = dict(zip(self._jobs, units, strict=True))
        while waiting:
            done = [job for job in waiting if job.done()]
            for job in done:
                yield _answer("the job", lambda job: job.result(), job, waiting.pop(job))
            if not done:
                time.sleep(_JOB_LOOK)

    def close(self) -> None:
        for job in self._jobs:
            job.cancel(check=False)


@dataclass(frozen=True)
class ExecutorOptions:
    """Where units are computed.

    kind: an engine, such as "local", "ray" or "slurm"; None for this process · num_workers: of
    "local" · address: of a Ray cluster, or a partition of SLURM.
    """

    kind: str | None = None
    num_workers: int | None = None
    address: str | None = None

    def or_of(self, begun: RunConfig | None) -> "ExecutorOptions":
        """Return the engine of a sweep that is resumed if this one names none."""
        if self != ExecutorOptions() or begun is None:
            return self
        with refusing_damage("computed_by in config.json"):
            return ExecutorOptions(**begun.get("computed_by", {}))


def make_engine(where: ExecutorOptions) -> Executor:
    """Make an engine.

    Raises:
        WrongUsage: an unknown kind, or options that do not go together.
        CouldNotRun: Ray is not installed, or does not answer at the address.
    """
    kind, workers = where.kind or "local", where.num_workers
    if kind not in get_args(EngineKind):
        raise WrongUsage(f"there is no engine {kind!r}; {did_you_mean(kind, get_args(EngineKind))}")
    if workers is not None and not (is_integer(workers) and 1 <= workers <= _MAX_WORKERS):
        raise WrongUsage(f"workers must be an integer from 1 to {_MAX_WORKERS}; got {workers!r}.")
    if kind == "ray":
        return _make_cluster(where)
    if kind == "slurm":
        return _make_jobs(where)
    if where.address is not None:
        raise WrongUsage(
            f"an address, {where.address}, is for a cluster: give --engine ray with it."
        )
    if workers in (None, 1):
        return Executor()
    return _Processes(not_none(workers))


def _make_cluster(where: ExecutorOptions) -> Executor:
    if where.num_workers is not None:
        raise WrongUsage(
            "workers are processes of this machine; a Ray cluster has its own: leave --workers out."
        )
    if where.address is None:
        raise WrongUsage(
            "--engine ray needs --address HOST:PORT of a cluster that runs, or --address "
            "auto for the one here."
        )
    if importlib.util.find_spec("ray") is None:
        raise CouldNotRun(
            "--engine ray needs Ray, which is not installed here: pip install 'attnlab[ray]'."
        )
    return _Cluster(where.address)


def _make_jobs(where: ExecutorOptions) -> Executor:
    if where.num_workers is not None:
        raise WrongUsage("SLURM starts the jobs when it has room: leave --workers out.")
    if importlib.util.find_spec("submitit") is None:
        raise CouldNotRun(
            "--engine slurm needs submitit, which is not installed here: pip install "
            "'attnlab[slurm]'."
        )
    if where.address != _HERE and shutil.which("sbatch") is None:
        raise CouldNotRun(
            "--engine slurm submits jobs with sbatch, which is not here: run it on a machine of "
            "the cluster, or try it out with --address here."
        )
    return _Slurm(where.address)


class ModelCounter:
    """An observer that turns the steps of one population into progress over all models.

    units: the work in its order, each with a `size`, its number of models. done, total: models.
    """

    def __init__(self, observer: Observer, units: Sequence[Any], done: int, total: int) -> None:
        self._observer, self._units, self._total = observer, iter(units), total
        self.stage, self.tell = SilentObserver().stage, observer.tell
        self.finish(done)

    def finish(self, done: int) -> None:
        """Note how many models are done; the next unit begins."""
        self._done, self._unit = done, next(self._units, None)
        self._observer.step(done, self._total, {})

    def step(self, step: int, steps: int, figures: Mapping[str, float]) -> None:
        """Count the finished share of a population."""
        size = 0 if self._unit is None else self._unit.size
        self._observer.step(self._done + size * step // steps, self._total, figures)
