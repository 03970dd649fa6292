"""A real server in a process of its own, and a client for it."""

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from attnlab_lab.server import answer_process

PATIENCE = 240.0  # seconds after which something hangs, on a busy machine
NO_FIGURES = {"PYTHONPATH": str(Path(__file__).with_name("without_figures"))}
"""The environment of a Python that has no matplotlib: painting is half of a short run."""


class Lab:
    """`attnlab lab` over a folder, at one port, as often as it is started, and a client of it.

    The first start takes a port that is free: one that is chosen before could be another's by then.
    """

    def __init__(self, folder: Path, **environment: str) -> None:
        self.folder, self.environment = folder, environment
        self.port = 0
        self.process: subprocess.Popen[str] | None = None
        self.cookie = ""
        self._connections = ExitStack()

    def start(self) -> str:
        """Start it, and return the address that opens once."""
        words = ["lab", "--no-browser"]
        if self.port:
            words += ["--port", str(self.port)]
        with (self.folder / "log.txt").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "attnlab", *words],
                cwd=self.folder,
                env=os.environ | self.environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self.told = self.process.stdout.readline()  # type: ignore[union-attr]
        address = re.search(r"(http://127\.0\.0\.1:(\d+)/)(\?token=([\w-]{43}))", self.told)
        assert address, self.log
        self.address, self.port, self.token = address[1], int(address[2]), address[4]
        self.first_address, self.opening = address[0], f"/{address[3]}"
        return self.first_address

    def end(self, number: int) -> int:
        """Send a signal, and wait for the end."""
        self._connections.close()
        if self.process is None:
            return 0
        self.process.send_signal(number)
        status = self.process.wait(PATIENCE)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.told += self.process.stdout.read()
        for stream in (self.process.stdin, self.process.stdout):
            stream.close()
        self.process = None
        return status

    @property
    def log(self) -> str:
        return (self.folder / "log.txt").read_text()

    def open(self) -> None:
        """Swap the token for the cookie."""
        answer = self.ask("GET", self.opening)
        assert answer.status == 303
        self.cookie = answer.headers["set-cookie"].partition(";")[0]

    def begin(self, method: str, path: str, body: Any = None, **more: str) -> Any:
        """Send a request; return what answers it, not read yet."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        headers = {"cookie": self.cookie, "sec-fetch-site": "same-origin"}
        if path == self.opening:
            headers = {}
        if body is not None:
            headers["content-type"] = "application/json"
            body = json.dumps(body)
        connection.request(method, path, body, headers | more)
        self._connections.callback(connection.close)
        answer = self._connections.enter_context(connection.getresponse())
        answer.connection = connection
        return answer

    def ask(self, method: str, path: str, body: Any = None, **more: str) -> Any:
        """Send a request and read the answer; `.value` is its JSON, if it is JSON."""
        answer = self.begin(method, path, body, **more)
        with answer, closing(answer.connection):
            answer.body = answer.read()
        if answer.headers.get("content-type") == "application/json":
            answer.value = json.loads(answer.body)
        return answer

    def post(self, path: str, body: Any) -> Any:
        """Post JSON that must be taken, and return the answer's."""
        answer = self.ask("POST", path, body)
        assert answer.status in (200, 201), answer.body
        return answer.value

    def events(self, name: str, after: int = 0) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield a job's events with their ids until the stream ends."""
        stream = self.begin("GET", f"/api/jobs/{name}/events", **{"last-event-id": str(after)})
        assert stream.status == 200
        number = 0
        with stream, closing(stream.connection):
            for line in stream:
                if line.startswith(b"id: "):
                    number = int(line[4:])
                elif line.startswith(b"data: "):
                    yield number, json.loads(line[6:])


@contextmanager
def running(folder: Path, **environment: str) -> Iterator[Lab]:
    """Run `attnlab lab` over a folder while the `with` lasts."""
    lab = Lab(folder, **environment)
    try:
        lab.start()
        yield lab
    finally:
        lab.end(signal.SIGTERM)


def opened_room(context: Any, lab: Lab, room: str, part: str, page: Any = None, **link: str) -> Any:
    """Open a room of a lab with what a link says, and wait for a part of it."""
    page = page or context.new_page()
    keys = "".join(f"&{key}={value}" for key, value in link.items())
    page.goto(f"{lab.address}#v=1&room={room}{keys}")
    page.wait_for_selector(part, timeout=PATIENCE * 1000)
    return page


def asked(what: str, **facts: Any) -> tuple[int, Any]:
    """Ask the process with the models, here; return the status and the JSON."""
    answer = answer_process._answer(json.dumps({"what": what, **facts}))
    status, _, body = answer.partition(" ")
    return int(status), json.loads(body, parse_constant=pytest.fail)


def until(holds: Callable[[], Any]) -> Any:
    """Wait for something, and return it."""
    end = time.monotonic() + PATIENCE
    while not (found := holds()):
        assert time.monotonic() < end, "this did not come"
        time.sleep(0.05)
    return found
