"""The lab's server: how soon it is there and gone, and how quickly it answers clicks.

    python benchmarks/server.py RUN [--rounds 10] [--questions 300] [--minutes 10]
        [--model FOLDER]

RUN is a finished run of `sorting`. Start: from the command to the first page, in a new process.
End: from SIGTERM to the end of the process, with a training in it. Questions are asked one after
another over connections of their own, every second one with an edit; alone, then beside one
training, which has nice 5 and one thread. A click in the room Models cuts another edge each time,
while FOLDER's model reads 128 tokens: all heads, the answer, and the weights of one head. Load: 20
clients ask once a second for some minutes, beside a training; and how the memory of the server and
its processes changed meanwhile. Medians and 95th percentiles; beside other programs they say
little.
"""

import argparse
import http.client
import json
import re
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

PROGRAM = """
from pathlib import Path
from attnlab_lab.server.start import serve
serve(Path("runs"), None, False, Path("assets"))
"""
EDITS = [{"edit": "CutEdge", "query": 3, "key": 1, "head": 1}]
SENTENCE = "the cat sat on the mat and the dog sat on the cat while it was cold "
TRAINING = {"experiment": "sorting", "settings": {"steps": 10_000_000, "evaluate_every": 1_000_000}}


class Lab:
    """A server in a process of its own."""

    def __init__(self, folder: Path) -> None:
        began = time.perf_counter()
        self._process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM], cwd=folder, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        address = re.search(r"127\.0\.0\.1:(\d+)(\S+)", self._process.stdout.readline())
        assert address is not None
        self._port, self._cookie = int(address[1]), ""
        self._cookie = self.ask("GET", address[2])[0]["set-cookie"].partition(";")[0]
        self.ask("GET", "/")
        self.started = time.perf_counter() - began

    def ask(self, method: str, path: str, body: Any = None) -> tuple[Any, bytes]:
        """Ask, and return headers and body."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=120)
        headers = {"content-type": "application/json", "cookie": self._cookie}
        if path.startswith("/api"):
            headers["sec-fetch-site"] = "same-origin"
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        content = answer.read()
        assert answer.status < 400, content
        connection.close()
        return answer.headers, content

    def time_questions(self, number: int) -> list[float]:
        """Return the milliseconds of questions to the run's model."""
        found = []
        for place in range(number):
            edits = EDITS if place % 2 else []
            began = time.perf_counter()
            self.ask("POST", "/api/ask", {"run": "run", "input": "cab", "edits": edits})
            found.append(1e3 * (time.perf_counter() - began))
        return found

    def time_clicks(self, model: Path, number: int) -> list[float]:
        """Return the milliseconds of clicks that cut an edge of a model that reads 128 tokens."""
        facts = {"model": str(model.resolve())}
        self.ask("POST", "/api/models/open", facts)
        facts["text"] = " ".join((8 * SENTENCE).split()[:126])
        length = len(json.loads(self.ask("POST", "/api/models/ask", facts)[1])["tokens"])
        found = []
        for place in range(number):
            edge = {"head": "1.0", "query": 1 + place % (length - 1), "key": 7 * place % length}
            began = time.perf_counter()
            self.ask("POST", "/api/models/ask", {**facts, "edits": [edge], "head": "1.0"})
            found.append(1e3 * (time.perf_counter() - began))
        print(f"{model.name} reads {length} tokens")
        return found

    def train(self) -> None:
        """Start a training, and wait for its first step."""
        self.ask("POST", "/api/jobs", TRAINING)
        while json.loads(self.ask("GET", "/api/jobs")[1])[0]["last"].get("event") != "step":
            time.sleep(0.1)

    def load(self, minutes: float, clients: int = 20) -> list[float]:
        """Return the milliseconds of the questions of many clients, each asking once a second."""
        end = time.perf_counter() + 60 * minutes

        def ask(client: int) -> list[float]:
            found: list[float] = []
            due = time.perf_counter() + client / clients
            while due < end:
                time.sleep(max(0.0, due - time.perf_counter()))
                found += self.time_questions(1)
                due += 1.0
            return found

        with ThreadPoolExecutor(clients) as pool:
            return [each for found in pool.map(ask, range(clients)) for each in found]

    def memory(self) -> float:
        """Return the megabytes of the server and of the process with the models."""
        server = Path(f"/proc/{self._process.pid}")
        children = (server / "task" / server.name / "children").read_text().split()
        found = [server, *(Path(f"/proc/{each}") for each in children)]
        own = [each for each in found if "job_process" not in (each / "cmdline").read_text()]
        pages = [int((each / "statm").read_text().split()[1]) for each in own]
        return sum(pages) * resource.getpagesize() / 1e6

    def end(self) -> float:
        """Return the seconds from SIGTERM to the end."""
        began = time.perf_counter()
        self._process.send_signal(signal.SIGTERM)
        self._process.wait()
        return time.perf_counter() - began


def say(name: str, values: Sequence[float], unit: str) -> None:
    """Print a row."""
    middle, high = statistics.median(values), statistics.quantiles(values, n=20)[-1]
    rate = f"  {1e3 / middle:6.0f} a second" if unit == "ms" else ""
    print(f"{name:36} {middle:7.2f} {unit}, p95 {high:7.2f} {unit}{rate}")


def main() -> None:
    """Measure, and print a table."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("run", type=Path)
    options.add_argument("--rounds", type=int, default=10)
    options.add_argument("--questions", type=int, default=300)
    options.add_argument("--minutes", type=float, default=0.0)
    options.add_argument("--model", type=Path)
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copytree(chosen.run, folder / "runs" / "run")
        (folder / "assets").mkdir()
        (folder / "assets" / "index.html").write_text("<!doctype html><title>lab</title>")
        starts, ends = [], []
        for _ in range(chosen.rounds):
            lab = Lab(folder)
            starts.append(lab.started)
            lab.end()
        say("start to the first page", starts, "s")
        lab = Lab(folder)
        lab.time_questions(10)
        say("a question, alone", lab.time_questions(chosen.questions), "ms")
        if chosen.model:
            say("a click in Models, alone", lab.time_clicks(chosen.model, chosen.questions), "ms")
        lab.train()
        say("a question beside a training", lab.time_questions(chosen.questions), "ms")
        if chosen.model:
            clicks = lab.time_clicks(chosen.model, chosen.questions)
            say("a click in Models beside a training", clicks, "ms")
        if chosen.minutes:
            before = lab.memory()
            say("20 clients beside a training", lab.load(chosen.minutes), "ms")
            print(f"{'memory, before and after':36} {before:7.1f} MB, {lab.memory():.1f} MB")
        lab.end()
        for _ in range(max(2, chosen.rounds // 3)):
            lab = Lab(folder)
            lab.train()
            ends.append(lab.end())
        say("end with a training", ends, "s")


if __name__ == "__main__":
    main()
