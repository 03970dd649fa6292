"""How claims are told wherever they are shown: the mark and the word of each, and how many of them hold.

A claim's `passed` is True, False, or None: then what was measured decides neither for it nor against it.
"""

from collections.abc import Sequence
from typing import NamedTuple

from attnlab.draw.markup import plural

__all__ = ["ClaimState", "claim_state", "judge_all", "say_all"]


class ClaimState(NamedTuple):
    """What is shown of a claim's `passed`: the class that the style knows, a mark, a word."""

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
    """Judge several claims as one: False if any failed, else None if any is undecided, else True."""
    if False in passed:
        return False
    return None if None in passed else True


def say_all(passed: Sequence[bool | None]) -> str:
    """Say how many claims hold, or how many failed, and how many are undecided.

    >>> say_all([True, True]), say_all([True, None]), say_all([False, True, None])
    ('2 of 2 claims hold', '1 of 2 claims hold, 1 undecided', '1 of 3 claims failed, 1 undecided')
    """
    total, undecided = len(passed), passed.count(None)
    if failed := passed.count(False):
        counted = f"{failed:,} of {total:,} {plural(total, 'claim')} failed"
    else:
        hold = "holds" if total == 1 else "hold"
        counted = f"{passed.count(True):,} of {total:,} {plural(total, 'claim')} {hold}"
    return f"{counted}, {undecided:,} undecided" if undecided else counted
