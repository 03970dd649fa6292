"""Edits of the mask: which query may attend to which key. The softmax follows, so rows still sum to
one.

A boolean mask stays boolean; in one that is added to the scores, as ALiBi's is, blocked means -inf,
and what is newly allowed gets 0. The fused kernel goes on running.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from attnlab.edits.edit import Edit
from attnlab.edits.edit_context import EditContext
from attnlab.edits.rules import as_tensor
from attnlab.edits.sources import check_shape
from attnlab.edits.targets import atoms_of, is_all
from attnlab.errors import WrongUsage

__all__ = ["CutEdge", "CutTokens", "RelaxMask", "SetMask", "ShiftMask"]

_EDGES = ("head", "query", "key", "row", "step")


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class CutEdge(Edit):
    """The queries may not look at the keys; lists cut every pair.

    renormalise: what is left of each row shares its weight anew, as if the key had been masked.
    Without, the weight is
        lost: the row then sums to less than one.
    """

    renormalise: bool = True

    NARROWS: ClassVar[tuple[str, ...]] = _EDGES
    NOTHING: ClassVar[str] = (
        "none of these queries looks at any of these keys. Are query= and key= the wrong way round?"
    )

    @property
    def own(self) -> str:
        """The mask, or the weights where they are not to be shared anew."""
        return "mask" if self.renormalise else "weights"

    def check(self) -> None:
        """It says what to cut."""
        if is_all(self.query) and is_all(self.key):
            raise WrongUsage(
                f"{type(self).__name__} needs query= or key= or both: which edges are cut."
            )
        if not isinstance(self.renormalise, bool):
            raise WrongUsage(f"renormalise= is True or False; got {self.renormalise!r}.")

    def change(self, values: Tensor, context: EditContext) -> Tensor:
        """Return a mask without the edges, or weights of zero."""
        if self.renormalise:
            return _with_allowed(values, torch.zeros_like(values, dtype=torch.bool))
        return torch.zeros_like(values)


class CutTokens(CutEdge):
    """Cut every edge from the tokens of some names to the tokens of some names.

    query and key: names, or sets of them.
    """

    def check(self) -> None:
        """Both sides are names."""
        for name in ("query", "key"):
            target = getattr(self, name)
            if is_all(target) or any(
                type(atom) is not str for atom in atoms_of(name, target, may_be_named=True)
            ):
                raise WrongUsage(
                    f"CutTokens takes names of tokens, query= and key=; got {name}={target!r}."
                )
        super().check()


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class SetMask(Edit):
    """Another mask takes the place of the one there is.

    mask: "causal", "all" (everything may be looked at, padding too), or a boolean tensor that fits
    (batch, head, query,
        key), True = may attend; positions are counted from the start of the text.
    """

    mask: Tensor | str

    AT: ClassVar[str] = "mask"
    NARROWS: ClassVar[tuple[str, ...]] = _EDGES

    def check(self) -> None:
        """The mask is a word, or boolean."""
        if isinstance(self.mask, str):
            if self.mask not in ("causal", "all"):
                raise WrongUsage(
                    f"mask= is 'causal', 'all' or a boolean tensor; got {self.mask!r}."
                )
            return
        tensor = as_tensor("mask", self.mask)
        if tensor.dtype != torch.bool:
            raise WrongUsage(
                f"mask= must be boolean, True = may attend; got {tensor.dtype}. Use "
                "AddToScores for biases."
            )
        object.__setattr__(self, "mask", tensor)

    @property
    def tells_apart(self) -> set[str]:
        """What the tensor tells apart, too."""
        shape = tuple(self.mask.shape) if isinstance(self.mask, Tensor) else ()
        axes = zip(("head", "batch"), reversed(shape[:-2]), strict=False)
        return super().tells_apart | {axis for axis, size in axes if size > 1}

    def check_model(self, model: nn.Module, sites: list[str]) -> None:
        """The tensor has as many heads as the model."""
        if isinstance(self.mask, Tensor):
            for site in sites:
                check_shape(model, site, tuple(self.mask.shape), f"{self!r}: mask=")

    def change(self, values: Tensor, context: EditContext) -> Tensor:
        """Return the mask."""
        if isinstance(self.mask, Tensor):
            return _with_allowed(
                values, context.taken(self.mask.to(values.device), f"{self!r}: mask=")
            )
        if self.mask == "all":
            return _with_allowed(values, torch.ones_like(values, dtype=torch.bool))
        return _with_allowed(values, (context.keys <= context.queries[:, None])[None, None])


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class ShiftMask(Edit):
    """Shift the mask along the keys: `by=1` lets a causal query see one token too many.

    What comes in at the first key is as the first key was; what comes in at the last is blocked.
    """

    by: int = 1

    AT: ClassVar[str] = "mask"

    def check(self) -> None:
        """The distance is a whole number."""
        if isinstance(self.by, bool) or not isinstance(self.by, int) or abs(self.by) >= 2**62:
            raise WrongUsage(f"by= is a number of keys, such as 1 or -1; got {self.by!r:.40}.")

    def change(self, values: Tensor, context: EditContext) -> Tensor:
        """Return the moved mask."""
        source = torch.arange(values.shape[-1], device=values.device) - self.by
        moved = _allowed(values).index_select(-1, source.clamp(0, max(values.shape[-1] - 1, 0)))
        return _with_allowed(values, moved & (source < values.shape[-1]))


class RelaxMask(Edit):
    """Let the queries attend to the keys whatever the mask says; without targets, all to all."""

    AT: ClassVar[str] = "mask"
    NARROWS: ClassVar[tuple[str, ...]] = _EDGES
    NOTHING: ClassVar[str] = "all of these queries may look at all of these keys already."

    def change(self, values: Tensor, context: EditContext) -> Tensor:
        """Return a mask that allows them."""
        return _with_allowed(values, torch.ones_like(values, dtype=torch.bool))


def _allowed(mask: Tensor) -> Tensor:
    return mask if mask.dtype == torch.bool else mask != float("-inf")


def _with_allowed(mask: Tensor, allowed: Tensor) -> Tensor:
    """Return a mask of the same kind that allows this."""
    allowed = allowed.expand(mask.shape)
    if mask.dtype == torch.bool:
        return allowed
    return torch.where(allowed, torch.where(_allowed(mask), mask, 0.0), float("-inf"))
