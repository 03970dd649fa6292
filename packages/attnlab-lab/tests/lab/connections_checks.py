"""Checks of connections that their tests and the planted faults share; the server is a thread."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from attnlab_lab.server import answers, connections, guard, start

from .asgi import Page

PATIENCE = 60.0
NO_HTTP = b"this is no request that the lab understands"


class Threaded:
    """A server in a thread, with the page of its app; its worker is never started."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self._listener = start._listening(None)
        self.port = self._listener.getsockname()[1]
        page.guard._hosts = {f"127.0.0.1:{self.port}".encode()}
        self.server = start.make_server(page.guard, page.lab)
        self._thread = threading.Thread(target=self.server.run, args=([self._listener],))
        self._thread.start()
        self.until(lambda: self.server.started)

    def close(self) -> None:
        self.page.lab.is_closing = self.server.should_exit = True
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), PATIENCE)

    def head(self, method: str = "GET", path: str = "/api/runs", **more: str) -> bytes:
        own = {"host": f"127.0.0.1:{self.port}", "cookie": self.page.cookie}
        own |= {"sec-fetch-site": "same-origin", "content-type": "application/json"}
        own |= {"connection": "close"}
        own |= {name.replace("_", "-"): value for name, value in more.items()}
        lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {own[name]}" for name in own)]
        return "\r\n".join([*lines, "", ""]).encode()

    def send(self, content: bytes, patience: float = PATIENCE) -> bytes:
        """Send bytes on a connection of their own; return what comes until it ends or is silent."""
        with self.connect() as client:
            client.settimeout(patience)
            with suppress(OSError):  # it was closed while we sent, which is an answer too
                client.sendall(content)
            return received(client)

    @property
    def open(self) -> int:
        return len(self.server.server_state.connections) + len(self.server.server_state.tasks)

    def until(self, holds: Callable[[], Any]) -> None:
        end = time.monotonic() + PATIENCE
        while not holds():
            assert time.monotonic() < end, "this did not come"
            time.sleep(0.02)


def received(client: socket.socket) -> bytes:
    found = b""
    try:
        while piece := client.recv(2**16):
            found += piece
    except (ConnectionError, TimeoutError):
        pass
    return found


@contextmanager
def threaded(patch: Any, folder: Path) -> Iterator[Threaded]:
    """Serve an app whose limits are short."""

    async def nothing(self: Any) -> None:
        pass

    patch.setattr(answers.Answers, "begin", nothing)
    for module, name in (
        (connections, "HEADER_SECONDS"),
        (connections, "READ_SECONDS"),
        (guard, "BODY_SECONDS"),
    ):
        patch.setattr(module, name, 1.0)
    server = Threaded(Page(folder))
    try:
        yield server
    finally:
        server.close()
        server.page.close()


def check_slow(server: Threaded) -> None:
    """Clients that trickle headers or bodies, or do not read, are closed; others go on."""
    large = server.page.runs.parent / "assets" / "large.bin"
    assert large.stat().st_size > 2**23

    def connected(content: bytes) -> list[socket.socket]:
        clients = []
        for _ in range(10):
            clients.append(server.connect())
            clients[-1].sendall(content)
        return clients

    silent = connected(b"")
    begun = connected(b"GET / HTTP/1.1\r\nhost:")
    late = connected(server.head("POST", "/api/ask", content_length="100") + b"{")
    unread = connected(server.head(path="/large.bin"))
    for _ in range(3):  # a byte now and then does not help
        time.sleep(0.1)
        for client in (*begun, *late):
            client.sendall(b" ")
    assert b"200 OK" in server.send(server.head())
    server.until(lambda: server.open == 0)
    assert all(b" 408 " in received(client) for client in late)
    assert all(received(client) == b"" for client in (*silent, *begun))
    assert all(len(received(client)) < 2**23 for client in unread)
    for client in (*silent, *begun, *late, *unread):
        client.close()


def check_idle(server: Threaded) -> None:
    """A second request on the same connection must come in time too."""
    with server.connect() as client:
        for pause in (0, 1.2):  # longer than headers may take: no request has begun
            time.sleep(pause)
            client.sendall(server.head(connection="keep-alive"))
            found = b""
            while not found.endswith(b"]"):
                found += client.recv(2**16)
            assert b"200 OK" in found
        client.sendall(b"GET / HTTP")
        server.until(lambda: server.open == 0)
        assert received(client) == b""


def check_no_http(server: Threaded) -> None:
    own = f"host: 127.0.0.1:{server.port}".encode()
    for content in (
        b"\0\1\2\3\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + own + b"\r\n" + own + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + own + b"\r\nhost: evil.example\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost : a\r\n\r\n",
        b"GET  / HTTP/9.9\r\n" + own + b"\r\n\r\n",
        server.head("POST", content_length="-1"),
    ):
        answer = server.send(content)
        assert answer.startswith((b"HTTP/1.1 400", b"HTTP/1.1 403")), (content, answer)
        for name, value in guard.HEADERS.items():
            assert name + b": " + value in answer.lower() or value in answer, (name, answer)
        assert b"Traceback" not in answer
    assert NO_HTTP in server.send(b"\0\1\2\3\r\n\r\n")
