"""The prose of an experiment: its `words.toml`, whose texts are Jinja templates for its numbers.

An experiment computes numbers; the texts of its sections are in `words.toml` beside it. In a text,
`{{ total }}` writes an integer with its thousands separated, and `{{ loss | as(".4f") }}` writes a
number as that format does. Lines are joined; blank lines separate paragraphs. A number that is
missing is an error. A list of texts, such as a table's columns, is filled one by one.
"""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from jinja2 import Environment, StrictUndefined, Template

from attnlab.display import plural
from attnlab.errors import WrongUsage, is_integer

Numbers = dict[str, Any]
"""What the texts of an experiment may name."""


@dataclass(frozen=True)
class Words:
    """The texts of one experiment by name.

    package: the package that holds `words.toml`.
    """

    package: str

    def text(self, name: str, numbers: Numbers | None = None) -> str:
        """Fill one text."""
        return str(_filled(self._entry(name), numbers))

    def texts(self, name: str, numbers: Numbers | None = None) -> dict[str, Any]:
        """Fill a table of texts: the title, caption, labels and columns of a section."""
        return {part: _filled(text, numbers) for part, text in self._entry(name).items()}

    def _entry(self, name: str) -> Any:
        texts: Any = read_words(self.package)
        for part in name.split("."):
            if part not in texts:
                raise WrongUsage(f"words.toml of {self.package} says nothing of {name}; add it.")
            texts = texts[part]
        return texts


@cache
def read_words(package: str) -> Mapping[str, object]:
    """Read the `words.toml` of a package."""
    return tomllib.loads(resources.files(package).joinpath("words.toml").read_text("utf-8"))


@cache
def _templates() -> Environment:
    # The texts are plain; the page that shows them escapes them.
    templates = Environment(undefined=StrictUndefined, finalize=_number)
    templates.filters |= {"as": format, "plural": plural}
    return templates


def _number(value: Any) -> Any:
    if is_integer(value):
        return f"{value:,}"
    return value


@cache
def _template(text: str) -> Template:
    return _templates().from_string(text)


def _filled(text: Any, numbers: Numbers | None) -> Any:
    if isinstance(text, list):
        return [_filled(text, numbers) for text in text]
    paragraphs = re.split(r"\n\s*\n", _template(text).render(numbers or {}).strip())
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
