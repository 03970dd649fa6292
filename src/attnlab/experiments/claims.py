"""Claims: what an experiment says, what was measured, and the bound that decides."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
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
    """Read claims back from JSON; a run without a claim shows nothing, so an empty list is refused too.

    Raises:
        CouldNotRun: this is not a list of claims, each with exactly its texts and its `passed`.
    """
    if not isinstance(values, list) or not values:
        raise CouldNotRun(f"expected a list of one claim or more; got {str(values)[:60]}.")
    return tuple(_read_claim(value) for value in values)


def _read_claim(value: Any) -> Claim:
    kinds = {each.name: bool if each.name == "passed" else str for each in fields(Claim)}
    if not isinstance(value, dict) or value.keys() != kinds.keys():
        raise CouldNotRun(f"expected claims with {', '.join(kinds)}; got {str(value)[:60]}.")
    for name, kind in kinds.items():
        if not isinstance(value[name], kind):
            wanted = "true or false" if kind is bool else "a text"
            raise CouldNotRun(f"expected the {name} of a claim to be {wanted}; got {str(value[name])[:60]}.")
    return Claim(**value)


def verdict(claims: Sequence[Claim] | Sequence[Mapping[str, Any]]) -> str:
    """Say in words how many claims hold.

    >>> verdict([Claim("a", "", "", "", True), Claim("b", "", "", "", False)])
    '1 of 2 claims failed'
    """
    passed = [claim.passed if isinstance(claim, Claim) else claim["passed"] for claim in claims]
    failed, total = passed.count(False), len(passed)
    noun, hold = ("claim", "holds") if total == 1 else ("claims", "hold")
    return f"{failed} of {total} {noun} failed" if failed else f"{total} of {total} {noun} {hold}"
