"""How claims are shown: a mark and a word for each, and how many of them hold.

A claim's `passed` is True, False, or None if the measurement does not decide it.
"""

from collections.abc import Sequence
from typing import NamedTuple

from attnlab.draw.markup import plural

__all__ = ["ClaimState", "claim_state", "judge_all", "say_all"]


class ClaimState(NamedTuple):
    """How a claim's `passed` is shown: CSS class, mark and word."""

    style: str
    mark: str
    word: str


_STATES = {
    True: ClaimState("passed", "✓", "holds"),
    False: ClaimState("failed", "✗", "failed"),
    None: ClaimState("undecided", "?", "undecided"),
}


def claim_state(passed: bool | None) -> ClaimState:
    """Return how one claim is shown."""
    return _STATES[passed]


def judge_all(passed: Sequence[bool | None]) -> bool | None:
    """Combine claims: False if any failed, else None if any is undecided, else True."""
    if False in passed:
        return False
    if None in passed:
        return None
    return True


def say_all(passed: Sequence[bool | None]) -> str:
    """Return how many claims hold, or how many failed, and how many are undecided, in words.

    >>> say_all([True, True]), say_all([True, None]), say_all([False, True, None])
    ('2 of 2 claims hold', '1 of 2 claims hold, 1 undecided', '1 of 3 claims failed, 1 undecided')
    """
    total, undecided, failed = len(passed), passed.count(None), passed.count(False)
    words = f"of {total:,} {plural(total, 'claim')}"
    if failed:
        words = f"{failed:,} {words} failed"
    else:
        words = f"{passed.count(True):,} {words} {'holds' if total == 1 else 'hold'}"
    return f"{words}, {undecided:,} undecided" if undecided else words
