"""The document: the content of a report as plain data, drawn by the page, saved as `report.json`.

Numbers may be None or NaN, which a page shows as gaps and "n/a". Keys marked "?" are optional:

    {"title": str, "subtitle": str,
     "facts": [[name, value], ...],
     # claims are absent if the document makes none; passed is None if a claim is undecided
     "claims"?: [{"name", "statement", "measured", "bound", "passed"}, ...],
     "sections": [
       # blank lines separate paragraphs
       {"kind": "text", "title", "text"},
       # low and high are an interval around each y, drawn as a band; bands are named bands instead,
       # such as quantiles, the widest first; points have whiskers, steps hold until the next x;
       # names label points one by one; from_zero keeps zero in sight
       {"kind": "lines", "title", "caption", "x_label", "y_label",
        "series": [{"name", "x": [...], "y": [...],
                    "low"?: [...], "high"?: [...],
                    "bands"?: [{"name", "low", "high"}],
                    "style"?: "line" | "points" | "steps",
                    "names"?: [str]}],
        "levels"?: [{"name", "y"}], "x_log"?: bool, "y_log"?: bool, "from_zero"?: bool},
       # one value per group; low and high are an interval around each value, drawn as a whisker
       {"kind": "bars", "title", "caption", "y_label", "groups": [str],
        "series": [{"name", "values": [...], "low"?: [...], "high"?: [...]}],
        "levels"?: [{"name", "y"}]},
       # several choices get a chooser; masked says what a blank cell means if it is not missing
       {"kind": "maps", "title", "caption",
        "choices": [{"label": str, "note": str,
          "maps": [{"title", "rows": [[number]], "row_labels": [str], "column_labels": [str],
                    "row_title", "column_title", "low": number, "high": number,
                    "masked"?: str}]}]},
       # in pixels; x to the right, y down
       {"kind": "diagram", "title", "caption", "width", "height",
        "boxes": [{"x", "y", "width", "height", "title", "note"?: str,
                   "tone"?: "plain" | "accent" | "quiet"}],
        "arrows": [{"points": [[x, y], ...], "dashed"?: bool, "label"?: str}]},
       {"kind": "table", "title", "caption", "columns": [str], "rows": [[str | number]]},
       {"kind": "verdicts", "title", "caption",
        "items": [{"input": [str], "output": [str], "expected": [str], "correct": bool,
                   "confidence"?: number}]},
       # query and key are positions in tokens
       {"kind": "passages", "title", "caption",
        "groups": [{"title": str,
          "items": [{"label": str, "tokens": [str], "query": int, "key": int}]}]},
       # key_tokens for cross-attention only
       {"kind": "trace", "title", "caption", "figure_input"?: [str],
        "traces": [{"input": [str], "tokens": [str],
          "steps": [{"position": int, "candidates": [str], "probabilities": [number],
                     "choice": str}],
          "attention": [{"site": str, "head": int, "rows": [[number]],
                         "key_tokens"?: [str]}]}]}]}

Lines, bars, maps, diagrams and traces may have `"figure": name`: the section is then also written
as name.png and name.svg. A figure shows the first of several choices or traces, or the trace whose
input is `figure_input`.

The colors of a map range from `low` to `high`: one color that gets stronger if low is 0 or more;
two colors around 0 if low is negative, and then high is -low. All rows have equal lengths: a blank
cell is None.

In a trace, `tokens` is the final sequence; a step predicts from query `position`, the last token
known to it, and chooses token `position + 1`. `rows[i]` holds the weights of query i over keys 0,
1, ...; keys beyond the end of a row are masked.

A page must open at once, so these are the limits: 40,000 cells in a map, 1,000,000 cells in the
maps of a section, 1,000 bars in a section, 500 boxes and 1,000 arrows in a diagram.
"""

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from attnlab.draw.agreement import check_agreement
from attnlab.errors import WrongUsage, did_you_mean

__all__ = ["TONES", "check_document", "is_number"]

TONES = ("plain", "accent", "quiet")
_STYLES = ("line", "points", "steps")

