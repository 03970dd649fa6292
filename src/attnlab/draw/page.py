"""The report page: a plain document in, one self-contained HTML file out.

The page makes no request at all: style, script and data are inlined, and its content security policy
admits the hashes of exactly that style and that script. Header, claims, texts and tables are rendered
here and need no JavaScript; charts, verdict cells and traces are drawn in the browser by the files in
`report/`. What is measured, and how, does not live here.
"""

import base64
import hashlib
import html
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import resources
from string import Template
from typing import Any

from attnlab.errors import WrongUsage, did_you_mean

__all__ = ["render_page"]

# Concatenated in this order into one module script: words first, then the parts, then what joins them.
_SCRIPTS = (
    "elements.js",
    "scales.js",
    "lines.js",
    "verdicts.js",
    "heatmap.js",
    "strip.js",
    "chooser.js",
    "trace.js",
    "page.js",
)
_WEIGHT_DECIMALS = 5
_LINE_DIGITS = 7

# The form of the document. "[x]" is a list of x, a key ending in "?" may be absent, a name that is neither a
# plain kind nor a list is another form of this table.
_FORMS: dict[str, dict[str, str]] = {
    "document": {
        "title": "text",
        "subtitle": "text",
        "facts": "[[scalar]]",
        "claims": "[claim]",
        "sections": "[section]",
    },
    "claim": {
        "name": "text",
        "statement": "text",
        "measured": "scalar",
        "bound": "scalar",
        "passed": "flag",
    },
    "series": {"name": "text", "x": "[number]", "y": "[number]"},
    "level": {"name": "text", "y": "number"},
    "verdict": {
        "input": "[text]",
        "output": "[text]",
        "expected": "[text]",
        "correct": "flag",
        "confidence?": "number",
    },
    "trace of one input": {
        "input": "[text]",
        "tokens": "[text]",
        "steps": "[step]",
        "attention": "[head]",
    },
    "step": {"position": "index", "candidates": "[text]", "probabilities": "[number]", "choice": "text"},
    "head": {"site": "text", "head": "index", "rows": "[[number]]", "key_tokens?": "[text]"},
}
_SECTIONS: dict[str, dict[str, str]] = {
    "text": {"kind": "text", "title": "text", "text": "text"},
    "lines": {
        "kind": "text",
        "title": "text",
        "caption": "text",
        "x_label": "text",
        "y_label": "text",
        "series": "[series]",
        "levels?": "[level]",
        "y_log?": "flag",
    },
    "table": {
        "kind": "text",
        "title": "text",
        "caption": "text",
        "columns": "[text]",
        "rows": "[[scalar]]",
    },
    "verdicts": {"kind": "text", "title": "text", "caption": "text", "items": "[verdict]"},
    "trace": {"kind": "text", "title": "text", "caption": "text", "traces": "[trace of one input]"},
}


