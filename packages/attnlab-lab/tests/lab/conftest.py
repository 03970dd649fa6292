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


@pytest.fixture(scope="session")
def free_pages() -> dict[str, list[Any]]:
    """Keep pages that no test uses, by the options of their context: a new one costs a process."""
    return {}


@pytest.fixture
def open_lab(
    browser: Any, free_pages: dict[str, list[Any]], resting_page: Path, playground: Path
) -> Iterator[Open]:
    """Open the playground; at the end, no request but its own files, and no complaint.

    The page shows fewer pictures of a training unless a test asks for them as `MOVING` does.
    """
    requests, complaints, bases = [], [], set()
    taken: list[tuple[list[Any], Any]] = []
    listeners = {
        "request": lambda request: requests.append(request.url),
        "console": lambda message: complaints.append(f"{message.type}: {message.text}"),
        "pageerror": lambda error: complaints.append(str(error)),
        "dialog": lambda dialog: (complaints.append(dialog.message), dialog.dismiss()),
    }

    def open_it(
        link: str = "", width: int = 1280, base: str = "", script: str = "", **options: Any
    ) -> Any:
        base = base or f"{playground.as_uri()}/"
        bases.add(base)
        options = {"reduced_motion": "reduce"} | options
        free = free_pages.setdefault(f"{sorted(options.items())} {script}", [])
        page = free.pop() if free else new_page(browser, script, options)
        taken.append((free, page))
        page.set_viewport_size({"width": width, "height": 900})
        for event, listener in listeners.items():
            page.on(event, listener)
        page.goto(f"{base}index.html{link}")
        return page

    yield open_it
    for free, page in taken:
        page.mouse.up()
        page.mouse.move(-1, -1)  # nothing is pointed at
        page.context.set_offline(False)
        for event, listener in listeners.items():
            page.remove_listener(event, listener)
        page.goto(resting_page.as_uri())
        free.append(page)
    own = {f"{base}{name}" for base in bases for name in ("index.html", "lab.js", "lab.css")}
    others = [url for url in requests if url.partition("#")[0] not in own]
    assert [url for url in others if not url.startswith(("data:,", "blob:"))] == []
    assert complaints == []


def new_page(browser: Any, script: str, options: dict[str, Any]) -> Any:
    """Open a page of a context of its own, which runs a script before those of the page."""
    context = browser.new_context(**options)
    context.set_default_timeout(90_000)  # milliseconds, on a busy machine
    context.add_init_script(script)
    return context.new_page()


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
