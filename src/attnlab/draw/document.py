"""The document: what a report shows, as plain data; the page draws it, programs read it from `report.json`.

Numbers may be None or NaN, which a page shows as gaps and "n/a":

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
"""

from collections.abc import Callable, Mapping
from typing import Any

from attnlab.errors import WrongUsage, did_you_mean

__all__ = ["check_document", "check_equal", "is_number"]

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


def check_document(document: Mapping[str, Any]) -> None:
    """Raise `WrongUsage` unless a document has the form above, naming the place, what was expected and what came."""
    _check(document, "document", "document")
    for index, section in enumerate(document["sections"]):
        _check_lengths(section, f"document.sections[{index}]")


def is_number(value: Any) -> bool:
    """Say whether a value is a number to the document: a plain one, or None for a gap."""
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


_KINDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "text": (lambda value: isinstance(value, str), "a string"),
    "flag": (lambda value: isinstance(value, bool), "True or False"),
    "number": (is_number, "a plain number or None"),
    "index": (
        lambda value: isinstance(value, int) and not isinstance(value, bool) and value >= 0,
        "a whole number, 0 or more",
    ),
    "scalar": (lambda value: isinstance(value, str | bool) or is_number(value), "a string or a number"),
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
            check_equal(f"{where}.series[{index}]", "as many y as x", len(series["x"]), len(series["y"]))
    elif section["kind"] == "table":
        for index, row in enumerate(section["rows"]):
            check_equal(f"{where}.rows[{index}]", "one cell per column", len(section["columns"]), len(row))
    elif section["kind"] == "trace":
        for index, trace in enumerate(section["traces"]):
            _check_trace(trace, f"{where}.traces[{index}]")


def _check_trace(trace: Mapping[str, Any], where: str) -> None:
    num_tokens = len(trace["tokens"])
    for index, step in enumerate(trace["steps"]):
        place = f"{where}.steps[{index}]"
        num_candidates = len(step["candidates"])
        check_equal(place, "one probability per candidate", num_candidates, len(step["probabilities"]))
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


def check_equal(where: str, rule: str, expected: int, got: int) -> None:
    """Raise `WrongUsage` where two lengths that belong together differ."""
    if expected != got:
        raise WrongUsage(f"{where}: expected {rule}, {expected}, got {got}")
