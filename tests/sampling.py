"""Long lists of cases: some of them by default, all of them in `make test-slow`.

Faults that are planted show that a check can fail, which does not change while the check stays as
it is: by default one of each kind is planted.
"""

from collections.abc import Callable, Collection, Iterable
from typing import Any

import pytest


def sampled(cases: Iterable[Any], always: int | Collection[Any]) -> list[Any]:
    """Mark cases as slow, for a test that takes one argument of them.

    always: how many of the first ones run by default, or which.
    """
    cases = list(cases)
    kept = cases[:always] if isinstance(always, int) else always
    assert not [case for case in kept if case not in cases], f"not among the cases: {kept}"
    return [case if case in kept else pytest.param(case, marks=pytest.mark.slow) for case in cases]


def first_of_each(cases: Iterable[Any], kind: Callable[[Any], Any]) -> list[Any]:
    """Mark all cases as slow but the first of each kind, also for a test of several arguments."""
    found, seen = [], set()
    for case in cases:
        values = case if type(case) is tuple else (case,)
        found.append(case if kind(case) not in seen else pytest.param(*values, marks=SLOW))
        seen.add(kind(case))
    return found


SLOW = pytest.mark.slow
