"""Start the server: its port, its one-time address, the browser, and its end by a signal."""

import errno
import os
import signal
import socket
import sys
import threading
import webbrowser
from contextlib import suppress
from pathlib import Path
from types import FrameType

import uvicorn

from attnlab.errors import CouldNotRun
from attnlab_lab.server.app import make_app
from attnlab_lab.server.connections import Connection
from attnlab_lab.server.guard import MOST_HEADERS, AccessKeys, Guard
from attnlab_lab.server.state import Lab

_HOST = "127.0.0.1"
_ONCE = "it opens once; Enter shows a new address, for another browser"


class _Server(uvicorn.Server):
    """A server that ends its streams and jobs as soon as a signal comes."""

    def __init__(self, config: uvicorn.Config, lab: Lab) -> None:
        super().__init__(config)
        self._lab = lab

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._lab.is_closing = True
        self._lab.jobs.interrupt()
        super().handle_exit(sig, frame)


def serve(runs: Path, port: int | None, open_browser: bool, assets: Path) -> None:
    """Serve the lab on this machine alone, until Ctrl-C or SIGTERM.

    Args:
        runs: the folder of the runs.
        port: None for one that is free.
        open_browser: open the page in the user's browser.

    Raises:
        CouldNotRun: the port is taken.
    """
    lab = Lab(runs)
    if hasattr(signal, "SIGTTIN"):  # or a lab in the background would stop where it reads Enter
        signal.signal(signal.SIGTTIN, signal.SIG_IGN)
    with _listening(port) as listener:
        number = listener.getsockname()[1]
        keys = AccessKeys(number)
        server = make_server(Guard(make_app(lab, assets), number, keys), lab)
        address = _address(number, keys)
        _say(f"the lab is at {address}\n{_ONCE}; Ctrl-C ends the lab")
        if open_browser:  # some browsers are opened by a command that waits for them
            threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
        threading.Thread(target=_renew_at_enter, args=(number, keys), daemon=True).start()
        server.run([listener])


def _address(port: int, keys: AccessKeys) -> str:
    return f"http://{_HOST}:{port}/?token={keys.token}"


def _say(words: str) -> None:
    sys.stdout.write(f"{words}\n")
    sys.stdout.flush()


def _renew_at_enter(port: int, keys: AccessKeys) -> None:
    """Print a new address at every Enter, until the input ends.

    It reads below Python's buffers, whose lock would keep the program from ending meanwhile.
    """
    if sys.stdin is None:
        return
    with suppress(OSError):  # a lab in the background has no terminal to read
        while typed := os.read(sys.stdin.fileno(), 1024):
            if b"\n" in typed:
                keys.renew()
                _say(f"the lab is also at {_address(port, keys)}\n{_ONCE}")


def make_server(app: Guard, lab: Lab) -> uvicorn.Server:
    """Make the server of an app; it logs no request, since addresses hold the token."""
    config = uvicorn.Config(
        app,
        http=Connection,
        ws="none",
        log_config=None,
        log_level="critical",
        access_log=False,
        server_header=False,
        h11_max_incomplete_event_size=MOST_HEADERS,
        timeout_graceful_shutdown=1,
    )
    return _Server(config, lab)


def _listening(port: int | None) -> socket.socket:
    """Return a socket that listens to this machine alone."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((_HOST, port or 0))
        listener.listen(2048)
    except (OSError, OverflowError) as error:
        listener.close()
        reason = "is taken by another program"
        if getattr(error, "errno", None) != errno.EADDRINUSE:
            reason = f"cannot be used: {error}"
        raise CouldNotRun(
            f"port {port} {reason}; choose another one, or leave it out for one that is free."
        ) from None
    return listener
