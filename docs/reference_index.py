"""The index of the reference: every name that one calls with the first sentence of its docstring,
by what one wants to do, and below it the classes of what it takes and returns.

It is put in place of a comment in `reference/index.md` when the site is built. The groups are the
headings of the pages in `reference/`, and the sentences are those of the docstrings.
"""

import importlib
import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from search_index import sentence_of, thing_at
from signatures import is_called
from sphinx.application import Sphinx

PAGES = Path(__file__).parent / "reference"
MARK = "<!-- the names of all pages -->"
_ENTRY = re.compile(r"^(# |## |\.\. auto(?:function|class|module):: )(\S.*)$", re.M)


class Name(NamedTuple):
    """A public name, where it stands in the reference, and its first sentence."""

    page: str
    heading: str
    name: str
    sentence: str


def page_names() -> list[str]:
    """Return the pages of the reference in the order of its menu."""
    menu = re.search(r"```\{toctree\}.*?^```", (PAGES / "index.md").read_text(), re.S | re.M)
    return [line for line in menu[0].splitlines() if (PAGES / f"{line}.md").exists()]


def names() -> Iterator[Name]:
    """Yield every name of the reference in its order; of a module, those that it makes public."""
    for page in page_names():
        title = heading = ""
        for mark, text in _ENTRY.findall((PAGES / f"{page}.md").read_text()):
            if mark == "# ":
                title = heading = text
            elif mark == "## ":
                heading = text
            else:
                for name in _members(text) if "module" in mark else [text]:
                    yield Name(page, heading or title, name, sentence_of(name))


def _members(module: str) -> list[str]:
    there: Any = importlib.import_module(module)
    return [f"{module}.{name}" for name in there.__all__]


def tables() -> str:
    """Return the tables in Markdown."""
    lines: list[str] = []
    for page, groups in itertools.groupby(names(), lambda row: row.page):
        title = (PAGES / f"{page}.md").read_text().partition("\n")[0].partition(": ")[2]
        lines += ["", f"## [{title.capitalize()}]({page}.md)"]
        for heading, rows in itertools.groupby(groups, lambda row: row.heading):
            lines += ["", f"| {heading} | |", "| --- | --- |"]
            types = []
            for row in rows:
                if is_called(row.name, thing_at(row.name)):
                    lines.append(f"| {_link(row.name)} | {row.sentence.replace('|', '&#124;')} |")
                else:
                    types.append(_link(row.name, row.name.rpartition(".")[2]))
            if types:
                lines.append(f"| *what these take and return* | {', '.join(types)} |")
    return "\n".join(lines)


def _link(name: str, shown: str = "") -> str:
    short = name.removeprefix("attnlab.")
    if short.count(".") > 1:  # no package that users import from
        short = short.rpartition(".")[2]
    return f"{{py:obj}}`{shown or short} <{name}>`"


def _write(_app: Sphinx, page: str, source: list[str]) -> None:
    if page == "reference/index":
        source[0] = source[0].replace(MARK, tables())


def setup(app: Sphinx) -> dict[str, bool]:
    """Install it."""
    app.connect("source-read", _write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
