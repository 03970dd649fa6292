"""The layouts; compiled steps are few here, so that to compile them quickly is what counts."""

import pytest

from attnlab.native import compiler_name

from .cases import LAYOUTS, make_sequential


@pytest.fixture(autouse=True)
def _quickly_compiled(monkeypatch):
    monkeypatch.setenv("CXXFLAGS", "-O0")


@pytest.fixture(params=LAYOUTS)
def make(request):
    """Each layout."""
    if request.param == "sequential":
        return make_sequential
    if request.param == "compiled lanes" and compiler_name() is None:
        pytest.skip("there is no C++ compiler here")
    return LAYOUTS[request.param]