def render_page(document: Mapping[str, Any]) -> str:
    """Render a run's document as one HTML page that opens from disk and asks the network for nothing.

    The document is plain data; numbers may be None or NaN, which the page shows as gaps and "n/a":

        {"title": str, "subtitle": str,
         "facts": [[name, value], ...],
         "claims": [{"name", "statement", "measured", "bound", "passed"}, ...],
         "sections": [
           {"kind": "text", "title", "text"},                      # blank lines part paragraphs
           {"kind": "lines", "title", "caption", "x_label", "y_label",
            "series": [{"name", "x": [...], "y": [...]}],
            "levels": [{"name", "y"}], "y_log": bool},             # levels and y_log may be absent
           {"kind": "table", "title", "caption", "columns": [str], "rows": [[str | number]]},
           {"kind": "verdicts", "title", "caption",
            "items": [{"input": [str], "output": [str], "expected": [str], "correct": bool,
                       "confidence": number}]},                    # confidence may be absent
           {"kind": "trace", "title", "caption",
            "traces": [{"input": [str], "tokens": [str],
              "steps": [{"position": int, "candidates": [str], "probabilities": [number],
                         "choice": str}],
              "attention": [{"site": str, "head": int, "rows": [[number]],
                             "key_tokens": [str]}]}]}]}            # key_tokens for cross-attention only

    In a trace, `tokens` is the whole final sequence; a step looks from query `position`, the last token known
    to it, and chooses token `position + 1`. `rows[i]` holds the weights of query i over keys 0, 1, ...; keys
    beyond the end of a row count as masked.

    Attention weights are written with 5 decimals and points of lines with 7 significant digits; the page
    says so.

    Raises:
        WrongUsage: A key is missing or unknown, a value has the wrong kind, or lengths do not agree.

    Example:
        >>> page = render_page({"title": "empty", "subtitle": "", "facts": [], "claims": [], "sections": []})
        >>> page.startswith("<!DOCTYPE html>")
        True
    """
    _check(document, "document", "document")
    for index, section in enumerate(document["sections"]):
        _check_lengths(section, f"document.sections[{index}]")

    style = "\n" + _asset("page.css")
    script = "\n" + "\n".join(_asset(name) for name in _SCRIPTS)
    page = Template(_asset("page.html")).substitute(
        policy=(
            f"default-src 'none'; script-src {_hash_of(script)}; style-src {_hash_of(style)}; "
            "img-src data:; base-uri 'none'; form-action 'none'"
        ),
        style=style,
        script=script,
        title=_escape(document["title"]),
        subtitle=_escape(document["subtitle"]),
        facts=_facts_to_html(document["facts"]),
        claims=_claims_to_html(document["claims"]),
        sections="\n".join(_section_to_html(i, s) for i, s in enumerate(document["sections"])),
        data=_to_embedded_json([_drawn_part(section) for section in document["sections"]]),
    )
    # A lone surrogate cannot be written to a file; the reader sees "?" instead of an exception.
    return page.encode("utf-8", "replace").decode("utf-8")


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


_KINDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "text": (lambda value: isinstance(value, str), "a string"),
    "flag": (lambda value: isinstance(value, bool), "True or False"),
    "number": (_is_number, "a plain number or None"),
    "index": (
        lambda value: isinstance(value, int) and not isinstance(value, bool) and value >= 0,
        "a whole number, 0 or more",
    ),
    "scalar": (lambda value: isinstance(value, str | bool) or _is_number(value), "a string or a number"),
}


def _check(value: Any, kind: str, where: str) -> None:
    """Raise `WrongUsage` unless `value` has the form `kind`; `where` names it in the message."""
    if kind in _KINDS:
        is_right, expected = _KINDS[kind]
        if not is_right(value):
            raise _unexpected(where, expected, value)
    elif kind.startswith("["):
        if not isinstance(value, list | tuple):
            raise _unexpected(where, "a list", value)
        inner = kind[1:-1]
        # Traces hold up to a million weights: pass over lists of plain values without wording their places.
        if inner in _KINDS and all(map(_KINDS[inner][0], value)):
            return
        for index, item in enumerate(value):
            _check(item, inner, f"{where}[{index}]")
    else:
        _check_keys(value, kind, where)


def _check_keys(value: Any, kind: str, where: str) -> None:
    if not isinstance(value, Mapping):
        raise _unexpected(where, f"a mapping ({kind})", value)
    if kind == "section":
        if "kind" not in value:
            raise WrongUsage(f"{where}: expected the key 'kind', got the keys {sorted(map(str, value))}")
        kind = value["kind"]
        if not isinstance(kind, str) or kind not in _SECTIONS:
            raise WrongUsage(
                f"{where}: expected a known kind of section, got {kind!r}; {did_you_mean(str(kind), _SECTIONS)}"
            )
        form = _SECTIONS[kind]
    else:
        form = _FORMS[kind]
    known = {key.rstrip("?"): inner for key, inner in form.items()}
    for key in form:
        if not key.endswith("?") and key not in value:
            raise WrongUsage(f"{where}: expected the key {key!r} in a {kind}, got the keys {sorted(map(str, value))}")
    for key, inner in value.items():
        if key not in known:
            raise WrongUsage(
                f"{where}: expected only known keys in a {kind}, got {key!r}; {did_you_mean(str(key), known)}"
            )
        _check(inner, known[key], f"{where}.{key}")


