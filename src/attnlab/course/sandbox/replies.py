"""What a worker replies, held to the form it must have before anything else looks at it.

The bytes come from a process that a student's code may have taken over. What is not of the form
that `runner.encode` gives becomes a damaged answer, which is a wrong one.
"""

import builtins
import json
from collections.abc import Mapping
from typing import Any

_MOST_PARTS = 200_000  # of all answers of a reply; arrays count as one
_MOST_DEPTH = 24
_MOST_AXES = 32
_MOST_WORDS = 300
_MOST_PRINTED = 600
_DAMAGED = {"kind": "other", "type": "damaged answer"}
_FAILURES = {
    "time": ("TimeoutError", "it took too long; is there a loop that does not end?"),
    "size": ("OverflowError", "its answers are too large"),
    "ended": ("ProcessEnded", "its process ended before it had answered"),
}
_TEXTS = {"title", "xlabel", "ylabel", "xscale"}  # facts of a figure's axes that are texts
_LISTS = {"xticks": str, "yticks": str, "images": dict, "lines": dict}  # and lists of what
_KNOWN_ERRORS = {"Missing"} | {
    name
    for name, each in vars(builtins).items()
    if isinstance(each, type) and issubclass(each, BaseException)
}


def is_countable(data: bytes) -> bool:
    """Whether a reply has few enough parts to be read in a moment."""
    return sum(map(data.count, (b",", b"[", b"{"))) <= _MOST_PARTS


def split_reply(data: bytes) -> list[Any]:
    """Return the whole messages of a reply, up to the first that is damaged."""
    messages, at = [], 0
    while at + 8 <= len(data):
        end = at + 8 + int.from_bytes(data[at : at + 8], "big")
        if end > len(data):
            break
        try:
            message = json.loads(data[at + 8 : end])
        except (ValueError, RecursionError):
            break
        messages.append(message)
        at = end
    return messages


def clean_answer(answer: Any, call: str, *, is_graded: bool) -> dict[str, Any]:
    """Return an answer in the form that it must have.

    Args:
        answer: what came.
        call: the name that was called.
        is_graded: keep of an error no more than its type, so that no input is told.
    """
    printed = answer.get("printed") if isinstance(answer, dict) and not is_graded else None
    said = {"printed": printed[:_MOST_PRINTED]} if isinstance(printed, str) and printed else {}
    if isinstance(answer, dict) and "value" in answer:
        value = answer["value"]
        return {"value": value if _is_value(value) else _DAMAGED, **said}
    error = clean_error(answer)
    if is_graded:
        kind = error["error"] if error["error"] in _KNOWN_ERRORS else "Exception"
        error = {"error": kind, "message": "", "line": None}
    if error["error"] == "Missing" and not error["message"].startswith(call):
        error["message"] = call
    return {**error, **said}


def clean_error(error: Any) -> dict[str, Any]:
    """Return what was raised in the form that it must have."""
    kind, message, line = None, None, None
    if isinstance(error, dict):
        kind, message, line = (error.get(name) for name in ("error", "message", "line"))
    return {
        "error": kind[:80] if isinstance(kind, str) else "damaged answer",
        "message": message[:_MOST_WORDS] if isinstance(message, str) else "",
        "line": line if type(line) is int and 0 < line < 10**6 else None,
    }


def failed_answer(why: str) -> dict[str, Any]:
    """Return the answer to a case that the worker failed at: time, size or ended."""
    kind, words = _FAILURES[why]
    return {"error": kind, "message": words, "line": None}


def _is_value(value: Any, depth: int = 0) -> bool:
    """Whether JSON has the form of a value."""
    if depth > _MOST_DEPTH:
        return False
    if not isinstance(value, dict):
        return _is_plain(value)
    kind = value.get("kind")
    if kind == "list":
        return _are_values(value.get("items"), depth)
    if kind == "dict":
        return _is_mapping(value.get("items"), depth)
    if kind == "int":
        return _is_text(value.get("text"))
    if kind == "array":
        return _is_array(value)
    if kind == "figure":
        return _is_figure(value.get("axes"), depth)
    return kind == "other" and _is_text(value.get("type"))


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, bool | int | float | str)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= _MOST_WORDS


def _are_values(items: Any, depth: int) -> bool:
    return isinstance(items, list) and all(_is_value(each, depth + 1) for each in items)


def _is_mapping(items: Any, depth: int) -> bool:
    if not isinstance(items, list):
        return False
    for pair in items:
        if not isinstance(pair, list) or len(pair) != 2 or not _is_plain(pair[0]):
            return False
        if not _is_value(pair[1], depth + 1):
            return False
    return True


def _is_array(value: Mapping[str, Any]) -> bool:
    shape = value.get("shape")
    if not isinstance(shape, list) or len(shape) > _MOST_AXES:
        return False
    if not all(type(size) is int and 0 <= size < 2**31 for size in shape):
        return False
    if value.get("of") not in ("torch", "numpy"):
        return False
    return isinstance(value.get("dtype"), str) and isinstance(value.get("data"), str)


def _is_figure(axes: Any, depth: int) -> bool:
    """Whether this is what is said of a figure: a list of its axes' facts."""
    if not isinstance(axes, dict) or axes.get("kind") != "list" or not _is_value(axes, depth + 1):
        return False
    for each in axes["items"]:
        if not isinstance(each, dict) or each.get("kind") != "dict":
            return False
        facts = {key: value for key, value in each["items"] if isinstance(key, str)}
        if len(facts) < len(each["items"]) or not _are_facts(facts):
            return False
    return True


def _are_facts(facts: Mapping[str, Any]) -> bool:
    if not all(isinstance(facts.get(name), str) for name in _TEXTS):
        return False
    for name, kind in _LISTS.items():
        found = facts.get(name)
        if not isinstance(found, dict) or found.get("kind") != "list":
            return False
        if not all(isinstance(each, kind) for each in found["items"]):
            return False
    return True
