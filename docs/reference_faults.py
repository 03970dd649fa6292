"""What a reader of the reference would miss: a type without an entry, a function without words.

    python docs/reference_faults.py         names what is missing

A public function says what it takes, what it returns, what it raises, and the shapes of tensors;
the functions used most have an example. A
class of ours that a public function takes or returns, or that a field of a public class holds, has
an entry. A signature shows no default that a reader cannot look up.
"""

import inspect
import re
import sys
import typing
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from search_index import thing_at

PAGES = Path(__file__).parent / "reference"
_ENTRY = re.compile(r"^\.\. auto(function|class|module):: (\S+)\n((?: +:.*\n)*)", re.M)
_AXES = (
    "batch head kv_head query key length d_model head_width value_width d_ff vocabulary row token "
    "position input place part layer channel width in out number site attention member batch_size"
)
_SHAPE = re.compile(rf"\((?:…, |\.\.\., )?(?:{'|'.join(_AXES.split())})s?\b[^()]*\)|scalar")


WITH_EXAMPLE = [
    "load",
    "record",
    "show",
    "ask",
    "run",
    "open",
    "edit",
    "effect",
    "ablate",
    "pattern_effects",
    "patch_all",
    "logit_lens",
    "direct_logits",
    "why",
    "circuits",
    "attend",
    "causal_mask",
    "generate",
    "save_model",
    "summarize",
    "search_corpus",
    "census",
    "train_population",
    "sweep",
    "prove",
    "plot.head",
    "plot.measure",
]
"""The functions that users call most: each has an example, which the tests of docstrings run."""


class Public(NamedTuple):
    """A function, method, property or class of the reference, and its name there."""

    name: str
    value: Any
    kind: str


@cache
def public() -> tuple[Public, ...]:
    """Return everything that the reference describes."""
    text = "".join(page.read_text() for page in sorted(PAGES.glob("*.md")))
    return tuple(one for entry in _ENTRY.findall(text) for one in _described(*entry))


def _described(kind: str, name: str, options: str) -> Iterator[Public]:
    value = thing_at(name)
    if kind == "module":
        for part in value.__all__:
            yield Public(f"{name}.{part}", getattr(value, part), "function")
        return
    yield Public(name, value, kind)
    named = re.search(r":members:(.*)", options)
    if kind == "class" and named:
        wanted = named[1].replace(",", " ").split()
        for part, member in vars(value).items():
            is_wanted = part in wanted if wanted else not part.startswith("_")
            inner = getattr(member, "__func__", getattr(member, "func", None)) or member
            if is_wanted and isinstance(member, property):
                yield Public(f"{name}.{part}", member.fget, "property")
            elif is_wanted and inspect.isfunction(inner):
                yield Public(f"{name}.{part}", inner, "method")


@cache
def entries() -> dict[type, str]:
    """Return the name in the reference of each class that has an entry."""
    return {one.value: one.name for one in public() if isinstance(one.value, type)}


def types_in(value: Any) -> dict[str, list[type]]:
    """Return the classes in the annotation of each parameter, and of what is returned; of a class,
    of each field that its docstring names."""
    is_class = isinstance(value, type)
    doc = inspect.getdoc(value) or ""
    return {
        name: list(dict.fromkeys(_classes(hint)))
        for name, hint in hints(value).items()
        if not name.startswith("_") and not (is_class and not re.search(rf"\b{name}\b", doc))
    }


def hints(value: Any) -> dict[str, Any]:
    """Return the annotations; a name that is imported for type checkers alone is looked for."""
    known: dict[str, Any] = {}
    while True:
        try:
            return typing.get_type_hints(value, localns=known)
        except NameError as error:
            homes = [vars(module) for name, module in sys.modules.items() if name[:8] == "attnlab."]
            known[error.name] = next(
                (home[error.name] for home in homes if error.name in home), Any
            )


def _classes(hint: Any) -> Iterator[type]:
    if isinstance(hint, list | tuple):
        for part in hint:
            yield from _classes(part)
    elif arguments := typing.get_args(hint):
        if typing.get_origin(hint) is not typing.Literal:
            yield from _classes(arguments)
    elif isinstance(hint, type):
        yield hint


def is_ours(kind: type) -> bool:
    """Is this a class that readers meet by name, and not a Protocol for their own functions?"""
    return kind.__module__.startswith("attnlab") and not getattr(kind, "_is_protocol", False)


def types_without_entry() -> Iterator[str]:
    """Yield each class that a reader meets and cannot look up."""
    for one in public():
        for name, kinds in types_in(one.value).items():
            for kind in kinds:
                if is_ours(kind) and kind not in entries():
                    yield f"{one.name}, {name}: no entry for {kind.__module__}.{kind.__qualname__}"


def words_missing(one: Public) -> Iterator[str]:
    """Yield what the docstring of a function or method does not say."""
    doc = inspect.getdoc(one.value) or ""
    kinds = types_in(one.value)
    returned = kinds.pop("return", [])
    arrays = [name for name, found in kinds.items() if _holds_array(found)]
    if (arrays or _holds_array(returned)) and not _SHAPE.search(doc):
        yield f"{one.name}: no shape of {', '.join([*arrays, 'the result'][:3])}"
    if one.kind != "function":
        return
    parameters = [name for name in inspect.signature(one.value).parameters if name[0] != "_"]
    unnamed = [name for name in parameters if not re.search(rf"\b{name}\b", doc)]
    if unnamed:
        yield f"{one.name}: nothing about {', '.join(unnamed)}"
    if one.name.removeprefix("attnlab.") in WITH_EXAMPLE and ">>> " not in doc:
        yield f"{one.name}: no example"
    for section in ("Returns:", "Raises:"):
        is_needed = section != "Returns:" or set(returned) - {type(None)}
        if is_needed and f"\n{section}" not in doc:
            yield f"{one.name}: no section {section}"


def _holds_array(kinds: list[type]) -> bool:
    return any(issubclass(kind, (torch.Tensor, np.ndarray)) for kind in kinds)


def faults() -> list[str]:
    """Return everything that is missing."""
    functions = [one for one in public() if not isinstance(one.value, type)]
    return [*types_without_entry(), *(words for one in functions for words in words_missing(one))]


if __name__ == "__main__":
    found = faults()
    print("\n".join(found) or "nothing is missing")
    sys.exit(bool(found))
