"""Checks of jobs that their tests and the planted faults share; the processes are small scripts.

`started` puts a script in the place of a job's process. A script is given its run's folder and the
job's, as the process is.
"""

import asyncio
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from attnlab.errors import CouldNotRun
from attnlab_lab.server import events as log
from attnlab_lab.server import jobs as module

from .aside import aside, ended

PATIENCE = 30.0  # seconds after which something hangs

BEGIN = """
import os, signal, subprocess, sys, time
run, folder = sys.argv[1:]
def note(word):
    with open(folder + "/events.jsonl", "a") as log: log.write('{"event": "%s"}\\n' % word)
def stop(number, frame):
    note("heard%d" % number); os._exit(130)
"""
OBEDIENT = f"""{BEGIN}
signal.signal(signal.SIGINT, stop); note("ready"); sys.stdin.read(); os._exit(7)
"""
STUBBORN = f"""{BEGIN}
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda number, frame: note("heard%d" % number))
child = subprocess.Popen([sys.executable, "-c",
    "import signal, time\\nfor n in (2, 15): signal.signal(n, signal.SIG_IGN)\\ntime.sleep(60)"])
note("child%d" % child.pid); note("ready")
while True: time.sleep(1)
"""
DONE = f'{BEGIN}\nnote("ready"); os._exit(0)\n'
BROKEN = f'{BEGIN}\nnote("ready"); os._exit(3)\n'

ASKED = module.Request("sorting", {"steps": "20"}, 1)


async def until(holds: Callable[[], Any]) -> None:
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end, "this did not come"
        await asyncio.sleep(0.02)


class Watched(module.Jobs):
    """Jobs whose processes are scripts."""

    def __init__(self, runs: Path, script: str = OBEDIENT) -> None:
        super().__init__(runs)
        self.script = script
        self.spawned: list[asyncio.subprocess.Process] = []

    def start_as(self, name: str) -> None:
        """Start a job of an experiment of this name, which is the job's too."""
        self.start(replace(ASKED, experiment=name))

    def told(self, name: str) -> list[str]:
        lines = log._whole_lines(self.log(name), 0)
        return [line.split(b'"')[3].decode() for line in lines]

    def state(self, name: str) -> str:
        return str(self.describe(name)["state"])

    async def begin(self, name: str, *, times: int = 1) -> None:
        if not self._is_taken(name):
            self.start_as(name)
        await until(lambda: self.told(name).count("ready") == times and self.is_known(name))

    def is_known(self, name: str) -> bool:
        """Has spawn returned? A script may have written before, or have ended since."""
        return name not in self._live or self._live[name].process is not None

    async def ended(self, name: str, state: str) -> None:
        await until(lambda: name not in self._live)
        assert self.state(name) == state, self.told(name)


def watched(patch: Any, runs: Path, script: str = OBEDIENT) -> Watched:
    """Make jobs whose processes run a script."""
    runs.mkdir(exist_ok=True)
    jobs = Watched(runs, script)

    async def spawn(name: str, *arguments: str) -> asyncio.subprocess.Process:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", jobs.script, *arguments),
            stdin=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        jobs.spawned.append(process)
        return process

    patch.setattr(module, "spawn", spawn)
    return jobs


