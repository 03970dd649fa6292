"""The contents of a recording: the values at each site, and the tokens that were read."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from attnlab.core.sizes import count_bytes
from attnlab.core.store import JsonObject
from attnlab.errors import WrongUsage, did_you_mean, not_none
from attnlab.look.recording.budget import Budget
from attnlab.look.recording.kept_call import (
    GrowingTensor,
    KeptCall,
    KeptMask,
    TensorPrefix,
    working_bytes,
)
from attnlab.look.recording.tokens import StackRead, Vocabulary
from attnlab.sites import in_our_words

_HEAD = re.compile(r"(L\d+H|\d+\.)\d+")
MADE = ("weights", "scores")
HAS_KEYS = (*MADE, "mask")
_WHAT_TO_DO = (
    'run the model inside the with, or record inputs at once: attnlab.record(model, "a text").'
)
NOTHING_YET = f"nothing has been recorded yet; {_WHAT_TO_DO}"
BY_HEAD = ("query", "key", "value", *HAS_KEYS, "heads")


@dataclass
class Passed:
    """One value at a site.

    held: the value, or its inputs (a `KeptCall`), or a part of a grown tensor, or the result of
    `reduce`. query, key: the numbers of the reads on either side. mask: at attention's sites.
    gradient: the sum of those that have arrived; `awaits`: one was requested and may arrive.
    """

    held: Any
    query: int | None = None
    key: int | None = None
    mask: KeptMask | None = None
    gradient: Tensor | None = None
    awaits: bool = False

    def shape(self) -> tuple[int, ...] | None:
        """Return the shape of the value without computing it; None for a reduced value."""
        if isinstance(self.held, Tensor | TensorPrefix | KeptMask | KeptCall):
            return tuple(self.held.shape)
        return None

    def lengths(self, name: str) -> tuple[int, int]:
        """Return the numbers of queries and of keys; 0 if a value of this name does not have
        them."""
        if self.mask is not None:
            return self.mask.num_queries, self.mask.num_keys
        shape = self.shape()
        if shape is None or len(shape) < 3:
            return 0, 0
        if name in HAS_KEYS:
            return shape[-2], shape[-1]
        if name in ("key", "value"):
            return 0, shape[-2]
        if name in ("query", "heads"):
            return shape[-2], 0
        return shape[-2], shape[-2]

    def value(self, site: str, budget: Budget) -> Any:
        """Return the value, computed if necessary, within the budget."""
        held = self.held
        if isinstance(held, TensorPrefix):
            return held.tensor()
        if isinstance(held, KeptMask) and not isinstance(held.mask, str):
            return held.mask
        if isinstance(held, KeptMask):
            budget.allow(site, held.working_bytes())
            return not_none(held.part())[0, 0]
        if isinstance(held, KeptCall):
            budget.allow(site, working_bytes(held.shape, held.query.dtype))
            return held.make()
        return held


@dataclass
class Store:
    """All contents of a recording: its sites, their values, the tokens read.

    heads: the number of query heads of each part. gradients: the sites whose gradients are kept.
    """

    sites: tuple[str, ...]
    budget: Budget
    vocabulary: Vocabulary | None
    model: JsonObject
    passed: dict[str, list[Passed]] = field(default_factory=dict)
    reads: list[StackRead] = field(default_factory=list)
    heads: dict[str, int] = field(default_factory=dict)
    edits: tuple[JsonObject, ...] = ()
    gradients: frozenset[str] = frozenset()

    def check_recorded(self) -> None:
        """Raise if nothing has been recorded."""
        if not self.passed:
            raise WrongUsage(NOTHING_YET)

    def nbytes(self) -> int:
        """Return the bytes of all values; shared ones count once."""
        sizes: dict[int, int] = {}
        for entries in self.passed.values():
            for passed in entries:
                for tensor in tensors_of((passed.held, passed.gradient, passed.mask)):
                    sizes[tensor.data_ptr()] = tensor.nbytes
        total = sum(sizes.values())
        for read in self.reads:
            total += count_bytes(tensors_of((read.ids, read.real)))
        return total

    def of(self, site: str) -> list[Passed]:
        """Return the values of a site, in order; there is at least one.

        Raises:
            WrongUsage: the site is not recorded, or has no value yet.
        """
        if site in self.passed:
            return self.passed[site]
        if site not in self.sites:
            guess = did_you_mean(in_our_words(str(site), self.sites), self.sites)
            if _HEAD.fullmatch(str(site)):
                layer, head = re.findall(r"\d+", str(site))
                there = [name for name in self.sites if f"layers.{layer}." in f"{name}."]
                weights = [name for name in there if name.endswith("attention.weights")]
                name = weights[-1] if weights else f"layers.{layer}.attention.weights"
                guess = (
                    f"a head is an index of its layer's weights: head {layer}.{head} is "
                    f'recording["{name}"][:, {head}].'
                )
            raise WrongUsage(f"{site!r} is not recorded; {guess}")
        if self.passed and site.endswith("mask"):
            raise WrongUsage(f"{site!r} had no mask: every query could attend to every key.")
        raise WrongUsage(f"{site!r} has no value yet; {_WHAT_TO_DO}")


def tensors_of(held: Any) -> Iterator[Tensor]:
    """Yield all tensors of a held value."""
    if isinstance(held, Tensor):
        yield held
    elif isinstance(held, GrowingTensor):
        yield held.store
    elif isinstance(held, tuple | list):  # a call, a mask, a part, or a reduced value
        for item in held:
            yield from tensors_of(item)
