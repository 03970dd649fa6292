"""Jobs: trainings that the page starts, each a process of its own.

A job is called as its run: `runs/NAME` is the run's folder, as of any run, and `runs/.jobs/NAME`
holds what was asked (`job.json`) and what happened (`events.jsonl`). The state of a job is read off
these files, so that it is the same for a server that was started anew. Resuming a job is resuming
its run.
"""

import asyncio
import itertools
import os
import re
import signal
import sys
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from attnlab.core.store import make_folder, read_json, refusing_damage, write_json, writer_of
from attnlab.errors import CouldNotRun
from attnlab.experiments.folder import is_finished
from attnlab_lab.server.events import Event, EventLog, last_event

MOST_RUNNING = 2
MOST_WAITING = 32
TERM_AFTER, KILL_AFTER = 1.0, 3.0
"""Seconds after which a canceled job that did not stop gets SIGTERM, then SIGKILL."""
_CLOSING = 1.2  # seconds that jobs have for a checkpoint when the server ends

Wish = Literal["paused", "canceled", "stopped"]

JobFacts = dict[str, Any]
"""A job as JSON: its name, its state, what it was asked for, and the last event of its log."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


class Busy(CouldNotRun):
    """So much is waiting already that this was not taken."""

    status = 429


class NotFound(CouldNotRun):
    """There is no such run or job."""

    status = 404


@dataclass(frozen=True)
class Request:
    """What a job was asked for; the settings are texts, as on the command line."""

    experiment: str
    settings: dict[str, str]
    seed: int
    seeds: int = 1  # more than one are a population
    sweep: bool = False  # its settings may have several values
    created: float = field(default_factory=time.time)


def read_request(folder: Path) -> Request:
    """Read what a job was asked for."""
    with refusing_damage(str(folder / "job.json")):
        return Request(**read_json(folder / "job.json"))


@dataclass
class _Live:
    """A job of this server that waits or runs."""

    task: asyncio.Task[None]
    process: asyncio.subprocess.Process | None = None
    wish: Wish | None = None


class Jobs:
    """All jobs of a folder of runs; those that this server started can be stopped."""

    def __init__(self, runs: Path) -> None:
        self._runs, self._folder = runs, runs / ".jobs"
        self._live: dict[str, _Live] = {}
        self._places = asyncio.Semaphore(MOST_RUNNING)

    def take_place(self) -> None:
        """Raise `Busy` if too many jobs wait."""
        if len(self._live) >= MOST_RUNNING + MOST_WAITING:
            raise Busy(f"{MOST_WAITING} jobs wait already: start this one when some have ended.")

    def start(self, request: Request) -> str:
        """Start a job whose settings are checked; return its name when it is on the disk."""
        self.take_place()
        name = usual = _usual_name(request)
        numbers = itertools.count(2)
        while self._is_taken(name):
            name = f"{usual}-{next(numbers)}"
        make_folder(self._folder / name)
        write_json(self._folder / name / "job.json", asdict(request))
        self._launch(name)
        return name

    def resume(self, name: str) -> None:
        """Go on with a job that was paused, canceled or stopped, or that failed."""
        self._find(name)
        if self.is_live(name):
            raise CouldNotRun(f"the job {name} is running.")
        if is_finished(self._runs / name):
            raise CouldNotRun(f"the job {name} is finished: nothing is left to do.")
        self.take_place()
        self._launch(name)

    def end(self, name: str, wish: Wish) -> None:
        """Stop a job: at the next step, with a checkpoint; a canceled one is made to."""
        self._find(name)
        live = self._live.get(name)
        if live is None:
            raise CouldNotRun(f"the job {name} does not run here, so it cannot be {wish}.")
        if live.wish == wish:
            return
        live.wish = wish
        if live.process is None:
            live.task.cancel()
            return
        with suppress(ProcessLookupError):
            live.process.send_signal(signal.SIGINT)
        if wish == "canceled":
            self._force(live.process)

    def is_live(self, name: str) -> bool:
        """Does a job wait or run, here or as the remains of a server that was killed?"""
        return name in self._live or writer_of(self._folder / name) is not None

    def log(self, name: str) -> Path:
        """Return the log of a job."""
        return self._find(name) / "events.jsonl"

    def list(self) -> list[JobFacts]:
        """Describe all jobs, the newest first."""
        folders = self._folder.iterdir() if self._folder.is_dir() else ()
        names = [folder.name for folder in folders if self._is_there(folder.name)]
        return sorted(map(self.describe, names), key=lambda job: -job["created"])

    def describe(self, name: str) -> JobFacts:
        """Return what a job was asked for, its state and its last event."""
        last, request = last_event(self.log(name)), asdict(read_request(self._folder / name))
        return {"name": name, "state": self._state(name, last), **request, "last": last}

    def interrupt(self) -> None:
        """Ask all jobs to stop, since the server ends."""
        for name in list(self._live):
            self.end(name, self._live[name].wish or "stopped")

    async def close(self) -> None:
        """Wait for all jobs to stop; kill those that do not."""
        self.interrupt()
        tasks = [live.task for live in self._live.values()]
        if tasks:
            await asyncio.wait(tasks, timeout=_CLOSING)
        for live in self._live.values():
            if live.process is not None:
                _signal_group(live.process, signal.SIGKILL)
        await asyncio.gather(*tasks, return_exceptions=True)

    def _is_taken(self, name: str) -> bool:
        return any(os.path.lexists(parent / name) for parent in (self._runs, self._folder))

    def _is_there(self, name: str) -> bool:
        return bool(_NAME.fullmatch(name)) and (self._folder / name / "job.json").is_file()

    def _find(self, name: str) -> Path:
        if not self._is_there(name):
            raise NotFound(f"there is no job {name[:80]!r}.")
        return self._folder / name

    def _state(self, name: str, last: Event) -> str:
        live = self._live.get(name)
        if live is not None and live.process is None:
            return "waiting"
        if self.is_live(name):
            return "running"
        return str(last.get("state", "stopped")) if last.get("event") == "ended" else "stopped"

    def _launch(self, name: str) -> None:
        task = asyncio.create_task(self._carry_out(name))
        live = self._live[name] = _Live(task)
        # A callback, since a task that is canceled early enough never begins.
        task.add_done_callback(lambda _: self._note_end(name, live))

    async def _carry_out(self, name: str) -> None:
        """Wait for a place, and run the job's process."""
        async with self._places:
            process = await spawn("job_process", str(self._runs / name), str(self._folder / name))
            self._live[name].process = process
            await process.wait()

    def _note_end(self, name: str, live: _Live) -> None:
        del self._live[name]
        status = live.process.returncode if live.process is not None else None
        state = _outcome(status, live.wish)
        EventLog(self._folder / name / "events.jsonl").write("ended", state=state, status=status)

    def _force(self, process: asyncio.subprocess.Process) -> None:
        loop = asyncio.get_running_loop()
        for seconds, number in ((TERM_AFTER, signal.SIGTERM), (KILL_AFTER, signal.SIGKILL)):
            loop.call_later(seconds, _signal_group, process, number)


