"""The playground, written once, and opened in a browser that may ask for nothing else."""

import functools
import http.server
import re
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from attnlab.lab.static import write_static

from .playing import Open
from .serving import PATIENCE, Lab


@pytest.fixture(scope="session")
def playground(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_static(tmp_path_factory.mktemp("playground"))


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def server(playground: Path) -> Iterator[str]:
    handler = functools.partial(Quiet, directory=playground)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as httpd:
        threading.Thread(target=httpd.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{httpd.server_port}/"
        httpd.shutdown()


@pytest.fixture
def open_lab(browser: Any, playground: Path) -> Iterator[Open]:
    """Open the playground; at the end, no request but its own files, and no complaint."""
    contexts, requests, complaints, bases = [], [], [], set()

    def open_it(
        link: str = "", width: int = 1280, base: str = "", script: str = "", **options: Any
    ) -> Any:
        base = base or f"{playground.as_uri()}/"
        bases.add(base)
        context = browser.new_context(viewport={"width": width, "height": 900}, **options)
        contexts.append(context)
        context.set_default_timeout(90_000)  # milliseconds, on a busy machine
        context.add_init_script(script)
        page = context.new_page()
        page.on("request", lambda request: requests.append(request.url))
        page.on("console", lambda message: complaints.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: (complaints.append(dialog.message), dialog.dismiss()))
        page.goto(f"{base}index.html{link}")
        return page

    yield open_it
    for context in contexts:
        context.close()
    own = {f"{base}{name}" for base in bases for name in ("index.html", "lab.js", "lab.css")}
    others = [url for url in requests if url.partition("#")[0] not in own]
    assert [url for url in others if not url.startswith(("data:,", "blob:"))] == []
    assert complaints == []


@pytest.fixture(scope="module")
def lab(home: Path) -> Iterator[tuple[Lab, str]]:
    """The server over the folder `home` of a test's file, and the address that opens it once."""
    made = Lab(home)
    try:
        yield made, made.start()
    finally:
        made.end(signal.SIGTERM)


@pytest.fixture(scope="module")
def cookies(browser: Any, lab: tuple[Lab, str]) -> Any:
    context = browser.new_context()
    context.new_page().goto(lab[1])
    yield context.storage_state()
    context.close()


@pytest.fixture
def context(browser: Any, cookies: Any) -> Iterator[Any]:
    """A browser's window; at the end, no complaint but of requests that were refused."""
    made = browser.new_context(
        viewport={"width": 1280, "height": 900}, storage_state=cookies, bypass_csp=True
    )
    complaints: list[str] = []
    made.on("console", lambda told: complaints.append(told.text))
    made.on("weberror", lambda error: complaints.append(str(error.error)))
    made.on("dialog", lambda dialog: (complaints.append(dialog.message), dialog.dismiss()))
    yield made
    made.close()
    assert [each for each in complaints if not re.search("status of 40[09]", each)] == []


@pytest.fixture
def open_room(context: Any, lab: tuple[Lab, str]) -> Any:
    """Open a room with what a link says, and wait for a part of it."""

    def open_it(room: str, part: str, page: Any = None, **link: str) -> Any:
        page = page or context.new_page()
        keys = "".join(f"&{key}={value}" for key, value in link.items())
        page.goto(f"{lab[0].address}#v=1&room={room}{keys}")
        page.wait_for_selector(part, timeout=PATIENCE * 1000)
        return page

    return open_it
