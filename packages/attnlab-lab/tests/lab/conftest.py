"""The playground, written once, and opened in a browser that may ask for nothing else."""

import http.server
import re
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from attnlab_lab.static import write_static
from tests.pages import Visit

from .playing import Open
from .serving import Lab, opened_room, running


@pytest.fixture(scope="session")
def playground(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_static(tmp_path_factory.mktemp("playground"))


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def server(playground: Path) -> Iterator[str]:
    handler = partial(Quiet, directory=playground)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as httpd:
        threading.Thread(target=httpd.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{httpd.server_port}/"
        httpd.shutdown()


@pytest.fixture
def open_lab(visited: Visit, playground: Path) -> Iterator[Open]:
    """Open the playground; at the end, no request but its own files, and no complaint.

    The page shows fewer pictures of a training unless a test asks for them as `MOVING` does.
    """
    bases = set()

    def open_it(
        link: str = "", width: int = 1280, base: str = "", script: str = "", **options: Any
    ) -> Any:
        base = base or f"{playground.as_uri()}/"
        bases.add(base)
        options = {"reduced_motion": "reduce"} | options
        page = visited.page(script, seconds=90.0, **options)  # on a busy machine
        page.set_viewport_size({"width": width, "height": 900})
        page.goto(f"{base}index.html{link}")
        return page

    yield open_it
    own = {f"{base}{name}" for base in bases for name in ("index.html", "lab.js", "lab.css")}
    others = [url for url in visited.requests if url.partition("#")[0] not in own]
    assert [url for url in others if not url.startswith(("data:,", "blob:"))] == []
    assert visited.complaints == []


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the one lab of all rooms; a room's tests put into it what they need."""
    folder = tmp_path_factory.mktemp("lab")
    (folder / "runs").mkdir()
    return folder


@pytest.fixture(scope="session")
def lab(home: Path) -> Iterator[Lab]:
    with running(home) as made:
        yield made


@pytest.fixture(scope="session")
def window(browser: Any, lab: Lab) -> Iterator[Any]:
    """A browser's window that has opened the lab."""
    viewport = {"width": 1280, "height": 900}
    made = browser.new_context(viewport=viewport, bypass_csp=True, reduced_motion="reduce")
    made.new_page().goto(lab.first_address)  # it stays, so that the processes of the window do
    yield made
    made.close()


@pytest.fixture
def allowed() -> str:
    """What pages of the lab may complain of: requests that it refused."""
    return "status of 40[09]"


@pytest.fixture
def context(window: Any, allowed: str) -> Iterator[Any]:
    """The window without a page yet; at the end, no complaint but those allowed."""
    complaints: list[str] = []
    listeners = {
        "console": lambda told: complaints.append(told.text),
        "weberror": lambda error: complaints.append(str(error.error)),
        "dialog": lambda dialog: (complaints.append(dialog.message), dialog.dismiss()),
    }
    resting = window.pages
    for event, listener in listeners.items():
        window.on(event, listener)
    yield window
    for page in window.pages:
        if page not in resting:
            page.close()
    for event, listener in listeners.items():
        window.remove_listener(event, listener)
    assert [each for each in complaints if not re.search(allowed, each)] == []


@pytest.fixture
def open_room(context: Any, lab: Lab) -> Any:
    """Open a room with what a link says, and wait for a part of it."""
    return partial(opened_room, context, lab)
