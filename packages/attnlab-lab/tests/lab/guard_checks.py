"""Checks of the guard: they hold, and planted faults make them fail."""

import json
import re
from collections.abc import Iterator, Sequence
from itertools import cycle, product
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from .asgi import HOST, PORT, Page

PAGES = ("/", "/runs/one/report.html")
KINDS = [*(("GET", path) for path in (*PAGES, "/api/runs")), ("POST", "/api/jobs")]

HOSTS: list[list[str]] = [
    *([each] for each in (
        "evil.example", f"evil.example:{PORT}", "127.0.0.1", "localhost", f"{HOST}.", f"{HOST}:80",
        f"127.0.0.1.:{PORT}", f"localhost.:{PORT}", f"127.0.0.1.evil.example:{PORT}",
        f"localhost.evil.example:{PORT}", f"evil127.0.0.1:{PORT}", f"evillocalhost:{PORT}",
        f"127.0.0.1:{PORT}0", f"127.0.0.1:{PORT - 1}", f"127.0.0.1:0{PORT}", f"127.0.0.1:+{PORT}",
        "127.0.0.1:", "127.0.0.1:http", f"user@{HOST}", f"{HOST}@evil.example", f"u:p@{HOST}",
        f"0.0.0.0:{PORT}", f"[::1]:{PORT}", "[::1]", f"[::ffff:127.0.0.1]:{PORT}",
        f"2130706433:{PORT}", f"0x7f000001:{PORT}", f"017700000001:{PORT}", f"127.1:{PORT}",
        f"LOCALHOST:{PORT}", f"LocalHost:{PORT}", f"localhost:{PORT} ", f" {HOST}", f"{HOST}/",
        f"{HOST}#", f"{HOST}?", f"http://{HOST}", f"{HOST},evil.example", f"127.0.0.1%00:{PORT}",
        "",
    )),
    [], [HOST, "evil.example"], ["evil.example", HOST], [HOST, HOST],
]  # fmt: skip

FOREIGN: list[dict[str, str | None]] = [
    {"origin": None, "sec_fetch_site": None},
    {"origin": None, "sec_fetch_site": None, "referer": f"http://{HOST}/"},
    {"origin": "null", "sec_fetch_site": None},
    {"origin": "null"},
    {"origin": "http://evil.example", "sec_fetch_site": "cross-site"},
    {"origin": "http://evil.example", "referer": f"http://{HOST}/"},
    {"origin": f"http://{HOST}.evil.example"},
    {"origin": f"http://evil.example/{HOST}"},
    {"origin": f"http://127.0.0.1:{PORT + 1}", "sec_fetch_site": "same-site"},
    {"origin": "http://127.0.0.1"},
    {"origin": f"https://{HOST}"},
    {"origin": f"http://localhost:{PORT}"},
    {"sec_fetch_site": "same-site"},
    {"origin": None, "sec_fetch_site": "cross-site"},
    {"origin": None, "sec_fetch_site": "none"},
    {"origin": None, "sec_fetch_site": "same-origin, cross-site"},
]

WANTED = {
    "x-content-type-options": "nosniff",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}


def plain(method: str) -> dict[str, Any]:
    return {"body": {}} if method == "POST" else {}


def routes_of(page: Page) -> list[tuple[str, str]]:
    words = {"file": "lab.js", "name": "one", "member": "0", "wish": "pause", "what": "open"}
    return [
        (method, route.path.format(**words))
        for route in page.app.routes
        for method in sorted(route.methods - {"HEAD"})
    ]


def at_routes(page: Page, cases: Sequence[Any]) -> Iterator[tuple[str, str, Any]]:
    """Yield every case at each kind of route, and every route with one of the cases."""
    each_route = zip(routes_of(page), cycle(cases), strict=False)
    for (method, path), case in [*product(KINDS, cases), *each_route]:
        yield method, path, case


def check_hosts(page: Page) -> None:
    for method, path, names in at_routes(page, HOSTS):
        headers = page.own(host=None) + [("host", name) for name in names]
        answer = page.ask(method, path, headers=headers, **plain(method))
        assert answer.status == 400, (path, names, answer)
        assert "address that its terminal shows" in answer.error
    localhost = page.own(host=f"localhost:{PORT}", origin=None)
    assert page.ask("GET", "/api/runs", headers=localhost).status == 200