def _unexpected(where: str, expected: str, value: Any) -> WrongUsage:
    hint = "; arrays become plain values with .tolist()" if hasattr(value, "tolist") else ""
    return WrongUsage(f"{where}: expected {expected}, got {type(value).__name__} {str(value)[:60]!r}{hint}")


def _check_lengths(section: Mapping[str, Any], where: str) -> None:
    """Raise `WrongUsage` where lengths that belong together differ."""
    if section["kind"] == "lines":
        for index, series in enumerate(section["series"]):
            _check_equal(f"{where}.series[{index}]", "as many y as x", len(series["x"]), len(series["y"]))
    elif section["kind"] == "table":
        for index, row in enumerate(section["rows"]):
            _check_equal(f"{where}.rows[{index}]", "one cell per column", len(section["columns"]), len(row))
    elif section["kind"] == "trace":
        for index, trace in enumerate(section["traces"]):
            _check_trace(trace, f"{where}.traces[{index}]")


def _check_trace(trace: Mapping[str, Any], where: str) -> None:
    num_tokens = len(trace["tokens"])
    for index, step in enumerate(trace["steps"]):
        place = f"{where}.steps[{index}]"
        num_candidates = len(step["candidates"])
        _check_equal(place, "one probability per candidate", num_candidates, len(step["probabilities"]))
        if step["position"] + 1 >= num_tokens:
            raise WrongUsage(
                f"{place}.position: expected a token after it, below {num_tokens - 1}, got {step['position']}"
            )
    for index, head in enumerate(trace["attention"]):
        place = f"{where}.attention[{index}].rows"
        num_keys = len(head.get("key_tokens", trace["tokens"]))
        if len(head["rows"]) > num_tokens:
            raise WrongUsage(f"{place}: expected at most {num_tokens} rows, one per token, got {len(head['rows'])}")
        widest = max(map(len, head["rows"]), default=0)
        if widest > num_keys:
            raise WrongUsage(f"{place}: expected rows of at most {num_keys} keys, got {widest}")


def _check_equal(where: str, rule: str, expected: int, got: int) -> None:
    if expected != got:
        raise WrongUsage(f"{where}: expected {rule}, {expected}, got {got}")


def _asset(name: str) -> str:
    return (resources.files("attnlab.draw") / "report" / name).read_text(encoding="utf-8")


