"""Long lists of cases: some of them by default, all of them in `make test-slow`."""

from collections.abc import Iterable
from typing import Any

import pytest


def sampled(cases: Iterable[Any], number: int) -> list[Any]:
    """Mark all cases but the first ones as slow, for a test that takes one argument of them."""
    return [
        case if place < number else pytest.param(case, marks=pytest.mark.slow)
        for place, case in enumerate(cases)
    ]
