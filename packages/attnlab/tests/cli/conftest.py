"""Commands, run in this process as a person types them."""

import shlex

import pytest

from attnlab.cli import main


@pytest.fixture
def run(capsys):
    """Run a typed command, with more words; return its status, its output and its errors."""

    def run(typed, *more):
        capsys.readouterr()
        status = main([*shlex.split(typed), *map(str, more)])
        return status, *capsys.readouterr()

    return run
