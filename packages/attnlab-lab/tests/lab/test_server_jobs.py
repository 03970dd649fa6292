"""Jobs: processes that are paused, resumed and canceled, and a log that outlives the server."""

import json
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest

from attnlab_lab.server import events, jobs

from . import jobs_checks
from .jobs_checks import carried

CHECKS = [
    jobs_checks.check_pause_and_resume,
    jobs_checks.check_force,
    jobs_checks.check_patience,
    jobs_checks.check_places,
    jobs_checks.check_names,
    jobs_checks.check_ends,
    jobs_checks.check_log,
]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_jobs(check, tmp_path, monkeypatch):
    monkeypatch.setattr(jobs, "TERM_AFTER", 0.3)
    monkeypatch.setattr(jobs, "KILL_AFTER", 0.6)
    monkeypatch.setattr(jobs, "_CLOSING", 0.5)
    carried(monkeypatch, tmp_path / "runs", check)


def test_steps_are_noted_at_most_ten_in_a_second_and_the_last_always(tmp_path, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(events.time, "monotonic", lambda: now[0])
    log = events.EventLog(tmp_path / "events.jsonl")
    log.stage("train")
    for step in range(1, 101):
        now[0] += 0.01
        log.step(step, 100, {"loss": float(step)})
    log.step(100, 100, {"accuracy": 1.0})
    log.tell("a damaged checkpoint")
    told = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    steps = [each["step"] for each in told if each["event"] == "step"]
    assert (steps[0], steps[-2:]) == (1, [100, 100])
    assert len(steps) in (11, 12)
    assert told[-2]["figures"] == {"loss": 100.0, "accuracy": 1.0}
    assert (told[0]["name"], told[-1]["sentence"]) == ("train", "a damaged checkpoint")


def test_no_group_is_signaled_whose_leader_was_reaped(monkeypatch):
    signaled = []
    monkeypatch.setattr(jobs.os, "killpg", lambda *sent: signaled.append(sent))
    child = subprocess.Popen([sys.executable, "-c", ""])
    process = SimpleNamespace(pid=child.pid, returncode=None)
    jobs._signal_group(process, signal.SIGKILL)
    assert signaled == [(child.pid, signal.SIGKILL)]
    child.wait()
    jobs._signal_group(process, signal.SIGKILL)
    assert len(signaled) == 1
