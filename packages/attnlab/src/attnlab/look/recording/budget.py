"""A budget for a recording: how many bytes it may hold, checked before they are allocated."""

import re

import torch

from attnlab.errors import CouldNotRun, WrongUsage, is_integer
from attnlab.memory import free_memory

SHARE = 0.5
"""The share of the available memory that a recording may take by default."""

_UNKNOWN = 2 * 2**30  # where the free memory is unknown
_UNITS = {
    "": 1, "b": 1, "kb": 1000, "mb": 1000**2, "gb": 1000**3, "tb": 1000**4,
    "kib": 1024, "mib": 1024**2, "gib": 1024**3, "tib": 1024**4,
}  # fmt: skip


class Budget:
    """A limit of bytes, and the bytes held under it."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.kept: dict[str, int] = {}

    @property
    def held(self) -> int:
        """The bytes of all kept values."""
        return sum(self.kept.values())

    def take(self, site: str, size: int) -> None:
        """Count the bytes of a value that is about to be kept for a site.

        Raises:
            CouldNotRun: they would be too many; nothing is counted then.
        """
        self._check(
            f"keeping {site} ({in_words(size)})",
            size,
            "Ask for fewer sites, keep a summary instead of the weights (reduce=), run the model "
            "on fewer inputs at a time, or raise budget=.",
        )
        self.kept[site] = self.kept.get(site, 0) + size

    def give(self, site: str, size: int) -> None:
        """Subtract the bytes of a value that is no longer kept."""
        self.kept[site] -= size

    def allow(self, site: str, size: int) -> None:
        """Check that a value can be computed on demand.

        Raises:
            CouldNotRun: it would not fit beside what is held.
        """
        self._check(
            f"making {site} takes {in_words(size)}, which",
            size,
            "Ask for a part with tile(site, head=, queries=, keys=), or raise budget=.",
        )

    def _check(self, what: str, size: int, advice: str) -> None:
        total = self.held + size
        if total <= self.limit:
            return
        held = ""
        if self.kept:
            largest = max(self.kept, key=self.kept.__getitem__)
            held = f"The largest held so far is {largest}, {in_words(self.kept[largest])}. "
        raise CouldNotRun(
            f"{what} would bring the recording to {in_words(total)}; its budget is "
            f"{in_words(self.limit)}. {held}{advice}"
        )


def to_bytes(budget: int | str | None, device: torch.device | str = "cpu") -> int:
    """Parse a budget: a number of bytes, words such as "2 GiB", or None for a share of what is
    available.

    >>> to_bytes("1.5 KiB")
    1536
    """
    if budget is None:
        available = free_memory(device)
        return _UNKNOWN if available is None else int(SHARE * available)
    if isinstance(budget, str):
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", budget.lower())
        if match and match[2] in _UNITS:
            return int(float(match[1]) * _UNITS[match[2]])
    elif is_integer(budget) and budget >= 0:
        return budget
    raise WrongUsage(f'budget is a number of bytes or a text such as "2 GiB"; got {budget!r}.')


def in_words(size: int) -> str:
    """Write a number of bytes.

    >>> in_words(1536)
    '1.5 KiB'
    """
    power = min((max(size, 1).bit_length() - 1) // 10, 4)
    if not power:
        return f"{size} B"
    return f"{size / 1024**power:.1f} {('', 'Ki', 'Mi', 'Gi', 'Ti')[power]}B"
