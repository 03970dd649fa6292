"""A client that talks to the server's app without a network, with any headers at all."""

import asyncio
import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote_to_bytes

from starlette.responses import Response

from attnlab_lab.server import answers, guard
from attnlab_lab.server import app as routes

PORT = 8765
HOST = f"127.0.0.1:{PORT}"


@dataclass
class Answer:
    """What came back: nothing, if the app sent nothing."""

    status: int = 0
    headers: list[tuple[str, str]] = field(default_factory=list)
    body: bytes = b""

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key == name), None)

    @property
    def error(self) -> str:
        return json.loads(self.body)["error"]


class Page:
    """An app over a folder of runs, with the cookie of its page."""

    def __init__(self, folder: Path) -> None:
        self._thread = ThreadPoolExecutor(1)  # the browser of other tests has a loop in this one
        self._runner = asyncio.Runner()
        self.runs = folder / "runs"
        assets = folder / "assets"
        for each in (self.runs, assets):
            each.mkdir(parents=True, exist_ok=True)
        run, outside = self.runs / "one", folder / "outside"
        for each in (run, outside, folder / "runs-sibling"):
            each.mkdir(exist_ok=True)
            (each / "config.json").write_text('{"experiment": "CANARY"}')
            (each / "report.html").write_text("<title>CANARY</title>")
            (each / "job.json").write_text('{"experiment": "CANARY"}')
        (run / "config.json").write_text('{"experiment": "sorting"}')
        (run / "report.html").write_text("<title>report</title>")
        if not (self.runs / "link").is_symlink():
            (self.runs / "link").symlink_to(outside)
        (assets / "index.html").write_text("<!doctype html><title>lab</title>")
        (assets / "lab.js").write_text("1")
        (assets / "large.bin").write_bytes(b"0" * (2**23 + 1))
        self.lab = routes.Lab(self.runs)
        self.app = routes.make_app(self.lab, assets)
        self.keys = guard.AccessKeys(PORT)
        self.guard = guard.Guard(self.app, PORT, self.keys)
        cookie = self.keys.swap(self.keys.token.encode())[b"set-cookie"]
        self.cookie = cookie.decode().partition(";")[0]

    def own(self, **changes: str | None) -> list[tuple[str, str]]:
        """Return the headers that the page itself sends; a change to None leaves one out."""
        headers = {
            "host": HOST,
            "cookie": self.cookie,
            "origin": f"http://{HOST}",
            "sec-fetch-site": "same-origin",
            "content-type": "application/json",
        }
        headers |= {name.replace("_", "-"): value for name, value in changes.items()}
        return [(name, value) for name, value in headers.items() if value is not None]

    def ask(
        self,
        method: str,
        target: str,
        *,
        headers: list[tuple[str, str]] | None = None,
        body: Any = None,
        chunks: list[bytes] | None = None,
    ) -> Answer:
        """Send a request and wait for the whole answer."""
        sent = self.own() if headers is None else headers
        raw = [] if body is None else [json.dumps(body).encode()]
        asked = send(self.guard, method, target, sent, chunks or raw)
        return self._thread.submit(self._runner.run, asked).result()

    def close(self) -> None:
        self._thread.submit(self._runner.close).result()
        self._thread.shutdown()


@contextmanager
def page_over(patch: Any, folder: Path) -> Iterator[Page]:
    """Make a page whose questions to the process with the models are all refused."""

    async def refused(self: Any, question: Mapping[str, Any]) -> Response:
        return Response(b'{"error": "no"}', 400, media_type="application/json")

    patch.setattr(answers.Answers, "_answer", refused)
    page = Page(folder)
    try:
        yield page
    finally:
        page.close()


async def send(
    app: Any, method: str, target: str, headers: list[tuple[str, str]], chunks: list[bytes]
) -> Answer:
    """Send a request as uvicorn hands it to the app."""
    path, _, query = target.partition("?")
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "scheme": "http",
        "server": ("127.0.0.1", PORT),
        "client": ("127.0.0.1", 50_000),
        "method": method,
        "root_path": "",
        "path": unquote_to_bytes(path).decode("utf-8", "replace"),
        "raw_path": path.encode("utf-8", "surrogateescape"),
        "query_string": query.encode(),
        "headers": [(name.encode(), value.encode("latin-1")) for name, value in headers],
        "state": {},
    }
    waiting = [
        {"type": "http.request", "body": chunk, "more_body": number < len(chunks)}
        for number, chunk in enumerate(chunks, 1)
    ]
    waiting = waiting or [{"type": "http.request", "body": b"", "more_body": False}]
    answer = Answer()
    is_done = asyncio.Event()

    async def receive() -> Any:
        if waiting:
            return waiting.pop(0)
        await is_done.wait()
        return {"type": "http.disconnect"}

    async def take(message: Any) -> None:
        if message["type"] == "http.response.start":
            answer.status = message["status"]
            answer.headers = [(k.decode(), v.decode()) for k, v in message["headers"]]
        else:
            answer.body += message.get("body", b"")
            if not message.get("more_body", False):
                is_done.set()

    await app(scope, receive, take)
    return answer