def check_foreign_pages(page: Page) -> None:
    for method, path, changes in at_routes(page, FOREIGN):
        if path in PAGES:
            changes = {"origin": None, **changes}
            if changes["origin"] is None and changes.get("sec_fetch_site", "") in (None, "none"):
                continue  # a person who types the address
        answer = page.ask(method, path, headers=page.own(**changes), **plain(method))
        assert answer.status == 403, (method, path, changes, answer)
        assert "only the lab's own page" in answer.error


def check_strangers(page: Page) -> None:
    name, _, value = page.cookie.partition("=")
    strangers = [f"{name}=", f"{name}={value[:-1]}", f"x{name}={value}", f"{name}={value}x"]
    strangers += [f"{name}2={value}", f"{name}={page.keys.token}", "", value]
    for method, path, cookie in at_routes(page, [None, *strangers]):
        answer = page.ask(method, path, headers=page.own(cookie=cookie), **plain(method))
        assert answer.status == 403, (cookie, path)
        if path in PAGES:
            visit = page.own(cookie=cookie, origin=None, sec_fetch_site="none")
            assert page.ask("GET", path, headers=visit).status == 403, (cookie, path)
    spread = [*page.own(cookie=f"a=b; {page.cookie} ;c=d"), ("cookie", "e=f")]
    assert page.ask("GET", "/api/runs", headers=spread).status == 200


def check_one_time_address(page: Page) -> None:
    fresh = type(page.keys)(PORT)
    page.guard._keys = fresh
    visit = [("host", HOST), ("sec-fetch-site", "none"), ("sec-fetch-mode", "navigate")]
    for wrong in ("", fresh.token[:-1], fresh.token + "x", "%00", "é"):
        assert page.ask("GET", f"/?token={wrong}", headers=visit).status == 403
    foreign = [("host", HOST), ("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate")]
    assert page.ask("GET", f"/?token={fresh.token}", headers=foreign).status == 403
    assert page.ask("GET", f"/lab.js?token={fresh.token}", headers=visit).status == 403
    first = page.ask("GET", f"/?token={fresh.token}", headers=visit)
    assert (first.status, first.header("location")) == (303, "/")
    cookie, _, attributes = (first.header("set-cookie") or "").partition("; ")
    assert attributes == "Path=/; HttpOnly; SameSite=Strict"
    assert re.fullmatch(rf"attnlab-{PORT}=[\w-]{{43}}", cookie)
    assert fresh.token not in cookie
    assert page.ask("GET", f"/?token={fresh.token}", headers=visit).status == 403
    again = page.ask("GET", f"/?token={fresh.token}", headers=[*visit, ("cookie", cookie)])
    assert (again.status, again.header("set-cookie")) == (303, None)
    assert page.ask("GET", "/", headers=[*visit, ("cookie", cookie)]).status == 200
    used = fresh.token
    fresh.renew()
    assert page.ask("GET", f"/?token={used}", headers=visit).status == 403
    second = page.ask("GET", f"/?token={fresh.token}", headers=visit)
    assert (second.status, second.header("set-cookie")) == (303, first.header("set-cookie"))


NAVIGATION = {"origin": None, "sec_fetch_site": "none", "sec_fetch_mode": "navigate"}
OLD_BROWSER = {"origin": None, "sec_fetch_site": None, "accept": "text/html,*/*;q=0.8"}


def check_refusals_are_pages_for_people(page: Page) -> None:
    used, none = f"/?token={page.keys.token}", "/runs/<b>none/report.html"
    cases = [
        (used, {"cookie": None}, 403, "press Enter: it shows a new address"),
        ("/", {"cookie": None}, 403, "press Enter: it shows a new address"),
        ("/", {"host": "evil.example"}, 400, "The lab answers to the address"),
        (none, {}, 404, "There is no run &#x27;&lt;b&gt;none"),
    ]
    for target, changes, status, words in cases:
        for browser in (NAVIGATION, OLD_BROWSER):
            answer = page.ask("GET", target, headers=page.own(**{**browser, **changes}))
            assert answer.status == status, (target, answer)
            assert (answer.header("content-type") or "").startswith("text/html")
            text = answer.body.decode()
            assert words in text
            assert "<b>" not in text
            policy = answer.header("content-security-policy") or ""
            assert policy.startswith("default-src 'none'; style-src 'sha256-")
            assert "frame-ancestors 'none'" in policy
        script = page.own(**changes, sec_fetch_mode="cors", accept="text/html")
        told = page.ask("GET", target, headers=script)
        assert list(json.loads(told.body)) == ["error"]


