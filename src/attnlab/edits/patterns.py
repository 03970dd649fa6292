"""Edits of patterns: of the weights, after the softmax, (batch, head, query, key).

A query that may look at nothing keeps its zeros. "May be looked at" is what the mask and the scores
say, with the edits that stand before.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from attnlab.edits.edit import Edit
from attnlab.edits.edit_context import EditContext
from attnlab.edits.rules import as_tensor
from attnlab.edits.sources import Recorded, check_shape, recorded
from attnlab.errors import WrongUsage
from attnlab.seeds import stream_seed
from attnlab.shapes import require_integer

__all__ = ["FreezePattern", "RedirectToFirst", "SetPattern", "ShufflePattern", "UniformPattern"]


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class SetPattern(Edit):
    """The weights are those given: a tensor that fits (batch, head, query, key), used as it is.

    Its rows should sum to one; the certificate says which do not.
    """

    pattern: Tensor

    AT: ClassVar[str] = "weights"
    NARROWS: ClassVar[tuple[str, ...]] = ("head", "query", "key", "row", "step")

    def check(self) -> None:
        """The pattern is a tensor of numbers from 0 on."""
        tensor = as_tensor("pattern", self.pattern)
        if tensor.dim() < 1 or bool((tensor < 0).any()):
            raise WrongUsage(
                f"pattern= holds weights of 0 or more, (query, key); got {tensor!r:.120}."
            )
        object.__setattr__(self, "pattern", tensor)

    def check_model(self, model: nn.Module, sites: list[str]) -> None:
        """The tensor has as many heads as the model."""
        for site in sites:
            check_shape(model, site, tuple(self.pattern.shape), f"{self!r}: pattern=")

    def change(self, values: Tensor, context: EditContext) -> Tensor:
        """Return the pattern."""
        return context.taken(self.pattern.to(values), f"{self!r}: pattern=").expand_as(values)


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class FreezePattern(Edit):
    """Use the weights recorded on another input; the values still come from this one.

    recording: of one input, which serves all rows, or of as many as there are rows.
    """

    recording: Recorded

    AT: ClassVar[str] = "weights"

    def change(self, values: Tensor, context: EditContext) -> Tensor:
        """Return the recorded pattern."""
        taken = context.taken(
            recorded(context, self.recording), f"{self!r}: the recording", is_recorded=True
        )
        return taken.expand_as(values)


class UniformPattern(Edit):
    """Each query looks at everything that it may look at, alike."""

    AT: ClassVar[str] = "weights"

    def change(self, values: Tensor, context: EditContext) -> Tensor:
        """Return equal weights."""
        seen = _visible(context).to(values.dtype)
        return seen / seen.sum(-1, keepdim=True).clamp(min=1)


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class ShufflePattern(Edit):
    """Shuffle each query's weights among the keys it may attend to.

    seed: the same places for the same seed, site, row, head and position, with a key/value cache or
    without.
    """

    seed: int = 0

    AT: ClassVar[str] = "weights"

    def check(self) -> None:
        """The seed is a number."""
        require_integer("seed", self.seed, low=0)

    def change(self, values: Tensor, context: EditContext) -> Tensor:
        """Return the shuffled weights."""
        seen = _visible(context)
        by_chance = _noise(context, stream_seed(self.seed, "shuffle", context.site))
        last = torch.iinfo(torch.int64).max
        places = torch.where(seen, by_chance, last).argsort(dim=-1, stable=True)
        in_order = torch.where(seen, context.keys, last).argsort(dim=-1, stable=True)
        return torch.zeros_like(values).scatter(-1, places, values.gather(-1, in_order))


class RedirectToFirst(Edit):
    """Each query looks at the first key that it may look at, and at nothing else."""

    AT: ClassVar[str] = "weights"

    def change(self, values: Tensor, context: EditContext) -> Tensor:
        """Return rows with a single one."""
        seen = _visible(context)
        return ((seen.cumsum(-1) == 1) & seen).to(values.dtype)


def _visible(context: EditContext) -> Tensor:
    assert context.visible is not None
    return context.visible


def _noise(context: EditContext, seed: int) -> Tensor:
    """Return a number for each row, head, query and key (SplitMix64, Steele et al. 2014)."""
    noise = torch.full((), seed, dtype=torch.int64, device=context.keys.device)
    for place, numbers in enumerate((context.rows, context.heads, context.queries, context.keys)):
        noise = noise + numbers.reshape(-1, *(1,) * (3 - place)) + 1
        noise = noise * -7046029254386353131  # 0x9E3779B97F4A7C15
        for shift, factor in ((30, -4658895280553007687), (27, -7723592293110705685)):
            noise = (noise ^ _shifted(noise, shift)) * factor
        noise = noise ^ _shifted(noise, 31)
    return noise


def _shifted(number: Tensor, by: int) -> Tensor:
    """Shift right, with zeros coming in at the top."""
    return (number >> by) & ((1 << (64 - by)) - 1)
