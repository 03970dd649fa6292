"""What every section of a report has, and how its parts are checked.

A new kind of section is a frozen dataclass derived from `Section` or `FigureSection`, with a
`kind` and, for the page, a `template`.
"""

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from attnlab.errors import WrongUsage

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, kw_only=True)
class Section:
    """Base of all sections.

    Attributes:
        kind: the name of the class in `report.json`.
        look: a sentence on the page that says what to look at.
        template: Jinja text that draws `section` on the page, below its title and caption; empty
            for a file `report/KIND.html`, or for nothing if there is none.
        in_browser: is it drawn by a module of `report/page.js` instead?
    """

    kind: ClassVar[str]
    look: ClassVar[str] = ""
    template: ClassVar[str] = ""
    in_browser: ClassVar[bool] = False
    title: str

    @property
    def advice(self) -> str:
        """`look`, or where it depends on the content, the sentence for this section."""
        return self.look

    @property
    def told(self) -> str:
        """The prose below the title: the caption, if there is one."""
        words: str = getattr(self, "caption", "")
        return words


@dataclass(frozen=True, kw_only=True)
class FigureSection(Section):
    """Base of the sections that are also written as a picture, if `figure` names its files."""

    caption: str
    figure: str | None = None

    def __post_init__(self) -> None:
        name = "none" if self.figure is None else self.figure
        is_name = re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,59}", name) is not None
        problem = "expected a name for files: small letters, digits, - and _, got "
        check_values(self, is_name, ".figure", f"{problem}{name[:60]!r}")

    def picture(self) -> "Figure":
        """Draw the picture with matplotlib; the kinds of this package are in `draw.pictures`."""
        raise NotImplementedError(f"sections of kind {self.kind!r} have no picture")


def check_equal(part: Any, place: str, rule: str, expected: int, got: int) -> None:
    """Raise unless two lengths of a section are equal."""
    check_values(part, expected == got, place, f"expected {rule}, {expected}, got {got}")


def check_limit(part: Any, place: str, what: str, most: int, got: int) -> None:
    """Raise if a page could not show so many."""
    problem = f"expected at most {most:,} {what}, which a page can show, got {got:,}"
    check_values(part, got <= most, place, problem)


def check_values(part: Any, fits: bool, place: str, problem: str) -> None:
    """Raise unless the values of a section fit; `place` is a field, or empty."""
    if not fits:
        raise WrongUsage(f"{type(part).__name__}{place}: {problem}")
