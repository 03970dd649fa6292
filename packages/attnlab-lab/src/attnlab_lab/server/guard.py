"""The guard in front of every route: who asks, from which page, and how much.

Any web page in the user's browser can reach a port of this machine, and so can other users of it.
So a request is answered only if it names this host exactly, carries the cookie that the one-time
address was swapped for, and comes from this page itself. All of that is decided before routing.
"""

import asyncio
import hmac
import json
import logging
import secrets
from collections.abc import Iterable
from typing import NoReturn

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from attnlab_lab.server.refusals import refusal

MOST_BODY = 2**20
MOST_HEADERS = 2**14
DEEPEST = 32
"""The levels of lists and objects that JSON of a request may have."""
BODY_SECONDS = 30.0

HEADERS = {
    b"content-security-policy": (
        b"default-src 'self'; worker-src 'self' blob:; img-src 'self' data:; object-src 'none'; "
        b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    b"x-content-type-options": b"nosniff",
    b"cross-origin-resource-policy": b"same-origin",
    b"cross-origin-opener-policy": b"same-origin",
    b"referrer-policy": b"no-referrer",
    b"cache-control": b"no-store",
}
"""Headers of every answer; a route may give a policy of its own."""
MISTAKE = "the lab made a mistake; its terminal shows which."
NEW_ADDRESS = "In the terminal where attnlab lab runs, press Enter: it shows a new address."

_log = logging.getLogger(__name__)


class RequestRefused(Exception):
    """A request that is not answered: its status and a sentence."""

    def __init__(self, status: int, sentence: str, headers: dict[bytes, bytes] | None = None):
        super().__init__(sentence)
        self.status, self.headers = status, headers or {}


class AccessKeys:
    """The secrets of one start: a token that opens the page once, and the cookie it is swapped for.

    Browsers send the cookies of one port to all ports of a host, so the port is in the name.
    """

    def __init__(self, port: int) -> None:
        self._session = secrets.token_urlsafe(32).encode()
        self._name = f"attnlab-{port}".encode()
        self._used_token = ""
        self.renew()

    def renew(self) -> None:
        """Make a new token, for one more browser; the token before it opens nothing anymore."""
        self.token = secrets.token_urlsafe(32)

    def is_known(self, cookies: Iterable[bytes]) -> bool:
        """Is the session's cookie among those of a request?"""
        for cookie in b";".join(cookies).split(b";"):
            name, _, value = cookie.strip().partition(b"=")
            if name == self._name and hmac.compare_digest(value, self._session):
                return True
        return False

    def swap(self, token: bytes) -> dict[bytes, bytes]:
        """Return the header that sets the cookie for the token, which then is used up.

        Raises:
            RequestRefused: another token, or the second use of it.
        """
        current = self.token
        is_right = hmac.compare_digest(token, current.encode())
        if not is_right or current == self._used_token:
            raise RequestRefused(
                403,
                "this address opens the lab only once, in the browser that used it first. "
                f"{NEW_ADDRESS}",
            )
        self._used_token = current
        cookie = b"%s=%s; Path=/; HttpOnly; SameSite=Strict" % (self._name, self._session)
        return {b"set-cookie": cookie}


class Guard:
    """An ASGI app around another that lets only this page's requests through."""

    def __init__(self, app: ASGIApp, port: int, keys: AccessKeys) -> None:
        self._app, self._keys = app, keys
        self._hosts = {f"{name}:{port}".encode() for name in ("127.0.0.1", "localhost")}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        has_begun = False

        async def answer(message: Message) -> None:
            nonlocal has_begun
            if message["type"] == "http.response.start":
                has_begun = True
                headers = {**HEADERS, **{name.lower(): value for name, value in message["headers"]}}
                message = {**message, "headers": list(headers.items())}
            await send(message)

        try:
            self._check(scope)
            body = await _read_body(scope, receive)
            await self._app(scope, _replayed(body, receive), answer)
            return
        except RequestRefused as error:
            refused = error
        except Exception:  # no trace of it leaves this process
            _log.exception("the lab made a mistake")
            refused = RequestRefused(500, MISTAKE)
        if not has_begun:  # it closes: what is left of the body is not read
            answer_page = refusal(str(refused), refused.status, scope)
            answer_page.raw_headers += [(b"connection", b"close"), *refused.headers.items()]
            await answer_page(scope, receive, answer)

    def _check(self, scope: Scope) -> None:
        """Raise `RequestRefused` unless the request comes from this page, or opens it."""
        self._check_form(scope)
        is_page = _is_navigation(scope)
        if not is_page:
            _check_origin(scope)
        is_known = self._keys.is_known(_values(scope, b"cookie"))
        query = scope["query_string"]
        if is_page and scope["path"] == "/" and query.startswith(b"token="):
            cookie = {} if is_known else self._keys.swap(query.removeprefix(b"token="))
            raise RequestRefused(303, "open / without the token.", {b"location": b"/", **cookie})
        if not is_known:
            raise RequestRefused(
                403, f"this browser has not opened the lab's one-time address yet. {NEW_ADDRESS}"
            )

    def _check_form(self, scope: Scope) -> None:
        """Raise `RequestRefused` for a request that is too large, for another host, or unknown."""
        size = sum(len(name) + len(value) + 4 for name, value in scope["headers"])
        size += len(scope["raw_path"]) + len(scope["query_string"])
        if size > MOST_HEADERS:
            sizes = f"{MOST_HEADERS:,} bytes; these take {size:,}"
            raise RequestRefused(431, f"an address and its headers may take {sizes}.")
        hosts = _values(scope, b"host")
        if len(hosts) != 1 or hosts[0] not in self._hosts:
            raise RequestRefused(
                400, "the lab answers to the address that its terminal shows, no other."
            )
        if not scope["raw_path"].startswith(b"/"):
            raise RequestRefused(400, "the lab is no proxy: ask it for a path.")
        if scope["method"] not in ("GET", "POST"):
            raise RequestRefused(405, f"the lab takes GET and POST; got {scope['method'][:20]}.")


def _is_navigation(scope: Scope) -> bool:
    """Is this a plain navigation of the user's to a page, from nowhere or from this page?"""
    is_page = scope["path"] == "/" or scope["path"].startswith("/runs/")
    return (
        is_page
        and scope["method"] == "GET"
        and not _values(scope, b"origin")
        and {b"none", b"same-origin"}.issuperset(_values(scope, b"sec-fetch-site"))
        and {b"navigate"}.issuperset(_values(scope, b"sec-fetch-mode"))
    )


def _check_origin(scope: Scope) -> None:
    """Raise `RequestRefused` unless the browser says that this very page asks."""
    [host] = _values(scope, b"host")
    origins, sites = _values(scope, b"origin"), _values(scope, b"sec-fetch-site")
    is_foreign = any(origin != b"http://" + host for origin in origins)
    is_foreign = is_foreign or any(site != b"same-origin" for site in sites)
    if is_foreign or not (origins or sites):
        raise RequestRefused(403, "only the lab's own page may ask this.")


async def _read_body(scope: Scope, receive: Receive) -> bytes:
    """Read the JSON of a request, and check it before anything is made of it."""
    lengths = _values(scope, b"content-length")
    if scope["method"] == "GET":
        if _values(scope, b"transfer-encoding") or not {b"0"}.issuperset(lengths):
            raise RequestRefused(400, "a GET has no body.")
        return b""
    kind = b"".join(_values(scope, b"content-type")).lower().replace(b" ", b"")
    if kind not in (b"application/json", b"application/json;charset=utf-8"):
        raise RequestRefused(415, "send JSON, with content-type: application/json.")
    too_much = RequestRefused(413, f"a request may take {MOST_BODY:,} bytes; this one takes more.")
    if max(map(int, lengths), default=0) > MOST_BODY:
        raise too_much
    body = await _read_all(receive, too_much)
    _check_json(body)
    return body


async def _read_all(receive: Receive, too_much: RequestRefused) -> bytes:
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            while True:
                message = await receive()
                body += message.get("body", b"")
                if len(body) > MOST_BODY:
                    raise too_much
                if not message.get("more_body", False):
                    return bytes(body)
    except TimeoutError:
        raise RequestRefused(
            408, f"the request did not arrive in {BODY_SECONDS:g} seconds."
        ) from None


def _check_json(body: bytes) -> None:
    """Raise `RequestRefused` for no JSON, JSON that is too deep, a NaN or half a character."""
    try:
        value = json.loads(body, parse_constant=_refuse_constant)
        json.dumps(value, ensure_ascii=False).encode()  # half a character has no UTF-8
    except (ValueError, RecursionError) as error:
        raise RequestRefused(400, f"this is no JSON: {str(error)[:80].rstrip('.')}.") from None
    if _is_deeper(value, DEEPEST):
        raise RequestRefused(400, f"JSON may be {DEEPEST} levels deep; this is deeper.")


def _is_deeper(value: object, levels: int) -> bool:
    """Has JSON more than so many levels?"""
    if isinstance(value, dict):
        value = list(value.values())
    if not isinstance(value, list):
        return levels == 0
    return levels == 0 or any(_is_deeper(item, levels - 1) for item in value)


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number")


def _values(scope: Scope, name: bytes) -> list[bytes]:
    return [value for key, value in scope["headers"] if key == name]


def _replayed(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that gives a body that was read already, and then what comes."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return messages.pop() if messages else await receive()

    return again