def carried(
    patch: Any, runs: Path, check: Callable[[Watched], Any], script: str = OBEDIENT
) -> None:
    """Run a check, and leave no process behind."""
    jobs = watched(patch, runs, script)

    async def run() -> None:
        try:
            await asyncio.wait_for(check(jobs), PATIENCE)
        finally:
            tasks = [live.task for live in jobs._live.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await ended(jobs.spawned)

    aside(asyncio.run, run())


async def check_pause_and_resume(jobs: Watched) -> None:
    await jobs.begin("one")
    assert jobs.state("one") == "running"
    refuses(CouldNotRun, "is running", lambda: jobs.resume("one"))
    jobs.end("one", "paused")
    await jobs.ended("one", "paused")
    refuses(CouldNotRun, "does not run here", lambda: jobs.end("one", "paused"))
    jobs.resume("one")
    await jobs.begin("one", times=2)
    assert jobs.state("one") == "running"
    jobs.script = DONE
    jobs.end("one", "paused")
    await jobs.ended("one", "paused")
    jobs.resume("one")
    await jobs.ended("one", "finished")
    assert jobs.told("one") == [*["ready", "heard2", "ended"] * 2, "ready", "ended"]
    found = jobs.describe("one")
    assert (found["experiment"], found["settings"], found["seed"]) == (
        "one",
        {"steps": "20"},
        1,
    )
    (jobs._runs / "one").mkdir()
    for name in ("config.json", "claims.json"):
        (jobs._runs / "one" / name).write_text("{}")
    refuses(CouldNotRun, "nothing is left to do", lambda: jobs.resume("one"))


async def check_force(jobs: Watched) -> None:
    """A canceled job that hears nothing is killed, with all that it started."""
    jobs.script = STUBBORN
    await jobs.begin("one")
    jobs.end("one", "canceled")
    await jobs.ended("one", "canceled")
    child, *rest = jobs.told("one")
    assert rest == ["ready", "heard2", "heard15", "ended"]
    await until(lambda: not is_running(int(child.removeprefix("child"))))


async def check_patience(jobs: Watched) -> None:
    """A paused job is asked and never forced, until it is canceled."""
    forced: list[Any] = []
    jobs._force = forced.append  # type: ignore[method-assign]
    jobs.script = STUBBORN
    await jobs.begin("one")
    jobs.end("one", "paused")
    await until(lambda: "heard2" in jobs.told("one"))
    assert (jobs.state("one"), forced) == ("running", [])
    jobs.end("one", "canceled")
    assert forced == jobs.spawned


async def check_places(jobs: Watched) -> None:
    names = [f"job-{number}" for number in range(5)]
    for name in names:
        jobs.start_as(name)
    for name in names[:2]:
        await jobs.begin(name)
    states = [jobs.state(name) for name in names]
    assert states == ["running", "running", "waiting", "waiting", "waiting"]
    jobs.end("job-2", "canceled")
    await jobs.ended("job-2", "canceled")
    jobs.end("job-0", "paused")
    await jobs.ended("job-0", "paused")
    await jobs.begin("job-3")
    assert (len(jobs.spawned), jobs.state("job-4")) == (3, "waiting")
    for number in range(module.MOST_WAITING - 1):
        jobs.start_as(f"more-{number}")
    refuses(module.Busy, "jobs wait already", lambda: jobs.start_as("another"))
    refuses(module.Busy, "jobs wait already", lambda: jobs.resume("job-0"))
    assert not jobs._is_taken("another")
    await jobs.close()
    assert jobs._live == {}


async def check_names(jobs: Watched) -> None:
    (jobs._runs / "sorting").mkdir()
    assert jobs.start(ASKED) == "sorting-2"
    assert jobs.start(ASKED) == "sorting-3"
    for name in ("none", "..", "a/b", "", "sorting"):
        refuses(module.NotFound, "there is no job", lambda: jobs.describe(name))  # noqa: B023


async def check_ends(jobs: Watched) -> None:
    """The end of a job is told by its process, and a server that ends stops its jobs."""
    jobs.script = BROKEN
    await jobs.begin("broken")
    await jobs.ended("broken", "failed")
    jobs.script = OBEDIENT
    await jobs.begin("one")
    jobs.spawned[-1].send_signal(signal.SIGTERM)
    await jobs.ended("one", "stopped")
    await jobs.begin("two")
    jobs.script = STUBBORN
    await jobs.begin("three")
    jobs.start_as("four")
    await jobs.close()
    assert [jobs.state(name) for name in ("two", "three", "four")] == ["stopped"] * 3
    assert all(process.returncode is not None for process in jobs.spawned)
    again = module.Jobs(jobs._runs)
    assert {job["name"]: job["state"] for job in again.list()} == {
        "broken": "failed", **dict.fromkeys(("one", "two", "three", "four"), "stopped"),
    }  # fmt: skip


async def check_log(jobs: Watched) -> None:
    """A log that was cut in the middle of a line goes on with whole lines and the same ids."""
    await jobs.begin("one")
    jobs.end("one", "paused")
    await jobs.ended("one", "paused")
    path = jobs.log("one")
    with path.open("ab") as half:
        half.write(b'{"event": "st')
    assert jobs.state("one") == "paused"
    seen = await read(path, 1)
    assert [number for number, _ in seen] == [2, 3]
    jobs.resume("one")
    log.EventLog(path)  # as the process does when it begins
    await jobs.begin("one", times=2)
    late: list[tuple[int, bytes]] = []
    reader = asyncio.create_task(read(path, 3, lambda: jobs.is_live("one"), late))
    await until(lambda: late)
    jobs.end("one", "paused")
    assert [number for number, _ in await reader] == [4, 5, 6]
    assert b"paused" in late[-1][1]
    assert await read(path, 6) == []
    assert (log.is_read(path, 6), log.is_read(path, 5)) == (True, False)


async def read(
    path: Path,
    after: int,
    is_live: Callable[[], bool] = lambda: False,
    found: list[tuple[int, bytes]] | None = None,
) -> list[tuple[int, bytes]]:
    """Follow a log to its end."""
    found = [] if found is None else found
    async for told in log.follow(path, after, is_live, lambda: False):
        first, second, *rest = told.split(b"\n")
        assert rest == [b"", b""]
        found.append((int(first.removeprefix(b"id: ")), second.removeprefix(b"data: ")))
    return found


def is_running(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def refuses(kind: type[Exception], words: str, act: Callable[[], Any]) -> None:
    with pytest.raises(kind, match=words):
        act()
