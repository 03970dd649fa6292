"""Randomness is passed, never global: one seed, and a generator of its own for each purpose.

`generator(seed, "data")` and `generator(seed, "model")` are independent streams, so that asking for
one more number here changes nothing there. `isolated` lends a seed to code that can only use
torch's global generator (module initialisation, dropout) and gives the global state back untouched.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from attnlab.errors import WrongUsage, is_integer


def stream_seed(seed: int, *purpose: str | int) -> int:
    """Derive a 63-bit seed for one purpose (SHA-256 of the names: the same on every machine).

    >>> stream_seed(0, "data") == stream_seed(0, "data")
    True
    >>> stream_seed(0, "data") == stream_seed(1, "data")
    False
    """
    if not is_integer(seed) or not 0 <= seed < 2**63:
        raise WrongUsage(f"a seed must be an integer from 0 to 2**63 - 1; got {seed!r}.")
    digest = hashlib.sha256("/".join(map(str, ("attnlab", seed, *purpose))).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def generator(
    seed: int, *purpose: str | int, device: torch.device | str = "cpu"
) -> torch.Generator:
    """Make the generator of one purpose."""
    return torch.Generator(device=device).manual_seed(stream_seed(seed, *purpose))


@contextmanager
def isolated(seed: int, *purpose: str | int) -> Iterator[None]:
    """Seed torch's global generators inside the `with`, and restore them after it."""
    with torch.random.fork_rng():
        torch.manual_seed(stream_seed(seed, *purpose))
        yield
