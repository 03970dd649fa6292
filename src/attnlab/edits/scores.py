"""Edits of the scores before the softmax, (batch, head, query, key). Blocked stays blocked."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from attnlab.edits.edit import Edit
from attnlab.edits.edit_context import EditContext
from attnlab.edits.rules import as_tensor, require_finite
from attnlab.edits.sources import check_shape
from attnlab.errors import WrongUsage

__all__ = ["AddToScores", "ScaleScores", "Temperature"]


class _ScoreEdit(Edit):
    """Base: where the mask blocks there is no score to change."""

    AT: ClassVar[str] = "scores"
    NOTHING: ClassVar[str] = (
        "the mask blocks all of these edges, and what is blocked has no score. RelaxMask opens "
        "edges; are query= and key= the wrong way round?"
    )

    def has_changed(self, before: Tensor, after: Tensor, chosen: Tensor | None) -> bool:
        """A score that is not blocked is enough, also where the edit leaves it as it is."""
        is_open = before != float("-inf")
        return bool((is_open if chosen is None else is_open & chosen).any())


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class ScaleScores(_ScoreEdit):
    """Scores times a factor: sharper above 1, flatter below, turned around below 0."""

    factor: float

    NARROWS: ClassVar[tuple[str, ...]] = ("head", "query", "key", "row", "step")

    def check(self) -> None:
        """The factor is a finite number."""
        require_finite("factor", self.factor)

    def change(self, values: Tensor, context: EditContext) -> Tensor:
        """Return the scaled scores."""
        return _where_open(values, values * self.factor)


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Temperature(_ScoreEdit):
    """The softmax at another temperature: scores divided by it, whole rows at a time."""

    temperature: float

    def check(self) -> None:
        """The temperature is a number above 0."""
        require_finite("temperature", self.temperature)
        if self.temperature <= 0:
            raise WrongUsage(f"temperature= must be above 0; got {self.temperature!r}.")

    def change(self, values: Tensor, context: EditContext) -> Tensor:
        """Return the divided scores."""
        return _where_open(values, values / self.temperature)


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class AddToScores(_ScoreEdit):
    """Scores plus a number, or plus a tensor that fits (batch, head, query, key); -inf blocks."""

    amount: float | Tensor

    NARROWS: ClassVar[tuple[str, ...]] = ("head", "query", "key", "row", "step")

    def check(self) -> None:
        """The amount is finite, or -inf."""
        tensor = as_tensor("amount", self.amount, may_block=True)
        object.__setattr__(self, "amount", float(tensor) if tensor.dim() == 0 else tensor)

    def check_model(self, model: nn.Module, sites: list[str]) -> None:
        """The tensor has as many heads as the model."""
        if isinstance(self.amount, Tensor):
            for site in sites:
                check_shape(model, site, tuple(self.amount.shape), f"{self!r}: amount=")

    def change(self, values: Tensor, context: EditContext) -> Tensor:
        """Return the sums."""
        if not isinstance(self.amount, Tensor):
            return _where_open(values, values + self.amount)
        return _where_open(
            values, values + context.taken(self.amount.to(values), f"{self!r}: amount=")
        )


def _where_open(values: Tensor, changed: Tensor) -> Tensor:
    return torch.where(values == float("-inf"), values, changed)
