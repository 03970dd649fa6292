"""Every example in a docstring of the package is run, and there are some."""

import doctest
import importlib
import pkgutil
from importlib.util import find_spec
from pathlib import Path

import pytest

import attnlab
import attnlab_course
import attnlab_lab

MODULES = sorted(
    module.name
    for package in (attnlab, attnlab_course, attnlab_lab)
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    if not module.name.rsplit(".", 1)[-1].startswith("__")
    and ">>> " in Path(find_spec(module.name).origin).read_text()
)


def examples_in(name: str) -> int:
    result = doctest.testmod(
        importlib.import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE
    )
    assert result.failed == 0, (
        f"{result.failed} examples of {name} are not true; the output above says which"
    )
    return result.attempted


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_are_true(name):
    examples_in(name)


def test_the_package_has_modules_and_they_have_examples():
    floors = {
        "attnlab.errors",
        "attnlab.seeds",
        "attnlab.shapes",
        "attnlab.parts.attend",
        "attnlab.parts.masks",
    }
    assert floors <= set(MODULES)
    assert all(examples_in(name) > 0 for name in floors)
    assert sum(examples_in(name) for name in MODULES if name.startswith("attnlab.parts.")) >= 12


def test_an_example_that_is_not_true_would_be_noticed():
    test = doctest.DocTestParser().get_doctest(">>> 1 + 1\n3\n", {}, "wrong", None, 0)
    runner = doctest.DocTestRunner(verbose=False)
    assert runner.run(test, out=lambda _: None).failed == 1
