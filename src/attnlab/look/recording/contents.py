"""The contents of a recording: the values at each site, and the tokens that were read."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from attnlab.errors import WrongUsage, did_you_mean
from attnlab.look.recording.budget import Budget
from attnlab.look.recording.kept_call import Grown, KeptMask, Made, working_bytes
from attnlab.look.recording.tokens import Read, Vocabulary

__all__ = ["Part", "Passed", "Store", "join"]


def join(path: str, name: str) -> str:
    """Return the name of a site in a part; the model itself has no path."""
    return f"{path}.{name}" if path else name


@dataclass
class Part:
    """The beginning of a tensor that has grown since: keys or values under a cache."""

    grown: Grown
    length: int

    def tensor(self) -> Tensor:
        """As it was then."""
        return self.grown.store[..., : self.length, :]


@dataclass
class Passed:
    """One value at a site.

    held: the value, or what it is made from, or a part of something that has grown, or what
    `reduce` made of it. query, key: the numbers of what was read on either side. mask: who could
    look at whom, for attention's sites. gradient: what has come back; `awaits` says that it was
    asked for and can come.
    """

    held: Any
    query: int | None = None
    key: int | None = None
    mask: KeptMask | None = None
    gradient: Tensor | None = None
    awaits: bool = False

    def shape(self) -> tuple[int, ...] | None:
        """Of the value, without making it; None for what has none."""
        if isinstance(self.held, Made):
            return self.held.call.shape
        if isinstance(self.held, KeptMask):
            return self.held.shape
        found = self.held.tensor() if isinstance(self.held, Part) else self.held
        return tuple(found.shape) if isinstance(found, Tensor) else None

    def value(self, site: str, budget: Budget) -> Any:
        """The value, made if need be, within the budget."""
        if isinstance(self.held, Part):
            return self.held.tensor()
        if isinstance(self.held, KeptMask):
            if isinstance(self.held.mask, Tensor):
                return self.held.mask
            budget.allow(site, self.held.working_bytes())
            found = self.held.tensor()
            if found is not None:
                budget.made(found)
            return found
        if not isinstance(self.held, Made):
            return self.held
        call, what = self.held
        budget.allow(site, working_bytes(call.shape, call.query.dtype))
        made = call.make(what)
        budget.made(made)
        return made


@dataclass
class Store:
    """All contents of a recording: its sites, their values, the tokens read.

    heads: how many heads look, by the part. gradients: the sites of which they were asked for.
    """

    sites: tuple[str, ...]
    budget: Budget
    vocabulary: Vocabulary | None
    model: dict[str, Any]
    passed: dict[str, list[Passed]] = field(default_factory=dict)
    reads: list[Read] = field(default_factory=list)
    heads: dict[str, int] = field(default_factory=dict)
    edits: tuple[dict[str, Any], ...] = ()
    gradients: frozenset[str] = frozenset()

    def add(self, site: str, passed: Passed) -> None:
        """Put what passed a site behind what passed it before."""
        self.passed.setdefault(site, []).append(passed)

    def nbytes(self) -> int:
        """Bytes of all that is held, what is shared once."""
        found: dict[int, int] = {}
        for passed in (each for entries in self.passed.values() for each in entries):
            for tensor in (
                *_tensors(passed.held),
                *_tensors(passed.gradient),
                *_tensors(passed.mask),
            ):
                found[tensor.data_ptr()] = tensor.nbytes
        read = sum(
            each.nbytes for one in self.reads for each in (one.ids, one.real) if each is not None
        )
        return sum(found.values()) + read

    def of(self, site: str) -> list[Passed]:
        """Return what passed a site, in order; there is at least one.

        Raises:
            WrongUsage: the site was not asked for, or nothing has passed it.
        """
        if site in self.passed:
            return self.passed[site]
        if site not in self.sites:
            raise WrongUsage(f"{site!r} is not recorded; {did_you_mean(str(site), self.sites)}")
        if self.passed and site.endswith("mask"):
            raise WrongUsage(f"no mask has passed {site!r}: every query could look at every key.")
        raise WrongUsage(
            f"nothing has passed {site!r} yet; run the model inside the recording's context."
        )


def _tensors(held: Any) -> Iterator[Tensor]:
    if isinstance(held, Tensor):
        yield held
    elif isinstance(held, Part):
        yield held.grown.store
    elif isinstance(held, Grown):
        yield held.store
    elif isinstance(held, Made):
        yield from _tensors(held.call)
    elif isinstance(held, tuple):  # a call, a mask, or what `reduce` made
        for each in held:
            yield from _tensors(each)
