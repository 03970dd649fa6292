"""Figures that carry themselves: a JSON value inside a PNG, SVG or HTML file.

In a PNG it is an iTXt chunk of the name "attnlab" before the end, in an SVG a `<metadata>` element
of that id, in a page a `<script>`. The lab's page writes and reads the first two likewise
(`lab/parts/carried.js`).
"""

import html
import json
import re
import zlib
from collections.abc import Iterator
from typing import Any

from attnlab.core.store import JsonObject
from attnlab.draw.json_form import without_nan
from attnlab.errors import CouldNotRun

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_HEAD = b"attnlab\0\0\0\0\0"  # keyword, not compressed, no language, no translated keyword
_SVG = re.compile(r'<metadata id="attnlab">(.*?)</metadata>', re.DOTALL)
_PAGE = re.compile(r'<script type="application/json" id="attnlab">(.*?)</script>', re.DOTALL)
_OPENING = re.compile(r"<svg\b[^>]*>")


def carry(content: bytes, kind: str, value: Any) -> bytes:
    """Return the bytes of a "png" or "svg" figure with a value inside."""
    text = json.dumps(without_nan(value), allow_nan=False, separators=(",", ":"))
    if kind == "png":
        end = content.rindex(b"IEND") - 4
        return content[:end] + _chunk(b"iTXt", _HEAD + text.encode()) + content[end:]
    element = f'\n<metadata id="attnlab">{html.escape(text, quote=False)}</metadata>'
    return _OPENING.sub(lambda match: match[0] + element, content.decode(), count=1).encode()


def carried_in(content: bytes) -> JsonObject | None:
    """Return what a PNG, SVG or HTML file carries; None for one that carries nothing.

    Raises:
        CouldNotRun: the file is cut off, or what it carries is no JSON object.
    """
    text = _text_in(content)
    if text is None:
        return None
    value = json.loads(text)
    if not isinstance(value, dict):
        raise CouldNotRun("what the figure carries is no JSON object.")
    return value


def _text_in(content: bytes) -> str | bytes | None:
    if content.startswith(_SIGNATURE):
        chunks = list(_chunks(content))  # all of them are checked
        texts = [data for kind, data in chunks if kind == b"iTXt" and data.startswith(_HEAD)]
        return texts[0][len(_HEAD) :] if texts else None
    text = content.decode("utf-8")
    if match := _SVG.search(text):
        return html.unescape(match[1])
    if match := _PAGE.search(text):
        return match[1]
    return None


def _chunk(kind: bytes, data: bytes) -> bytes:
    check = zlib.crc32(kind + data).to_bytes(4, "big")
    return len(data).to_bytes(4, "big") + kind + data + check


def _chunks(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = len(_SIGNATURE)
    while at < len(content):
        size = int.from_bytes(content[at : at + 4], "big")
        kind, data = content[at + 4 : at + 8], content[at + 8 : at + 8 + size]
        if content[at : at + 12 + size] != _chunk(kind, data):
            raise CouldNotRun("the PNG file is cut off or damaged.")
        yield kind, data
        at += 12 + size
