"""How the command line reads numbers."""

import re
from collections.abc import Sequence
from typing import Any

import cyclopts

__all__ = ["whole_number"]


def whole_number(_: Any, tokens: Sequence[cyclopts.Token]) -> int:
    """Read an integer strictly; left alone, cyclopts would round 1.5 to 2."""
    text = tokens[0].value
    if not re.fullmatch(r"[+-]?\d{1,50}", text, re.ASCII):
        raise ValueError(f"expected a whole number; got {text[:50]!r}.")
    return int(text)
