"""What the sections of a report share: the sentences of their checks, and the name of a figure."""

import re
from dataclasses import dataclass
from typing import Any

from attnlab.draw.json_form import Contradiction


def check_equal(part: Any, place: str, rule: str, expected: int, got: int) -> None:
    """Raise unless two lengths of a section are equal."""
    if expected != got:
        raise contradiction(part, place, f"expected {rule}, {expected}, got {got}")


def check_limit(part: Any, place: str, what: str, most: int, got: int) -> None:
    """Raise if a page could not show so many."""
    if got > most:
        raise contradiction(
            part, place, f"expected at most {most:,} {what}, which a page can show, got {got:,}"
        )


def contradiction(part: Any, place: str, problem: str) -> Contradiction:
    """Return the error of a section whose values do not fit; `place` is a field, or empty."""
    return Contradiction(type(part).__name__, place, problem)


@dataclass(frozen=True, kw_only=True)
class Figured:
    """Base of the sections that are also written as a picture, if `figure` names its files."""

    title: str
    caption: str
    figure: str | None = None

    def __post_init__(self) -> None:
        if self.figure is not None and not re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,59}", self.figure):
            raise contradiction(
                self,
                ".figure",
                "expected a name for files: small letters, digits, - and _, got "
                f"{self.figure[:60]!r}",
            )
