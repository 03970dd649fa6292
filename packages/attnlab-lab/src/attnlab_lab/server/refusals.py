"""Refusals: JSON for the lab's own page, and a page for a person who opened an address."""

import base64
import hashlib
import html
import json
from functools import cache
from importlib import resources

from starlette.responses import Response
from starlette.types import Scope


@cache
def _page() -> tuple[str, str]:
    """Return the page around a sentence, and the content policy that allows its style alone."""
    page = (resources.files("attnlab_lab") / "refusal.html").read_text(encoding="utf-8")
    style = page.partition("<style>")[2].partition("</style>")[0]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return page, (
        f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'"
    )


def refusal(sentence: str, status: int, scope: Scope | None = None) -> Response:
    """Answer a request with a sentence and a status.

    scope: the request, where it is known; a browser that opens an address gets a page.
    """
    if scope is None or not _opens_page(scope):
        return Response(json.dumps({"error": sentence}), status, media_type="application/json")
    page, policy = _page()
    page = page.replace("{{ sentence }}", html.escape(sentence[:1].upper() + sentence[1:]))
    return Response(page, status, {"content-security-policy": policy}, "text/html")


def _opens_page(scope: Scope) -> bool:
    """Does a browser ask for a page to show, rather than a script for an answer?"""
    headers = dict(scope["headers"])
    mode, accepted = headers.get(b"sec-fetch-mode"), headers.get(b"accept", b"")
    is_page = b"text/html" in accepted if mode is None else mode == b"navigate"
    return bool(scope["method"] == "GET" and is_page)
