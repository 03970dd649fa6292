"""A Ray cluster on this machine with its own ports, folder and token."""

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

RAY = str(Path(sys.executable).with_name("ray"))


class Cluster:
    """Nodes of one processor each, which ask for a token."""

    def __init__(self, nodes=2):
        self.nodes = nodes
        self.folder = Path(
            tempfile.mkdtemp(prefix="attnlab-ray-", dir="/tmp")
        )  # Ray's sockets need a short path
        self.token = secrets.token_hex(32)
        self.address = f"127.0.0.1:{free_port()}"
        self._nodes: list[subprocess.Popen[bytes]] = []

    @property
    def environment(self):
        """What a client has to set."""
        return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": self.token}

    def __enter__(self):
        try:
            port = self.address.split(":")[1]
            self._start(
                "--head", f"--port={port}", f"--temp-dir={self.folder}", "--include-dashboard=false"
            )
            self._wait_for_nodes(1)
            for number in range(1, self.nodes):
                self._start(f"--address={self.address}")
                self._wait_for_nodes(number + 1)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.lose(*range(len(self._nodes)))
        wait_until(lambda: not self._kill(self.processes()), 20)
        shutil.rmtree(self.folder, ignore_errors=True)

    def processes(self):
        """Return every process of this cluster: it names the cluster's folder or port."""
        marks = (str(self.folder).encode(), self.token.encode())
        return [
            number
            for number in _numbers()
            if any(m in read(number, "cmdline", "environ") for m in marks)
        ]

    def workers(self, node):
        """Return the processes that compute units on a node: 0 is the head, 1 the other."""
        inside = below(self._nodes[node].pid)
        return [number for number in inside if read(number, "cmdline").startswith(b"ray::compute")]

    def lose(self, *nodes):
        """Kill nodes and all they run, as a power cut does."""
        for node in nodes:
            self._kill([*below(self._nodes[node].pid), self._nodes[node].pid])
            self._nodes[node].wait()

    def _kill(self, numbers):
        for number in numbers:
            with suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        return numbers

    def _start(self, *arguments):
        with (self.folder / f"node-{len(self._nodes)}.log").open("wb") as log:
            node = subprocess.Popen(
                [RAY, "start", *arguments, "--num-cpus=1", "--block", "--disable-usage-stats"],
                env={**os.environ, **self.environment, "RAY_USAGE_STATS_ENABLED": "0"},
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._nodes.append(node)
        port = int(self.address.split(":")[1])
        wait_until(lambda: node.poll() is not None or is_open(port))

    def _wait_for_nodes(self, expected):
        def is_there():
            raylets = [n for n in self.processes() if b"raylet/raylet" in read(n, "cmdline")]
            return len(raylets) >= expected or any(node.poll() is not None for node in self._nodes)

        wait_until(is_there)
        logs = "".join(path.read_text() for path in sorted(self.folder.glob("node-*.log")))
        assert all(node.poll() is None for node in self._nodes), logs
        time.sleep(2)  # a raylet tells the head of itself a moment after it began


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def is_open(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def wait_until(is_so, seconds=60.0):
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, f"it did not happen within {seconds:.0f} seconds"
        time.sleep(0.02)


def _numbers():
    return [
        int(each.name)
        for each in Path("/proc").iterdir()
        if each.name.isdigit() and int(each.name) != os.getpid()
    ]


def read(number, *files):
    found = b""
    for name in files:
        with suppress(OSError):
            found += Path(f"/proc/{number}/{name}").read_bytes()
    return found


def below(number):
    """Return the processes that a process started, and those that they did."""
    parents = {}
    for each in _numbers():
        stat = read(each, "stat").rpartition(b")")[2].split()
        if stat:
            parents[each] = int(stat[1])
    found, new = [], [number]
    while new:
        new = [each for each, parent in parents.items() if parent in new]
        found += new
    return found
