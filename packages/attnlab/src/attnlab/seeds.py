"""Randomness is passed, never global: one seed, and a generator of its own for each purpose.

`generator(seed, "data")` and `generator(seed, "model")` are independent streams, so that asking for
one more number here changes nothing there. `isolated` lends a seed to code that can only use
torch's global generator (module initialisation, dropout) and gives the global state back untouched.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeAlias

import torch
from torch import Tensor

from attnlab.errors import WrongUsage, is_integer

RandomState: TypeAlias = tuple[Tensor, list[Tensor], Tensor | None]
"""The global generators' states: the processor's, every CUDA device's, Apple's (None: no MPS)."""


def stream_seed(seed: int, *purpose: str | int) -> int:
    """Derive a 63-bit seed for one purpose (SHA-256 of the names: the same on every machine).

    A number counts as its text; "a/b" is another purpose than "a", "b".

    >>> stream_seed(0, "data") == stream_seed(0, "data")
    True
    >>> stream_seed(0, "data") == stream_seed(1, "data")
    False
    """
    if not is_integer(seed) or not 0 <= seed < 2**63:
        raise WrongUsage(f"a seed must be an integer from 0 to 2**63 - 1; got {seed!r}.")
    names = [str(name).replace("%", "%25").replace("/", "%2F") for name in (seed, *purpose)]
    digest = hashlib.sha256("/".join(["attnlab", *names]).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def generator(
    seed: int, *purpose: str | int, device: torch.device | str = "cpu"
) -> torch.Generator:
    """Make the generator of one purpose."""
    return torch.Generator(device=device).manual_seed(stream_seed(seed, *purpose))


@contextmanager
def isolated(seed: int, *purpose: str | int) -> Iterator[None]:
    """Seed torch's global generators inside the `with`, and restore them after it."""
    if torch.cuda.is_available():
        torch.cuda.init()  # type: ignore[no-untyped-call]  # a GPU not in use yet would keep the seed
    with random_state_restored():
        torch.manual_seed(stream_seed(seed, *purpose))
        yield


@contextmanager
def random_state_restored() -> Iterator[None]:
    """Restore torch's global generators after the `with`, on every device that is in use."""
    state = random_state()
    try:
        yield
    finally:
        set_random_state(state)


def random_state() -> RandomState:
    """Return the state of torch's global generators: the processor's, every GPU's, Apple's."""
    gpus, apple = [], None
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        gpus = torch.cuda.get_rng_state_all()
    if torch.backends.mps.is_available():
        apple = torch.mps.get_rng_state()
    return torch.get_rng_state(), gpus, apple


def set_random_state(state: RandomState) -> None:
    """Set torch's global generators to a state that `random_state` returned."""
    processor, gpus, apple = state
    torch.set_rng_state(processor)
    torch.cuda.set_rng_state_all(gpus)
    if apple is not None:
        torch.mps.set_rng_state(apple)