# The form of the document: "[x]" is a list of x, a key that ends in "?" is optional, and a name
# that is no plain kind refers to another entry of this table.
_FORMS: dict[str, dict[str, str]] = {
    "document": {
        "title": "text",
        "subtitle": "text",
        "facts": "[[scalar]]",
        "claims?": "[claim]",
        "sections": "[section]",
    },
    "claim": {
        "name": "text",
        "statement": "text",
        "measured": "scalar",
        "bound": "scalar",
        "passed": "evaluation",
    },
    "series": {
        "name": "text",
        "x": "[number]",
        "y": "[number]",
        "low?": "[number]",
        "high?": "[number]",
        "bands?": "[band]",
        "style?": "style",
        "names?": "[text]",
    },
    "band": {"name": "text", "low": "[number]", "high": "[number]"},
    "bar series": {"name": "text", "values": "[number]", "low?": "[number]", "high?": "[number]"},
    "level": {"name": "text", "y": "number"},
    "choice": {"label": "text", "note": "text", "maps": "[map]"},
    "map": {
        "title": "text",
        "rows": "[[number]]",
        "row_labels": "[text]",
        "column_labels": "[text]",
        "row_title": "text",
        "column_title": "text",
        "low": "finite",
        "high": "finite",
        "masked?": "text",
    },
    "box": {
        "x": "finite",
        "y": "finite",
        "width": "finite",
        "height": "finite",
        "title": "text",
        "note?": "text",
        "tone?": "tone",
    },
    "arrow": {"points": "[[finite]]", "dashed?": "flag", "label?": "text"},
    "verdict": {
        "input": "[text]",
        "output": "[text]",
        "expected": "[text]",
        "correct": "flag",
        "confidence?": "number",
    },
    "passages": {"title": "text", "items": "[passage]"},
    "passage": {"label": "text", "tokens": "[text]", "query": "index", "key": "index"},
    "trace of one input": {
        "input": "[text]",
        "tokens": "[text]",
        "steps": "[step]",
        "attention": "[head]",
    },
    "step": {
        "position": "index",
        "candidates": "[text]",
        "probabilities": "[number]",
        "choice": "text",
    },
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
        "x_log?": "flag",
        "y_log?": "flag",
        "from_zero?": "flag",
        "figure?": "file name",
    },
    "bars": {
        "kind": "text",
        "title": "text",
        "caption": "text",
        "y_label": "text",
        "groups": "[text]",
        "series": "[bar series]",
        "levels?": "[level]",
        "figure?": "file name",
    },
    "maps": {
        "kind": "text",
        "title": "text",
        "caption": "text",
        "choices": "[choice]",
        "figure?": "file name",
    },
    "diagram": {
        "kind": "text",
        "title": "text",
        "caption": "text",
        "width": "finite",
        "height": "finite",
        "boxes": "[box]",
        "arrows": "[arrow]",
        "figure?": "file name",
    },
    "table": {
        "kind": "text",
        "title": "text",
        "caption": "text",
        "columns": "[text]",
        "rows": "[[scalar]]",
    },
    "verdicts": {"kind": "text", "title": "text", "caption": "text", "items": "[verdict]"},
    "passages": {
        "kind": "text",
        "title": "text",
        "caption": "text",
        "groups": "[passages]",
    },
    "trace": {
        "kind": "text",
        "title": "text",
        "caption": "text",
        "traces": "[trace of one input]",
        "figure?": "file name",
        "figure_input?": "[text]",
    },
}


def check_document(document: Mapping[str, Any]) -> None:
    """Raise `WrongUsage` unless a document has this form; name the key and what is expected."""
    _check(document, "document", "document")
    check_agreement(document)


def is_number(value: Any) -> bool:
    """Is this a plain number, or None for a gap?"""
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


_KINDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "text": (lambda value: isinstance(value, str), "a string"),
    "flag": (lambda value: isinstance(value, bool), "True or False"),
    "evaluation": (lambda value: value is None or isinstance(value, bool), "True, False or None"),
    "number": (is_number, "a plain number or None"),
    "index": (
        lambda value: isinstance(value, int) and not isinstance(value, bool) and value >= 0,
        "a whole number, 0 or more",
    ),
    "finite": (
        lambda value: is_number(value) and value is not None and math.isfinite(value),
        "a plain finite number",
    ),
    "tone": (lambda value: value in TONES, f"one of {', '.join(TONES)}"),
    "style": (lambda value: value in _STYLES, f"one of {', '.join(_STYLES)}"),
    "file name": (
        lambda value: (
            isinstance(value, str) and re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,59}", value) is not None
        ),
        "a name for files: small letters, digits, - and _",
    ),
    "scalar": (
        lambda value: isinstance(value, str | bool) or is_number(value),
        "a string or a number",
    ),
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
        # Traces hold up to a million weights: check plain values without naming each place.
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
            raise WrongUsage(
                f"{where}: expected the key 'kind', got the keys {sorted(map(str, value))}"
            )
        kind = value["kind"]
        if not isinstance(kind, str) or kind not in _SECTIONS:
            raise WrongUsage(
                f"{where}: expected a known kind of section, got {kind!r}; "
                f"{did_you_mean(str(kind), _SECTIONS)}"
            )
        form = _SECTIONS[kind]
    else:
        form = _FORMS[kind]
    known = {key.rstrip("?"): inner for key, inner in form.items()}
    for key in form:
        if not key.endswith("?") and key not in value:
            raise WrongUsage(
                f"{where}: expected the key {key!r} in a {kind}, got the keys "
                f"{sorted(map(str, value))}"
            )
    for key, inner in value.items():
        if key not in known:
            raise WrongUsage(
                f"{where}: expected only known keys in a {kind}, got {key!r}; "
                f"{did_you_mean(str(key), known)}"
            )
        _check(inner, known[key], f"{where}.{key}")


def _unexpected(where: str, expected: str, value: Any) -> WrongUsage:
    hint = "; arrays become plain values with .tolist()" if hasattr(value, "tolist") else ""
    return WrongUsage(
        f"{where}: expected {expected}, got {type(value).__name__} {str(value)[:60]!r}{hint}"
    )
