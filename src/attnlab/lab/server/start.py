"""Start the server: its port, its one-time address, the browser, and its end by a signal."""

import errno
import socket
import sys
import threading
import webbrowser
from pathlib import Path
from types import FrameType

import uvicorn

from attnlab.errors import CouldNotRun
from attnlab.lab.server.app import make_app
from attnlab.lab.server.connections import Connection
from attnlab.lab.server.guard import MOST_HEADERS, Guard, Keys
from attnlab.lab.server.state import Lab

_HOST = "127.0.0.1"


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
    with _listening(port) as listener:
        number = listener.getsockname()[1]
        keys = Keys(number)
        server = make_server(Guard(make_app(lab, assets), number, keys), lab)
        address = f"http://{_HOST}:{number}/?token={keys.token}"
        sys.stdout.write(f"the lab is at {address}\nit opens once; Ctrl-C ends it\n")
        sys.stdout.flush()
        if open_browser:  # some browsers are opened by a command that waits for them
            threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
        server.run([listener])


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
