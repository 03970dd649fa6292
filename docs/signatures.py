"""Signatures and settings of the reference as a reader needs them.

A signature has names and defaults; what each takes stands in words below it, where a union of six
types would hide it, with a link to each class of ours. Results have none, as nobody calls them;
their fields, like those of a config, are a list.
"""

import inspect
import re
import typing
from collections import Counter
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from types import UnionType
from typing import Any, Union

from reference_faults import entries, hints, is_ours, public, types_in
from sphinx.application import Sphinx
from sphinx.util.docstrings import prepare_docstring

import attnlab
from attnlab.configs import Config
from attnlab.edits import Edit, ZeroHead
from attnlab.edits.effects import Metric, PatchTarget, Path, SignificanceRule, SweepOptions
from attnlab.programs import Program

TARGETS = [field.name for field in fields(ZeroHead)]
_CALLED = (Program, Metric, Path, PatchTarget, SignificanceRule, SweepOptions)
"""Classes that users call, beside edits and the names of `import attnlab`."""

NUM_SOURCES = 4  # that are named of a result


class _Shown:
    """A default as the reference shows it."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def is_called(name: str, thing: Any) -> bool:
    """Do users call this name of the reference, or do they meet it as a result?"""
    is_class = isinstance(thing, type)
    return not is_class or name.count(".") < 2 or issubclass(thing, Edit) or thing in _CALLED


def shorten(
    app: Sphinx, what: str, name: str, thing: Any, options: Any, signature: str | None, returns: str
) -> tuple[str, str] | None:
    """Return the signature that the reference shows, and the name of what is returned."""
    if signature is None:
        return None
    if not isinstance(thing, type):
        return signature_of(thing), returns_of(thing)
    if issubclass(thing, Edit):
        settings = [_setting(field) for field in fields(thing) if field.name not in TARGETS]
        return f"({', '.join(['**targets', *settings])})", ""
    if issubclass(thing, Config):
        return "(**settings)", ""
    return (signature_of(thing), "") if is_called(name, thing) else ("", "")


def signature_of(thing: Any) -> str:
    """Return the parameters with their defaults, as a reader would write them, without types."""
    signature = inspect.signature(thing)
    parameters = [
        parameter.replace(annotation=parameter.empty, default=_default(parameter.default))
        for name, parameter in signature.parameters.items()
        if name not in ("self", "cls")
    ]
    return str(inspect.Signature(parameters))


def _default(value: Any) -> Any:
    """Return what prints as the call that makes a default; a mark for "not given" is `...`."""
    if is_dataclass(value) and not isinstance(value, type):
        kept = [field for field in fields(value) if getattr(value, field.name) != field.default]
        given = ", ".join(f"{field.name}={getattr(value, field.name)!r}" for field in kept)
        return _Shown(f"{type(value).__name__}({given})")
    if isinstance(value, tuple):
        return tuple(map(_default, value))
    if isinstance(value, slice):
        return _Shown("slice(None)")
    return _Shown("...") if type(value) is object else value


def _setting(field: Field[Any]) -> str:
    return field.name if field.default is MISSING else f"{field.name}={field.default!r}"


def returns_of(function: Any) -> str:
    """Return the annotation of what is returned, with the names of entries; nothing of None, of
    another library's class, and of a context manager."""
    hint = hints(function).get("return")
    plain = inspect.signature(function).return_annotation
    if hint is Any and isinstance(plain, str):  # the class of a library that is not imported
        return plain
    text = "" if hint in (None, type(None)) else _written(hint)
    return "" if "?" in text else text


def _written(hint: Any) -> str:
    arguments = typing.get_args(hint)
    if arguments and typing.get_origin(hint) in (Union, UnionType):
        return " | ".join(map(_written, arguments))
    if arguments:
        origin = typing.get_origin(hint).__name__
        is_known = origin in ("list", "tuple", "dict", "Both")
        return f"{origin}[{', '.join(map(_written, arguments))}]" if is_known else "?"
    if hint in (Any, Ellipsis):
        return "Any" if hint is Any else "..."
    if hint is type(None):
        return "None"
    if hint in entries():
        return f"~{entries()[hint]}"
    return hint.__name__ if isinstance(hint, type) else "?"


def add_settings(
    app: Sphinx, what: str, name: str, thing: Any, options: Any, lines: list[str]
) -> None:
    """Add the fields of a config to its docstring: what each is, its choices, its default."""
    if isinstance(thing, type) and issubclass(thing, Config):
        for field in thing.options():
            choices = f" One of `{'`, `'.join(field.choices)}`." if field.choices else ""
            comment = field.comment[0].upper() + field.comment[1:]
            lines.append(f":param {field.name}: {comment}.{choices} By default `{field.default}`.")


@cache
def sources() -> dict[type, list[str]]:
    """Return the functions and methods of the reference that return each class."""
    found: dict[type, list[str]] = {}
    for one in public():
        if one.kind in ("function", "method"):
            for kind in types_in(one.value).get("return", ()):
                found.setdefault(kind, []).append(one.name)
    return found


def add_sources(
    app: Sphinx, what: str, name: str, thing: Any, options: Any, lines: list[str]
) -> None:
    """Say of a result which functions return it."""
    if isinstance(thing, type) and not is_called(name, thing) and thing in sources():
        links = ", ".join(f":py:obj:`{source}`" for source in sources()[thing][:NUM_SOURCES])
        lines += ["", f"*Returned by* {links}.", ""]


def keep_returns(
    app: Sphinx, what: str, name: str, thing: Any, options: Any, lines: list[str]
) -> None:
    """Write a section Returns as a field, for napoleon takes what stands before a colon in it for a
    type."""
    if "Returns:" not in lines:
        return
    begin = lines.index("Returns:")
    end = next((n for n in range(begin, len(lines)) if not lines[n].strip()), len(lines))
    lines[begin:end] = [f":returns: {' '.join(' '.join(lines[begin + 1 : end]).split())}"]


