"""Types of options that several commands share."""

import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import cyclopts
from cyclopts import Parameter

__all__ = [
    "AsJson",
    "Layout",
    "OptionalWholeNumber",
    "Quiet",
    "Settings",
    "Strings",
    "Switch",
    "WholeNumber",
]


def _whole_number(_: Any, tokens: Sequence[cyclopts.Token]) -> int:
    """Read an integer strictly; left alone, cyclopts would round 1.5 to 2."""
    text = tokens[0].value
    if not re.fullmatch(r"[+-]?\d{1,50}", text, re.ASCII):
        raise ValueError(f"expected a whole number; got {text[:50]!r}.")
    return int(text)


WholeNumber = Annotated[int, Parameter(converter=_whole_number)]
OptionalWholeNumber = Annotated[int | None, Parameter(converter=_whole_number)]
Switch = Annotated[bool, Parameter(negative="")]
AsJson = Annotated[bool, Parameter(name="--json", negative="")]
Quiet = Annotated[bool, Parameter(name=["--quiet", "-q"], negative="")]
Strings = Annotated[list[str] | None, Parameter(consume_multiple=True, negative="")]
Settings = Annotated[list[str] | None, Parameter(name="--set", consume_multiple=True, negative="")]
Layout = Literal["auto", "simd", "batched", "vmap", "sequential"]
