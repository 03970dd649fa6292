"""The playground, written once, and opened in a browser that may ask for nothing else."""

import functools
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from attnlab.lab.static import write_static

from .playing import Open


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