def break_one_run(patch: Any, page: Page) -> None:
    """Let the run `broken` end in a mistake of the server's own."""
    patch.setattr("attnlab_lab.server.app.read_config", lambda folder: 1 / 0)
    (page.runs / "broken").mkdir()
    (page.runs / "broken" / "config.json").write_text("{}")


def check_headers(page: Page) -> None:
    statuses = set()
    requests: list[tuple[str, str, dict[str, Any]]] = [
        *(
            (method, path, plain(method))
            for method, path in routes_of(page)
            if "experiments" not in path
        ),
        ("GET", "/nothing", {}),
        ("GET", "/api/nothing/at/all", {}),
        ("POST", "/", {"body": {}}),
        ("PUT", "/api/jobs", {}),
        ("OPTIONS", "/api/jobs", {}),
        ("GET", "/", {"headers": [("host", "evil")]}),
        ("GET", "/", {"headers": [("host", HOST)]}),
        ("POST", "/api/ask", {"chunks": [b"{"]}),
        ("POST", "/api/ask", {"headers": page.own(content_type="text/plain"), "body": {}}),
        ("GET", "/api/runs/broken", {}),
    ]
    for method, path, more in requests:
        answer = page.ask(method, path, **more)
        statuses.add(answer.status)
        found = dict(answer.headers)
        assert WANTED.items() <= found.items(), (method, path, answer)
        policy = found["content-security-policy"]
        assert "frame-ancestors 'none'" in policy
        assert policy.startswith(("default-src 'self';", "sandbox allow-scripts;"))
        assert ("unsafe" in policy) == ("/report.html" in path and answer.status == 200)
        assert "unsafe-eval" not in policy
        assert not any(name.startswith("access-control-") for name in found)
        assert "server" not in found
        if answer.status >= 400:
            assert list(json.loads(answer.body)) == ["error"]
            assert "Traceback" not in answer.error
    assert {200, 400, 403, 404, 405, 415, 422, 500} <= statuses


def check_sizes(page: Page) -> None:
    limit = 2**20
    text = b'{"a": "' + b"x" * (limit - 9) + b'"}'
    assert len(text) == limit
    assert page.ask("POST", "/api/ask", chunks=[text]).status == 422
    assert page.ask("POST", "/api/ask", chunks=[text + b" "]).status == 413
    pieces = [text[at : at + 2**16] for at in range(0, limit, 2**16)]
    assert page.ask("POST", "/api/ask", chunks=pieces).status == 422
    endless = [b"[" * 2**16] * 1_000
    assert page.ask("POST", "/api/ask", chunks=endless).status == 413
    announced = [*page.own(), ("content-length", str(limit + 1))]
    assert page.ask("POST", "/api/ask", headers=announced, chunks=[]).status == 413
    large = [*page.own(), ("x-large", "x" * 16_384)]
    assert page.ask("GET", "/api/runs", headers=large).status == 431
    assert page.ask("GET", f"/?{'x' * 16_400}").status == 431
    many = [*page.own(), *[("range", "bytes=0-1")] * 5_000]
    assert page.ask("GET", "/", headers=many).status == 431
    for length in ("1", "00", "0, 1"):
        body = [*page.own(), ("content-length", length)]
        assert page.ask("GET", "/api/runs", headers=body).status == 400
    chunked = [*page.own(), ("transfer-encoding", "chunked")]
    assert page.ask("GET", "/api/runs", headers=chunked).status == 400


