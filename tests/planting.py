"""Planting a fault: for a moment, a module runs other source than it has.

`planted` takes an old snippet that occurs exactly once in the module's source and the new one for
its place, compiles the changed source and swaps the code of the functions that differ, in place:
whoever has imported them already runs the fault too.
"""

import functools
import importlib
import inspect
import re
import tempfile
import types
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from attnlab.errors import AttnlabError
from attnlab.native import attention
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
    classes = [each for each in vars(module).values() if isinstance(each, type)]
    for holder in (module, *(each for each in classes if each.__module__ == module.__name__)):
        for member in vars(holder).values():
            for wrapped in ("__func__", "fget"):  # of class methods, of properties
                member = getattr(member, wrapped, None) or member
            function = inspect.unwrap(member) if callable(member) else None
            is_function = isinstance(function, types.FunctionType)
            if is_function and function.__module__ == module.__name__:
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
            # what a decorator made stands in no source
            if name in sound and _differs(sound[name], faulty[name]):
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
    pairs = zip(gaps, words[1:], strict=True)
    return pattern + "".join(gap + re.escape(word) for gap, word in pairs)


def _differs(one, other):
    def essence(code):
        constants = [
            essence(c) if isinstance(c, types.CodeType) else (type(c), c) for c in code.co_consts
        ]
        return (code.co_code, constants, code.co_names, code.co_varnames)

    return essence(one) != essence(other)


NOTICED = (
    AssertionError,
    AttnlabError,
    RuntimeError,
    ValueError,
    LookupError,
    pytest.fail.Exception,
)
"""How a check fails; any other error would be luck."""


@contextmanager
def noticed(module, old, new):
    """Plant a fault in a module of attnlab: what runs meanwhile must fail."""
    with planted(f"attnlab.{module}", old, new), pytest.raises(NOTICED):
        yield


@contextmanager
def noticed_in_kernel(old, new):
    """Plant a fault in the compiled rows of attention: what runs meanwhile must fail."""
    compiled = attention.compiled

    def broken(source, **how):
        assert source.count(old) == 1, f"the snippet occurs {source.count(old)} times: {old!r}"
        return compiled(source.replace(old, new), **how)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CXXFLAGS", "-O0")
        patch.setattr(attention, "compiled", broken)
        library = attention.library.__wrapped__()
        assert not isinstance(library, str), library
        patch.setattr(attention, "library", lambda: library)
        with pytest.raises(NOTICED):
            yield


class Fault(NamedTuple):
    """A mistake in a module of attnlab, and the check that must see it, or its name."""

    name: str
    module: str
    check: Any
    old: str
    new: str


def faults_in(table, package=""):
    """Read a table of faults.

    A fault is a line `what is wrong | module | check`, then the old lines after a minus and the new
    ones after a plus.
    """
    faults: list[Fault] = []
    for entry in re.split(r"\n(?=\w)", table.strip()):
        head, *lines = entry.splitlines()
        name, module, check = head.split(" | ")
        old, new = ("\n".join(line[2:] for line in lines if line[0] == sign) for sign in "-+")
        faults.append(Fault(name, package + module, check, old, new))
    return faults


def faults_of(tables, package=""):
    """List faults that stand as (old, new, check, what it is called with) under their modules."""
    return [
        Fault(f"{module} {place}", package + module, functools.partial(check, *case), old, new)
        for module, faults in tables.items()
        for place, (old, new, check, *case) in enumerate(faults)
    ]


def fault_tests(faults, run=lambda check: check()):
    """Make two tests: every fault has its place in the code, and its check fails with it.

    By default the first fault of each module is planted, and code that was changed without its
    faults is noticed all the same.
    """
    faults = list(faults)

    def test_places():
        for fault in faults:
            file = importlib.import_module(f"attnlab.{fault.module}").__file__
            source = Path(str(file)).read_text(encoding="utf-8")
            replaced(source, fault.old, fault.new, fault.module)

    @pytest.mark.parametrize(
        "fault", first_of_each(faults, lambda fault: fault.module), ids=lambda fault: fault.name
    )
    def test_noticed(fault):
        with noticed(fault.module, fault.old, fault.new):
            run(fault.check)

    return test_places, test_noticed


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
