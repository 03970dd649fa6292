"""Experiments in processes of their own, as many at once as there are processors.

Each process sends its progress and, in the end, its folder or its error. The screen reads from top
to bottom: the sentences of an experiment wait until those before it are finished.
"""

import multiprocessing
import os
import signal
from collections.abc import Callable, Generator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import forkserver
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlab.cli.estimate import TimeEstimate
from attnlab.cli.failures import Interrupts, machine_words, name_written
from attnlab.cli.progress import ProgressDisplay, progress_of_many
from attnlab.cli.resolve_run import in_free_folder
from attnlab.errors import AttnlabError, CouldNotRun, WrongUsage

if TYPE_CHECKING:
    from attnlab.experiments.report import Report

Makes = Mapping[str, Callable[..., "Report"]]
"""What runs each experiment, called with `out` and `observer`."""

RunOutcome = tuple["Report", Path] | AttnlabError
Outcomes = Generator[tuple[str, RunOutcome], None, None]
"""The report and the folder of each experiment by name, or its error."""

_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def count_processors() -> int:
    """Count the processors that this process may use; one where processes cannot be forked."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return 1
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@dataclass
class _Job:
    """A running experiment: its process, the pipe from it, and its folder."""

    process: BaseProcess
    pipe: Connection
    folder: Path | None = None


class SideBySide:
    """Experiments that run at once.

    Ctrl-C may come at any point, and the standard library's executors can then wait forever; a
    process with a pipe of its own shares no lock.
    """

    def __init__(
        self, makes: Makes, parent: Path, estimate: TimeEstimate, num_processes: int
    ) -> None:
        self._makes, self._parent, self._estimate = makes, parent, estimate
        self._num_processes = num_processes
        self._waiting = list(enumerate(makes, 1))
        self._jobs: dict[str, _Job] = {}
        self._shown: dict[str, ProgressDisplay] = {}
        self._outcomes: dict[str, RunOutcome] = {}

    def outcomes(self, *, is_quiet: bool) -> Outcomes:
        """Run all, and yield the report or the error of each experiment in their order."""
        try:
            with progress_of_many(is_quiet=is_quiet, left=self._estimate.left) as show:
                for name in self._makes:
                    self._begin(show)
                    self._shown[name].release()
                    while name not in self._outcomes:
                        self._listen()
                        self._begin(show)
                    yield name, self._outcomes[name]
        finally:
            self._stop()

    def _begin(self, show: Callable[[str], ProgressDisplay]) -> None:
        """Start experiments until every processor has one."""
        while self._waiting and len(self._jobs) < self._num_processes:
            number, name = self._waiting.pop(0)
            receiver, sender = multiprocessing.Pipe(duplex=False)
            process = _fork_server().Process(
                target=_work, args=(sender, self._makes[name], self._parent, name), daemon=True
            )
            process.start()
            sender.close()
            self._shown[name] = show(f"{number}/{len(self._makes)} {name}")
            self._jobs[name] = _Job(process, receiver)
            self._estimate.begin(name)

    def _listen(self) -> None:
        """Wait for messages, and take one of each process that has sent any."""
        names = {job.pipe: name for name, job in self._jobs.items()}
        for pipe in wait(list(names)):
            assert isinstance(pipe, Connection)
            try:
                kind, *message = pipe.recv()
            except EOFError:
                kind, message = "error", [_why_it_died(self._jobs[names[pipe]].process)]
            self._take(names[pipe], kind, message)

    def _take(self, name: str, kind: str, message: list[Any]) -> None:
        job = self._jobs[name]
        if kind == "folder":
            (job.folder,) = message
        elif kind in ("report", "error"):
            (self._outcomes[name],) = message
            self._shown[name].end()
            job.process.join()
            del self._jobs[name]
            self._estimate.end(name)
        else:  # stage, step or tell
            getattr(self._shown[name], kind)(*message)
            return
        name_written(job.folder for job in self._jobs.values() if job.folder is not None)

    def _stop(self) -> None:
        """Let every process that still runs save what it has, and wait for it."""
        for job in self._jobs.values():
            job.process.terminate()
        for job in self._jobs.values():
            job.process.join()


def _fork_server() -> Any:
    """Return a context whose processes start with everything imported, and one thread each."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["attnlab.cli", "attnlab.experiments.runner"])
    before = {name: os.environ.get(name) for name in _THREAD_VARIABLES}
    os.environ.update(dict.fromkeys(_THREAD_VARIABLES, "1"))
    try:
        forkserver.ensure_running()
    finally:
        for name, value in before.items():
            del os.environ[name]
            if value is not None:
                os.environ[name] = value
    return context


def _why_it_died(process: BaseProcess) -> CouldNotRun:
    process.join()
    status = process.exitcode or 0
    if status < 0:
        return CouldNotRun(
            f"its process ended with signal {-status} (the system sends 9 when memory runs out)."
        )
    return CouldNotRun(f"its process ended with exit status {status}.")


@dataclass(frozen=True)
class _Sender:
    """The observer in an experiment's process: it sends everything to the screen."""

    pipe: Connection

    def stage(self, name: str) -> None:
        self.pipe.send(("stage", name))

    def step(self, step: int, steps: int, figures: Mapping[str, float]) -> None:
        self.pipe.send(("step", step, steps, dict(figures)))

    def tell(self, sentence: str) -> None:
        self.pipe.send(("tell", sentence))


def _work(pipe: Connection, make: Callable[..., "Report"], parent: Path, name: str) -> None:
    """Run one experiment; SIGTERM ends it as Ctrl-C does, and Ctrl-C itself is the parent's."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def make_in(out: Path, observer: _Sender) -> "Report":
        pipe.send(("folder", out))
        return make(out=out, observer=observer)

    with suppress(KeyboardInterrupt, BrokenPipeError), Interrupts():
        try:
            pipe.send(("report", in_free_folder(make_in, parent, name, _Sender(pipe))))
        except AttnlabError as error:
            # Errors with arguments of their own do not come through a pipe.
            kind = WrongUsage if isinstance(error, WrongUsage) else CouldNotRun
            pipe.send(("error", kind(str(error))))
        except (OSError, MemoryError, RuntimeError) as error:
            sentence = machine_words(error)
            if sentence is None:
                raise
            pipe.send(("error", CouldNotRun(sentence)))
