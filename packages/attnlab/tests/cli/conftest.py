"""Commands, run in this process as a person types them."""

import functools
import shlex

import pytest

from attnlab.cli import main
from attnlab.experiments import model_loader


@pytest.fixture
def run(capsys):
    """Run a typed command, with more words; return its status, its output and its errors."""

    def run(typed, *more):
        capsys.readouterr()
        status = main([*shlex.split(typed), *map(str, more)])
        return status, *capsys.readouterr()

    return run


@pytest.fixture(scope="module")
def without_figures():
    """The runs of a module's own fixtures draw nothing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("attnlab.draw.figures.is_available", lambda: False)
        yield


@pytest.fixture(scope="module")
def opened_once():
    """A pretrained model is opened once for all tests of a module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            model_loader, "load_pretrained", functools.cache(model_loader.load_pretrained)
        )
        yield


@pytest.fixture
def refused(run):
    """Run a typed command that must end in one sentence with these words, and a status."""

    def refused(typed, status, told):
        found, out, err = run(typed)
        assert (found, out) == (status, ""), err
        assert told in " ".join(err.split())
        assert (err.startswith("attnlab: "), err.count("\n")) == (True, 1), err

    return refused
