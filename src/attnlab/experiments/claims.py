"""Claims: a statement of an experiment, what was measured for it, and the bound that decides."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from attnlab.draw.claims import say_all
from attnlab.errors import CouldNotRun

__all__ = ["Claim", "read_claims", "verdict"]


@dataclass(frozen=True)
class Claim:
    """One claim; `measured` and `bound` are texts for people.

    `passed` is None where the measurement decides neither for the claim nor against it.
    """

    name: str
    statement: str
    measured: str
    bound: str
    passed: bool | None

    def to_mapping(self) -> dict[str, Any]:
        """Return the claim as plain values for JSON."""
        return asdict(self)


def read_claims(values: Any) -> tuple[Claim, ...]:
    """Read claims back from JSON; an empty list is refused, since every run makes claims.

    Raises:
        CouldNotRun: this is not a list of claims, each with exactly its texts and its `passed`.
    """
    if not isinstance(values, list) or not values:
        raise CouldNotRun(f"expected a list of one claim or more; got {str(values)[:60]}.")
    return tuple(_read_claim(value) for value in values)


def _read_claim(value: Any) -> Claim:
    names = [each.name for each in fields(Claim)]
    if not isinstance(value, dict) or value.keys() != set(names):
        raise CouldNotRun(f"expected claims with {', '.join(names)}; got {str(value)[:60]}.")
    for name in names:
        if name == "passed":
            is_right, wanted = isinstance(value[name], bool | None), "true, false or null"
        else:
            is_right, wanted = isinstance(value[name], str), "a text"
        if not is_right:
            raise CouldNotRun(
                f"expected the {name} of a claim to be {wanted}; got {str(value[name])[:60]}."
            )
    return Claim(**value)


def verdict(claims: Sequence[Claim]) -> str:
    """Count in words the claims that hold, or those that failed.

    >>> verdict([Claim("a", "", "", "", True), Claim("b", "", "", "", False)])
    '1 of 2 claims failed'
    """
    return say_all([claim.passed for claim in claims])
