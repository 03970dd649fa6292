"""Refusals: JSON for the lab's own page, and a page for a person who opened an address."""

import base64
import hashlib
import html
import json

from starlette.responses import Response
from starlette.types import Scope

_STYLE = (
    "body { font: 1.125rem/1.5 system-ui, sans-serif; "
    "max-width: 36rem; margin: 15vh auto; padding: 0 1rem }"
)
_SENTENCE = "{{ sentence }}"
_PAGE = f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>attnlab lab</title>
<link rel="icon" href="data:,">
<style>{_STYLE}</style>
</head>
<body><main><h1>attnlab lab</h1><p>{_SENTENCE}</p></main></body>
</html>
"""
_STYLE_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_POLICY = (
    f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; img-src data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)


def refusal(sentence: str, status: int, scope: Scope | None = None) -> Response:
    """Answer a request with a sentence and a status.

    scope: the request, where it is known; a browser that opens an address gets a page.
    """
    if scope is None or not _opens_page(scope):
        return Response(json.dumps({"error": sentence}), status, media_type="application/json")
    page = _PAGE.replace(_SENTENCE, html.escape(sentence[:1].upper() + sentence[1:]))
    return Response(page, status, {"content-security-policy": _POLICY}, "text/html")


def _opens_page(scope: Scope) -> bool:
    """Does a browser ask for a page to show, rather than a script for an answer?"""
    headers = dict(scope["headers"])
    mode, accepted = headers.get(b"sec-fetch-mode"), headers.get(b"accept", b"")
    is_page = b"text/html" in accepted if mode is None else mode == b"navigate"
    return bool(scope["method"] == "GET" and is_page)