def check_json(page: Page) -> None:
    def nested(depth: int, left: bytes = b"[", right: bytes = b"]") -> bytes:
        return left * depth + right * depth

    assert page.ask("POST", "/api/ask", chunks=[nested(32)]).status == 422
    for content in (
        nested(33),
        nested(1_000),
        nested(500_000),
        nested(33, b'{"a":', b"}").replace(b":}", b":1}"),
        b'{"run": "one", "input": NaN}',
        b'{"run": "one", "input": Infinity}',
        b'{"run": "one", "input": "\\ud800"}',
        b"\xff\xfe",
        b"",
        b"run=one",
        b"1" * 5_000,
    ):
        answer = page.ask("POST", "/api/ask", chunks=[content])
        assert answer.status == 400, content[:40]
    assert page.ask("POST", "/api/ask", chunks=[b"[%s1]" % (b"1," * 400_000)]).status == 422
    for kind in (None, "text/plain", "application/x-www-form-urlencoded", "application/jsonx",
                 "multipart/form-data; boundary=application/json", "text/json"):  # fmt: skip
        headers = page.own(content_type=kind)
        assert page.ask("POST", "/api/ask", headers=headers, body={}).status == 415
    spaced = page.own(content_type="Application/JSON; charset=UTF-8")
    assert page.ask("POST", "/api/ask", headers=spaced, body={}).status == 422


def check_methods(page: Page) -> None:
    for method in ("PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "TRACE", "CONNECT", "get"):
        assert page.ask(method, "/api/jobs").status == 405
    for target in ("http://evil.example/", f"http://{HOST}/api/runs", "*", "api/runs"):
        assert page.ask("GET", target).status == 400


STEPS = (
    "..",
    "%2e%2e",
    "%252e%252e",
    "..%2f..",
    "..%5c..",
    "..\\..",
    ".%00",
    "%c0%ae%c0%ae",
    "．．",
)


def payloads(outside: str) -> Iterator[str]:
    """Yield 1,300 ways to name a file outside the folder of runs, the worst first."""
    yield from ("link", "link/", "link%2f", outside, f"/{outside}", f"file://{outside}", "%2f%2f")
    yield from (
        outside.replace("/", "%2f"),
        outside.replace("/", "\\"),
        "C:\\Windows",
        "~",
        "~root",
    )
    yield from ("%00", "one%00", "one/", "one/.", "./one", "one%2f", " one", "ONE", ".", "..")
    yield from (".jobs", "ü" * 255, "one%20", "ｏｎｅ", "%6fne/../one", "CON", "x" * 5_000)
    yield from ("%f0%28%8c%28", "%ff", "\x7f")
    names = ("outside", "runs-sibling", "link", "one/../../outside", "one\\..\\..\\outside")
    ends = ("", "%00", "#", "?", ".json", "/.")
    for step, depth, name, end in product(STEPS, range(1, 6), names, ends):
        yield f"{'/'.join([step] * depth)}/{name}{end}"


OURS = {"/lab.js", "/api/runs/one", "/runs/one/report.html"}


def check_paths(page: Page, stride: int = 13) -> None:
    """Name a file outside in every parameter of a path, and in every field that names a run."""
    found = list(payloads(str(page.runs.parent / "outside")))
    routes = [route for route in page.app.routes if "{" in route.path]
    templates = [(method, each.path) for each in routes for method in each.methods - {"HEAD"}]
    assert len(templates) == 9
    before = snapshot(page.runs.parent)
    for name in [*found[:36], *found[36::stride]]:
        for method, template in templates:
            path = re.sub(r"\{\w+\}", lambda _: name, template)  # noqa: B023
            answer = page.ask(method, path, **plain(method))
            assert b"CANARY" not in answer.body, path
            assert answer.status >= 400 or path.rstrip("?#") in OURS, (path, answer)
            assert answer.status != 500, path
        decoded = unquote(name)
        for path, body in (
            ("/api/ask", {"run": decoded, "input": "cab"}),
            ("/api/jobs", {"experiment": decoded}),
            ("/api/models/open", {"model": decoded[:1_000]}),
        ):
            answer = page.ask("POST", path, body=body)
            assert answer.status in (400, 404, 409, 422), (path, body, answer)
            assert b"CANARY" not in answer.body
    assert snapshot(page.runs.parent) == before


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
