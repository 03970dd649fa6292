"""Compiled steps are few here: to compile them quickly counts for more than that they are quick."""

import pytest


@pytest.fixture(autouse=True)
def _quickly_compiled(monkeypatch):
    monkeypatch.setenv("CXXFLAGS", "-O0")
