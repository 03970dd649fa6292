"""Claims: what was stated, measured and required; a mark and a word for each, and how many hold."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from attnlab.display import plural


@dataclass(frozen=True)
class Claim:
    """One claim of a run, with what was measured.

    name: of the claim · statement: a sentence that could be false · measured, bound: texts for
    people · passed: None where the measurement decides neither for the claim nor against it ·
    is_self_check: it tests attnlab itself, such as whether later tokens leak in; those that hold
    are shown as one line.
    """

    name: str
    statement: str
    measured: str
    bound: str
    passed: bool | None
    is_self_check: bool = False

    @property
    def is_folded(self) -> bool:
        """Is this a self-check that holds?"""
        return self.is_self_check and self.passed is True

    def to_mapping(self) -> dict[str, str | bool | None]:
        """Return the claim as plain values for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class ClaimState:
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
    if undecided:
        words += f", {undecided:,} undecided"
    return words


def count_claims(claims: Sequence[Claim]) -> str:
    """Return how many claims hold, in words; self-checks that hold are counted apart.

    >>> claim, check = (Claim("a", "", "", "", True, is_check) for is_check in (False, True))
    >>> count_claims([claim, check])
    '1 of 1 claim holds, self-checks: 1 of 1'
    """
    passed = [claim.passed for claim in claims if not claim.is_folded]
    words = [say_all(passed)] if passed else []
    total = sum(claim.is_self_check for claim in claims)
    if total:
        words.append(f"self-checks: {len(claims) - len(passed)} of {total}")
    return ", ".join(words)


def sum_up(claims: Sequence[Claim], without: str) -> ClaimState:
    """Return how all claims together are shown; `without` are the words if there is none.

    >>> sum_up([Claim("a", "", "", "", True)], "No claims").word
    '1 of 1 claim holds'
    """
    passed = [claim.passed for claim in claims]
    if not passed:
        return ClaimState("open", "–", without)
    state = claim_state(judge_all(passed))
    return ClaimState(state.style, state.mark, count_claims(claims))
