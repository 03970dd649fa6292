"""HTML by hand: escaping, data blocks, and pages with a strict content security policy.

All parts of a page are written into it, so it opens from disk and makes no request.
"""

import base64
import hashlib
import html
import json
import math
import posixpath
import re
from collections.abc import Mapping, Sequence
from importlib import resources
from string import Template
from typing import Any

__all__ = ["escape", "make_page", "modules_from", "plural", "to_embedded_json"]

_IMPORT = re.compile(r'^import .* from "(\.[^"]+)";$', re.MULTILINE)
_IMPORTS_AND_EXPORTS = re.compile(
    r'^(?:import .* from "\.[^"]+";\n|export (?=(?:async )?function|const|let|class))', re.MULTILINE
)


def make_page(
    template: str, styles: Sequence[str], scripts: Sequence[str], parts: Mapping[str, str]
) -> str:
    """Fill a template, with its styles and scripts inlined in the order given.

    Files are named by their path below `draw/`, those in `report/` by their name. Scripts may be ES
    modules: joined into one script, they need neither imports nor exports.

    The content security policy allows the hashes of exactly that style and that script.
    """
    style = "\n" + "\n".join(map(_asset, styles))
    script = "\n" + "\n".join(map(_asset, scripts))
    policy = (
        f"default-src 'none'; script-src {_hash_of(script)}; style-src {_hash_of(style)}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    page = Template(_asset(template)).substitute(parts, policy=policy, style=style, script=script)
    # A lone surrogate cannot be written to a file; the reader sees "?" instead of an exception.
    return page.encode("utf-8", "replace").decode("utf-8")


def _asset(name: str) -> str:
    place = resources.files("attnlab.draw") / (name if "/" in name else f"report/{name}")
    text = place.read_text(encoding="utf-8")
    return _IMPORTS_AND_EXPORTS.sub("", text) if name.endswith(".js") else text


def modules_from(entry: str) -> list[str]:
    """List an ES module and everything it imports, dependencies first.

    Names are paths below `draw/`. Joined in this order they are one script, if no two of them
    declare the same name at the top; imports are written on one line, from "./" or "../".
    """
    found: list[str] = []

    def visit(name: str) -> None:
        if name in found:
            return
        text = (resources.files("attnlab.draw") / name).read_text(encoding="utf-8")
        for path in _IMPORT.findall(text):
            visit(posixpath.normpath(posixpath.join(posixpath.dirname(name), path)))
        found.append(name)

    visit(entry)
    return found


def _hash_of(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def escape(value: Any) -> str:
    """Write a scalar as HTML text or for a double-quoted attribute.

    >>> escape('<a href="x">'), escape(None), escape(True), escape(0.1234567)
    ('&lt;a href=&quot;x&quot;&gt;', 'n/a', 'yes', '0.123457')
    """
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return "n/a"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    return html.escape(str(value))


def plural(count: int, noun: str) -> str:
    """Return the noun in the number that the count needs.

    >>> plural(1, "claim"), plural(2, "claim")
    ('claim', 'claims')
    """
    return noun if count == 1 else f"{noun}s"


def to_embedded_json(value: Any) -> str:
    """Encode for a `<script type="application/json">` block, which no string inside can close.

    >>> to_embedded_json(["</script>", float("nan")])
    '["\\\\u003c/script\\\\u003e",null]'
    """
    text = json.dumps(_finite(value), allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _finite(value: Any) -> Any:
    """Replace NaN and infinities, which JSON does not have, by None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return value
