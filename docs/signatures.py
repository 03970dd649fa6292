"""Signatures and settings of the reference as a reader needs them.

A signature has names and defaults; what each takes stands in words below it, where a union of six
types would hide it. Results have none, as nobody calls them. A config has a line for each field.
"""

import inspect
from dataclasses import MISSING, Field, fields
from typing import Any

from sphinx.application import Sphinx

from attnlab.configs import Config
from attnlab.edits import Edit, ZeroHead

TARGETS = [field.name for field in fields(ZeroHead)]
_CALLED = ("attnlab.programs.Program",)  # by users, beside edits and the names of `import attnlab`


def shorten(
    app: Sphinx, what: str, name: str, thing: Any, options: Any, signature: str | None, returns: str
) -> tuple[str, str] | None:
    """Return the signature that the reference shows, and the name of what is returned."""
    if signature is None:
        return None
    if not isinstance(thing, type):
        return signature, returns_of(thing)
    if issubclass(thing, Edit):
        settings = [_setting(field) for field in fields(thing) if field.name not in TARGETS]
        return f"({', '.join(['**targets', *settings])})", ""
    if issubclass(thing, Config):
        return "(**settings)", ""
    if name.count(".") > 1 and name not in _CALLED:
        return "", ""
    return None


def _setting(field: Field[Any]) -> str:
    return field.name if field.default is MISSING else f"{field.name}={field.default!r}"


def returns_of(function: Any) -> str:
    """Return the name of the class that a function returns; nothing of a union or of None."""
    returned = inspect.signature(function).return_annotation
    return returned.__name__ if isinstance(returned, type) and returned.__name__ != "_empty" else ""


def add_settings(
    app: Sphinx, what: str, name: str, thing: Any, options: Any, lines: list[str]
) -> None:
    """Add the fields of a config to its docstring: what each is, its choices, its default."""
    if isinstance(thing, type) and issubclass(thing, Config):
        for field in thing.options():
            choices = f" One of `{'`, `'.join(field.choices)}`." if field.choices else ""
            comment = field.comment[0].upper() + field.comment[1:]
            lines.append(f":param {field.name}: {comment}.{choices} By default `{field.default}`.")


def setup(app: Sphinx) -> dict[str, bool]:
    """Install it."""
    app.connect("autodoc-process-signature", shorten)
    app.connect("autodoc-process-docstring", add_settings, priority=600)  # after napoleon
    return {"parallel_read_safe": True, "parallel_write_safe": True}
