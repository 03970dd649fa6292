"""Every example in a docstring of the package is run, and there are some."""

import doctest
import importlib
import pkgutil
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import attnlab
import attnlab_course
import attnlab_lab
from attnlab.edits.edit import edit_kinds

MODULES = sorted(
    module.name
    for package in (attnlab, attnlab_course, attnlab_lab)
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    if not module.name.rsplit(".", 1)[-1].startswith("__")
    and "\n    >>> " in Path(find_spec(module.name).origin).read_text()
)


@pytest.fixture(autouse=True)
def edits_as_before(monkeypatch):
    """Forget the edit that an example defines."""
    monkeypatch.setattr(sys.modules[edit_kinds.__module__], "_KINDS", dict(edit_kinds()))


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_are_true(name):
    module = importlib.import_module(name)
    result = doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert result.failed == 0, "the output above says which example"
    assert result.attempted


def test_the_package_has_modules_and_they_have_examples():
    floors = {"errors", "seeds", "shapes", "parts.attend", "parts.masks"}
    assert {f"attnlab.{name}" for name in floors} <= set(MODULES)
    assert len([name for name in MODULES if name.startswith("attnlab.parts.")]) >= 5


def test_an_example_that_is_not_true_would_be_noticed():
    test = doctest.DocTestParser().get_doctest(">>> 1 + 1\n3\n", {}, "wrong", None, 0)
    runner = doctest.DocTestRunner(verbose=False)
    assert runner.run(test, out=lambda _: None).failed == 1
