"""What a worker replies, cut to the form and size that it must have.

The bytes come from a process that a student's code may have taken over. The values in the answers
are left as they came: only `compare.read_answer` looks into them.
"""

import json
from typing import Any

_MOST_PARTS = 200_000  # of all answers of a reply; arrays count as one
_MOST_WORDS = 300
_MOST_PRINTED = 600
_FAILURES = {
    "time": ("TimeoutError", "it took too long; is there a loop that does not end?"),
    "size": ("OverflowError", "its answers are too large"),
    "ended": ("ProcessEnded", "its process ended before it had answered"),
}

PYTHON_ERRORS = frozenset(
    (
        *("AssertionError", "AttributeError", "ImportError", "IndexError", "KeyError"),
        *("ModuleNotFoundError", "NameError", "NotImplementedError", "RuntimeError"),
        *("SyntaxError", "TypeError", "UnboundLocalError", "ValueError", "ZeroDivisionError"),
        *("TimeoutError", "OverflowError", "MemoryError", "RecursionError"),
    )
)
"""The exceptions that are told by their names; a rare one could tell of hidden inputs."""


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
    if not isinstance(answer, dict):
        answer = {}
    if "value" in answer:
        cleaned = {"value": answer["value"]}
    else:
        cleaned = clean_error(answer)
        if is_graded:
            kind = cleaned["error"]
            is_known = kind == "Missing" or kind in PYTHON_ERRORS
            cleaned = {"error": kind if is_known else "Exception", "message": "", "line": None}
        if cleaned["error"] == "Missing" and not cleaned["message"].startswith(call):
            cleaned["message"] = call
    printed = answer.get("printed")
    if isinstance(printed, str) and printed and not is_graded:
        cleaned["printed"] = printed[:_MOST_PRINTED]
    return cleaned


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