def _hash_of(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _escape(value: Any) -> str:
    """Word a scalar for HTML text or a double-quoted attribute."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return "n/a"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    return html.escape(str(value))


def _facts_to_html(facts: Sequence[Sequence[Any]]) -> str:
    for index, fact in enumerate(facts):
        _check_equal(f"document.facts[{index}]", "a name and a value", 2, len(fact))
    pairs = "".join(f"<div><dt>{_escape(k)}</dt><dd>{_escape(v)}</dd></div>" for k, v in facts)
    return f'<dl class="facts">{pairs}</dl>' if pairs else ""


def _claims_to_html(claims: Sequence[Mapping[str, Any]]) -> str:
    if not claims:
        return '<p class="verdict open"><span class="mark">–</span> This run makes no claims</p>'
    failed = [claim["name"] for claim in claims if not claim["passed"]]
    count = len(claims)
    if failed:
        names = ", ".join(f"<code>{_escape(name)}</code>" for name in failed)
        verdict = (
            f'<p class="verdict failed"><span class="mark" aria-hidden="true">✗</span> '
            f"{len(failed)} of {count} {_plural('claim', count)} failed</p>"
            f'<p class="failures">Failed: {names}</p>'
        )
    else:
        verdict = (
            f'<p class="verdict passed"><span class="mark" aria-hidden="true">✓</span> '
            f"{count} of {count} {_plural('claim', count)} {'holds' if count == 1 else 'hold'}</p>"
        )
    # Narrow screens turn rows into blocks, which would drop the table's meaning without the roles.
    head = "".join(
        f'<th scope="col" role="columnheader">{name}</th>' for name in ("Verdict", "Claim", "Measured", "Bound")
    )
    rows = "\n".join(_claim_to_row(claim) for claim in claims)
    return (
        f'{verdict}\n<table class="claims" role="table"><caption>What this run claims, and what was measured'
        f'</caption><thead role="rowgroup"><tr role="row">{head}</tr></thead>'
        f'<tbody role="rowgroup">\n{rows}\n</tbody></table>'
    )


def _claim_to_row(claim: Mapping[str, Any]) -> str:
    state, mark, word = ("passed", "✓", "holds") if claim["passed"] else ("failed", "✗", "failed")
    return (
        f'<tr role="row" class="{state}"><td role="cell" class="state"><span class="mark" aria-hidden="true">'
        f"{mark}</span> {word}</td>"
        f'<th role="rowheader" scope="row">{_escape(claim["statement"])}<code>{_escape(claim["name"])}</code></th>'
        f'<td role="cell" class="figure" data-label="measured">{_escape(claim["measured"])}</td>'
        f'<td role="cell" class="figure" data-label="bound">{_escape(claim["bound"])}</td></tr>'
    )


def _plural(noun: str, count: int) -> str:
    return noun if count == 1 else f"{noun}s"


def _section_to_html(index: int, section: Mapping[str, Any]) -> str:
    kind = section["kind"]
    if kind == "text":
        body = _paragraphs(section["text"])
    elif kind == "table":
        body = _paragraphs(section["caption"], "caption") + _table_to_html(section)
    else:
        body = (
            f"{_paragraphs(section['caption'], 'caption')}"
            f'<div class="stage" data-section="{index}"></div>'
            "<noscript><p>This part is interactive and needs JavaScript; it asks the network for nothing."
            "</p></noscript>"
        )
    return (
        f'<section class="{kind}" aria-labelledby="title-{index}">\n'
        f'<h2 id="title-{index}">{_escape(section["title"])}</h2>\n{body}\n</section>'
    )


def _paragraphs(text: str, name: str = "prose") -> str:
    parts = [part.strip() for part in text.replace("\r\n", "\n").split("\n\n")]
    return "".join(f'<p class="{name}">{_escape(part)}</p>' for part in parts if part)


def _table_to_html(section: Mapping[str, Any]) -> str:
    columns, rows = section["columns"], section["rows"]
    is_figure = [bool(rows) and all(_is_number(row[i]) for row in rows) for i in range(len(columns))]
    tag = [' class="figure"' if figure else "" for figure in is_figure]
    head = "".join(f'<th scope="col"{t}>{_escape(c)}</th>' for c, t in zip(columns, tag, strict=True))
    body = "\n".join(
        f"<tr>{''.join(f'<td{t}>{_escape(cell)}</td>' for cell, t in zip(row, tag, strict=True))}</tr>" for row in rows
    )
    # A region that scrolls must be reachable by keyboard.
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{_escape(section["title"])}">'
        f"<table><thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table></div>"
    )


def _drawn_part(section: Mapping[str, Any]) -> Any:
    """Keep what the browser draws, in plain JSON values and with stated precision; None for the rest."""
    if section["kind"] in ("text", "table"):
        return None
    part = dict(section)
    if part["kind"] == "lines":
        part["series"] = [
            {"name": s["name"], "x": _significant(s["x"]), "y": _significant(s["y"])} for s in part["series"]
        ]
    elif part["kind"] == "trace":
        part["traces"] = [
            {**trace, "attention": [_rounded_head(head) for head in trace["attention"]]} for trace in part["traces"]
        ]
    return part


def _significant(values: Iterable[Any]) -> list[Any]:
    return [float(f"{v:.{_LINE_DIGITS}g}") if isinstance(v, float) and math.isfinite(v) else v for v in values]


def _rounded_head(head: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **head,
        "rows": [
            [round(v, _WEIGHT_DECIMALS) if isinstance(v, float) and math.isfinite(v) else v for v in row]
            for row in head["rows"]
        ],
    }


def _to_embedded_json(value: Any) -> str:
    """Encode for a `<script type="application/json">` block, which no string inside can end or leave."""
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