async def spawn(module: str, *arguments: str) -> asyncio.subprocess.Process:
    """Start a module of this package as a process; it ends when its input ends, as this one does.

    It leads a group of its own, so that Ctrl-C in the terminal reaches the server alone.
    """
    path = os.pathsep.join(filter(None, sys.path))
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        f"{__package__}.{module}",
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE if not arguments else asyncio.subprocess.DEVNULL,
        limit=2**28,
        start_new_session=True,
        env=os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
    )


def _signal_group(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    """Send a signal to a process and all that it started, if it still runs."""
    if process.returncode is None:
        with suppress(ProcessLookupError, ChildProcessError):
            if hasattr(os, "waitid"):  # reaped, and its number perhaps another's: this raises
                os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            os.killpg(process.pid, number)


def _usual_name(request: Request) -> str:
    """Name a job that was given no name, as the command line names its folder."""
    if request.sweep:
        return f"{request.experiment}-sweep"
    if request.seeds > 1:
        return f"{request.experiment}-{request.seeds}-seeds"
    return request.experiment


def _outcome(status: int | None, wish: Wish | None) -> str:
    """Name the state of a job whose process has ended."""
    if status == 0:
        return "finished"
    if wish is not None:
        return wish
    return "stopped" if status in (130, -signal.SIGINT, -signal.SIGTERM) else "failed"
