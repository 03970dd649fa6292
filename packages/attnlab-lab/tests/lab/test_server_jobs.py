"""Jobs: what is noted of their steps, and whom a signal reaches."""

import json
import signal
import subprocess
import sys
from types import SimpleNamespace

from attnlab_lab.server import events, jobs


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
