"""Claims of an experiment as read from its folder, and how many hold in words."""

from collections.abc import Sequence
from typing import Any

from attnlab.draw.claims import Claim as Claim
from attnlab.draw.claims import count_claims as count_claims
from attnlab.draw.json_form import from_json
from attnlab.errors import WrongUsage


def read_claims(values: Any) -> tuple[Claim, ...]:
    """Read claims back from JSON; an empty list is refused, since every run makes claims.

    Raises:
        WrongUsage: this is not a list of claims, each with exactly its texts and its `passed`.
    """
    claims = tuple(from_json(Sequence[Claim], values, "claims"))
    if not claims:
        raise WrongUsage("claims: expected one or more, got none")
    return claims
