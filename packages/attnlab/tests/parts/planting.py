"""Planting a fault: for a moment, a module runs other source than it has.

`planted` takes an old snippet that occurs exactly once in the module's source and the new one for
its place, compiles the changed source and swaps the code of the functions that differ, in place:
whoever has imported them already runs the fault too.
"""

import importlib
import inspect
import re
import tempfile
import types
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.sampling import first_of_each


def _codes(code):
    """Functions and methods by qualified name; what is defined within a function belongs to it."""
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            if constant.co_flags & inspect.CO_NEWLOCALS:
                yield constant.co_qualname, constant
            else:  # a class body
                yield from _codes(constant)


def _functions(module):
    holders = [
        module,
        *(
            c
            for c in vars(module).values()
            if isinstance(c, type) and c.__module__ == module.__name__
        ),
    ]
    for holder in holders:
        for member in vars(holder).values():
            for wrapped in ("__func__", "fget"):  # of class methods, of properties
                member = getattr(member, wrapped, None) or member
            if callable(member):
                function = inspect.unwrap(member)
                if (
                    isinstance(function, types.FunctionType)
                    and function.__module__ == module.__name__
                ):
                    yield function


@contextmanager
def planted(module_name, old, new):
    """Run with the fault; the names of the functions that have it are what `as` gives."""
    module = importlib.import_module(module_name)
    with open(module.__file__, encoding="utf-8") as file:
        source = file.read()
    sound, faulty = (
        dict(_codes(compile(text, module.__file__, "exec")))
        for text in (source, replaced(source, old, new, module_name))
    )
    swapped: list[tuple[types.FunctionType, types.CodeType]] = []
    try:
        for function in _functions(module):
            name = function.__code__.co_qualname
            if name in sound and _differs(
                sound[name], faulty[name]
            ):  # what a decorator made stands in no source
                swapped.append((function, function.__code__))
                function.__code__ = faulty[name]
        assert swapped, f"the snippet is in no function of {module_name}: {old!r}"
        yield [function.__qualname__ for function, _ in swapped]
    finally:
        for function, code in swapped:
            function.__code__ = code


def replaced(source, old, new, where):
    """Put a new snippet in the place of an old one, however its lines are broken."""
    if source.count(old) == 1:
        return source.replace(old, new)
    found = list(re.finditer(_anyhow_broken(old), source))
    assert len(found) == 1, f"the snippet occurs {len(found)} times in {where}: {old!r}"
    return source[: found[0].start()] + new + source[found[0].end() :]


def _anyhow_broken(snippet):
    """Return a pattern of a snippet, however its lines are broken."""
    words = re.findall(r"\w+|[^\w\s]", snippet)
    gaps = [r",?\s*" if word in ")]}" else r"\s*" for word in words[1:]]
    pattern = re.escape(words[0])
    return pattern + "".join(
        gap + re.escape(word) for gap, word in zip(gaps, words[1:], strict=True)
    )


def _differs(one, other):
    def essence(code):
        constants = [
            essence(c) if isinstance(c, types.CodeType) else (type(c), c) for c in code.co_consts
        ]
        return (code.co_code, constants, code.co_names, code.co_varnames)

    return essence(one) != essence(other)


class Fault(NamedTuple):
    """A mistake in a module, and the name of the check that must see it."""

    name: str
    module: str
    check: str
    old: str
    new: str

    def __str__(self):
        return self.name


def each_fault(table, package="attnlab"):
    """Plant the faults of a table, by default the first one of each module."""
    cases = first_of_each(faults_in(table, package), lambda fault: fault.module)
    return pytest.mark.parametrize("fault", cases, ids=str)


def assert_all_stand_in_the_code(faults):
    """Each fault has a place: code that was changed without its faults is noticed by default."""
    for fault in faults:
        file = importlib.import_module(fault.module).__file__
        assert file is not None
        replaced(Path(file).read_text(encoding="utf-8"), fault.old, fault.new, fault.module)


def faults_in(table, package="attnlab"):
    """Read a table of faults, the parameters of a test.

    A fault is a line `what is wrong | module | check`, then the old lines after a minus and the new
    ones after a plus.
    """
    faults: list[Fault] = []
    for entry in re.split(r"\n(?=\w)", table.strip()):
        head, *lines = entry.splitlines()
        name, module, check = head.split(" | ")
        old, new = ("\n".join(line[2:] for line in lines if line[0] == sign) for sign in "-+")
        faults.append(Fault(name, f"{package}.{module}", check, old, new))
    return faults


def run_test(test):
    """Run a test, or a partial one, with what its own module's fixtures make."""
    module = inspect.getmodule(getattr(test, "func", test))
    with ExitStack() as stack:

        def made(name):
            if name == "monkeypatch":
                return stack.enter_context(pytest.MonkeyPatch.context())
            if name == "tmp_path":
                return Path(stack.enter_context(tempfile.TemporaryDirectory()))
            if name == "tmp_path_factory":
                return types.SimpleNamespace(mktemp=lambda _: made("tmp_path"))
            return filled(getattr(module, name).__wrapped__)

        def filled(function):
            given = {}
            for name, each in inspect.signature(function).parameters.items():
                is_many = each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
                if each.default is each.empty and not is_many:
                    given[name] = made(name)
            return function(**given)

        filled(test)
