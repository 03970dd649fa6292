"""Facts of a head, by numbers that can be redone by hand, and however the rows arrive."""

import numpy as np
import pytest

from attnlab.draw.attention.facts import HeadFacts
from attnlab.draw.attention.pattern import Pattern

ROWS = np.array([[0.5, -0.25, 0.75], [0.25, 0.5, 0.25], [0.0, 1.0, 0.0]], np.float32)


class _Square:
    query_tokens = key_tokens = ("a", "b", "c")
    num_keys = 3


@pytest.mark.parametrize("parts", [[3], [1, 2], [2, 1], [1, 1, 1]])
def test_facts_are_those_of_all_rows_however_many_come_at_a_time(parts):
    pattern: Pattern = _Square()
    facts, first = HeadFacts(pattern), 0
    for size in parts:
        facts.add(ROWS[first : first + size], first)
        first += size
    means = facts.means()
    assert facts.least == -0.25
    assert means["largest"] == pytest.approx((0.75 + 0.5 + 1.0) / 3)
    assert means["own"] == pytest.approx((0.5 + 0.5 + 0.0) / 3)
    # Before the first token there is none.
    assert means["previous"] == pytest.approx((0.0 + 0.25 + 1.0) / 3)
