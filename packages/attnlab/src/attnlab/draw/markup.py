"""Pages from Jinja templates, with every value escaped and a strict content security policy.

All parts of a page are written into it, so it opens from disk and makes no request.
"""

import base64
import hashlib
import json
import math
import re
from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import Any

from jinja2 import ChoiceLoader, Environment, FunctionLoader, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from attnlab.display import plural
from attnlab.draw.bundle import bundle
from attnlab.draw.colors import color_css
from attnlab.draw.json_form import kinds_of, without_nan
from attnlab.draw.section import Section

__all__ = ["escape", "make_page", "plural", "to_embedded_json"]


def make_page(template: str, styles: Sequence[str], module: str, **values: Any) -> str:
    """Fill a template, with its styles and the bundle of a module inlined.

    Files are named by their path below `draw/`, styles in `report/` by their name.

    The content security policy allows the hashes of exactly that style and that script.
    """
    style = "\n".join(["", color_css(), *map(_asset, styles)])
    script = "\n" + _script(f"attnlab/draw/{module}")
    policy = (
        f"default-src 'none'; script-src {_hash_of(script)}; style-src {_hash_of(style)}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    page = (
        _templates()
        .get_template(template)
        .render(values, policy=Markup(policy), style=Markup(style), script=Markup(script))
    )
    # A lone surrogate cannot be written to a file; the reader sees "?" instead of an exception.
    return page.encode("utf-8", "replace").decode("utf-8")


def _template_of(name: str) -> str | None:
    """Return the template that a kind of section brings along, by the name it would have."""
    kind = name.removeprefix("report/").removesuffix(".html")
    template: str = getattr(kinds_of(Section).get(kind), "template", "")
    return template or None


_script = cache(bundle)


@cache
def _templates() -> Environment:
    templates = Environment(
        loader=ChoiceLoader([PackageLoader("attnlab", "draw"), FunctionLoader(_template_of)]),
        autoescape=True,
        finalize=shown_value,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    templates.filters |= {"plural": plural, "paragraphs": paragraphs}
    return templates


def shown_value(value: Any) -> Any:
    """Return what a page shows for a scalar.

    >>> shown_value(None), shown_value(True), shown_value(0.1234567), shown_value(12)
    ('n/a', 'yes', '0.123457', 12)
    """
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return "n/a"
    if value is True:
        return "yes"
    if value is False:
        return "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    return value


def paragraphs(text: str) -> list[Markup]:
    """Split a text at blank lines; text between backticks is code that does not wrap.

    >>> paragraphs("Run `attnlab doctor`.")
    [Markup('Run <code class="command">attnlab doctor</code>.')]
    """
    parts = [part.strip() for part in text.replace("\r\n", "\n").split("\n\n")]
    code = r'<code class="command">\1</code>'
    return [Markup(re.sub(r"`([^`\n]+)`", code, str(escape(part)))) for part in parts if part]


def _asset(name: str) -> str:
    if "/" not in name:
        name = f"report/{name}"
    return (resources.files("attnlab.draw") / name).read_text(encoding="utf-8")


def _hash_of(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def to_embedded_json(value: Any) -> Markup:
    """Encode for a `<script type="application/json">` block, which no string inside can close.

    >>> to_embedded_json(["</script>", float("nan")])
    Markup('["\\\\u003c/script\\\\u003e",null]')
    """
    text = json.dumps(without_nan(value), allow_nan=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))
