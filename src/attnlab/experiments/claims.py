"""Claims: what an experiment says, what was measured, and the bound that decides."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from attnlab.errors import CouldNotRun

__all__ = ["Claim", "read_claims", "verdict"]


@dataclass(frozen=True)
class Claim:
    """One claim; `measured` and `bound` are texts for people, `passed` is what was found."""

    name: str
    statement: str
    measured: str
    bound: str
    passed: bool

    def to_mapping(self) -> dict[str, Any]:
        """Return the claim as plain values for JSON."""
        return asdict(self)


def read_claims(values: Any) -> tuple[Claim, ...]:
    """Read claims back from JSON."""
    try:
        claims = tuple(Claim(**value) for value in values)
        if not all(isinstance(claim.passed, bool) for claim in claims):
            raise TypeError("passed must be true or false")
    except (TypeError, AttributeError) as error:
        raise CouldNotRun(f"claims.json does not hold a list of claims: {error}.") from None
    return claims


def verdict(claims: Sequence[Claim] | Sequence[Mapping[str, Any]]) -> str:
    """Say in words how many claims hold.

    >>> verdict([Claim("a", "", "", "", True), Claim("b", "", "", "", False)])
    '1 of 2 claims failed'
    """
    passed = [claim.passed if isinstance(claim, Claim) else claim["passed"] for claim in claims]
    failed = passed.count(False)
    return f"{failed} of {len(passed)} claims failed" if failed else f"{len(passed)} of {len(passed)} claims hold"