def keep_property(
    app: Sphinx, what: str, name: str, thing: Any, options: Any, lines: list[str]
) -> None:
    """Write a property as its docstring has it, for napoleon takes what stands before the first
    colon in it for a type."""
    if what == "property":
        lines[:] = prepare_docstring(inspect.getdoc(thing) or "")


def list_fields(
    app: Sphinx, what: str, name: str, thing: Any, options: Any, lines: list[str]
) -> None:
    """Make a list of a result's fields, which its docstring names one after another: "edits: as
    they print · loss (row,): nats"."""
    if not isinstance(thing, type):
        return
    names = "|".join(part for part in types_in(thing) if part != "return")
    if not names:
        return
    head = rf"((?:`?(?:{names})`?(?:, | and )?)+)( \([^)]*\))?"
    begin = re.compile(rf"(?:^|(?<= · )|(?<=[.·] )){head}(?=: | · |$)")
    text = "\n".join(lines)
    lines[:] = "\n\n".join(_listed(part, begin) for part in text.split("\n\n")).split("\n")


def _listed(paragraph: str, begin: re.Pattern[str]) -> str:
    """Return a paragraph as a list of fields, where it is one."""
    text = " ".join(paragraph.split())
    found = list(begin.finditer(text))
    if not found or found[0].start() or paragraph.startswith((":", " ", ">>>")):
        return paragraph
    ends = [*(match.start() for match in found[1:]), len(text)]
    items = []
    for match, end in zip(found, ends, strict=True):
        words = text[match.end() : end].removeprefix(":").strip(" ·")
        shape = f"{match[2].strip()} " if match[2] else ""
        items.append(f":ivar {match[1]}: {shape}{words}".rstrip())
    return "\n".join(items)


def link_types(
    app: Sphinx, what: str, name: str, thing: Any, options: Any, lines: list[str]
) -> None:
    """Link the classes of ours where a parameter or the result is described."""
    if not callable(thing):
        return
    kinds = types_in(thing)
    for begin, end in _described(lines):
        is_result = lines[begin].startswith(":returns:")
        part = "return" if is_result else lines[begin].split(":")[1].split()[-1].strip("`*\\")
        for kind in filter(is_ours, kinds.get(part, [])):
            text = "\n".join(lines[begin:end])
            link = _linked(kind)
            if link in text:
                continue
            if f"`{kind.__name__}`" in text:
                text = text.replace(f"`{kind.__name__}`", link)
            else:
                stop = "." * text.endswith(".")
                text = f"{text.removesuffix('.')} ({link}){stop}"
            lines[begin:end] = text.split("\n")


@cache
def _linkable() -> dict[str, str]:
    """Return what a docstring may mean by a bare name: functions of `import attnlab`, classes."""
    classes = Counter(kind.__name__ for kind in entries())
    found = {name: f"attnlab.{name}" for name in attnlab.__all__ if name not in ("edits", "plot")}
    found |= {kind.__name__: name for kind, name in entries().items() if classes[kind.__name__] < 2}
    return found


@cache
def _names() -> set[str]:
    return {one.name for one in public()}


def link_names(
    app: Sphinx, what: str, name: str, thing: Any, options: Any, lines: list[str]
) -> None:
    """Link the names that a docstring has in backquotes, but for those of its own parameters."""
    own = {name.rpartition(".")[2], *types_in(thing)} if callable(thing) else set()

    def linked(mark: re.Match[str]) -> str:
        first, _, member = mark[1].removeprefix("attnlab.").partition(".")
        full = f"{_linkable().get(first)}.{member}".rstrip(".")
        is_own = mark[1] in own
        return f":py:obj:`{mark[1]} <{full}>`" if full in _names() and not is_own else mark[0]

    lines[:] = [re.sub(r"(?<![`:\w])`([\w.]+)`(?![`_\w])", linked, line) for line in lines]


def gather_fields(
    app: Sphinx, what: str, name: str, thing: Any, options: Any, lines: list[str]
) -> None:
    """Put the fields of a class into one list. Sphinx' own would link each by its bare name, to a
    field of that name in any class."""
    spans = [span for span in _described(lines) if lines[span[0]].startswith(":ivar ")]
    if not spans:
        return
    items = []
    for begin, end in reversed(spans):
        _, names, words = " ".join(lines[begin:end]).split(":", 2)
        items.insert(0, f"   * **{names.removeprefix('ivar ')}**: {' '.join(words.split())}")
        del lines[begin:end]
    lines[spans[0][0] : spans[0][0]] = ["", ":Fields:", *items, ""]


def _linked(kind: type) -> str:
    return f":py:obj:`~{entries()[kind]}`" if kind in entries() else f"`{kind.__name__}`"


def _described(lines: list[str]) -> list[tuple[int, int]]:
    """Return where the description of each parameter, field and result begins and ends."""
    begins = [n for n, line in enumerate(lines) if re.match(r":(param|ivar|returns)\b", line)]
    spans = []
    for begin in begins:
        end = begin + 1
        while end < len(lines) and lines[end].startswith(" "):
            end += 1
        spans.append((begin, end))
    return spans


def setup(app: Sphinx) -> dict[str, bool]:
    """Install it."""
    app.connect("autodoc-process-signature", shorten)
    for handler, priority in (
        (keep_returns, 480),
        (list_fields, 490),  # napoleon has 500
        (keep_property, 510),
        (add_settings, 600),
        (add_sources, 605),
        (link_types, 610),
        (link_names, 615),
        (gather_fields, 620),
    ):
        app.connect("autodoc-process-docstring", handler, priority=priority)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
