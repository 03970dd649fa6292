"""The lineage of tensors in a traced pass: which are products of two activations.

Scores of attention are such products (queries with keys), and values are not: they are projections
of single tokens. A softmax over features, as in linear attention, has it the other way round.
"""

import weakref
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

_PRODUCTS = ("matmul", "bmm", "mm", "einsum", "baddbmm")
_PROJECTIONS = ("linear", "conv1d", "conv2d", "conv3d", "addmm")


class Lineage:
    """Follows products of activations through operations that keep the count of their numbers."""

    def __init__(self, model: nn.Module) -> None:
        self._weights = {each.untyped_storage().data_ptr() for each in model.parameters()}
        self._marks: dict[int, tuple[weakref.ref[Tensor], Any]] = {}

    def is_weight(self, value: Tensor) -> bool:
        """Is a tensor a parameter of the model, or a view of one?"""
        return value.untyped_storage().data_ptr() in self._weights

    def is_product(self, value: Tensor) -> bool:
        """Is a tensor made by a product of two activations?"""
        return self._mark_of(value) is not None

    def mark(self, value: Tensor, source: Any) -> None:
        """Note what a product is: an attention's output."""
        self._marks[id(value)] = weakref.ref(value), source

    def note(self, func: Callable[..., Any], operands: list[Tensor], output: Tensor) -> list[Any]:
        """Follow one function; return what was marked among the operands of a product."""
        name = str(getattr(func, "__name__", "")).strip("_")
        if name in _PROJECTIONS:
            return []
        marks = [self._mark_of(each) for each in operands]
        if name in _PRODUCTS:
            activations = [each for each in operands if not self.is_weight(each)]
            if len(activations) < 2:
                return []
            self.mark(output, True)
            return [mark for mark in marks if mark is not None]
        for operand, mark in zip(operands, marks, strict=True):
            if mark is not None and operand.numel() == output.numel():
                self.mark(output, mark)
        return []

    def _mark_of(self, value: Tensor) -> Any:
        known = self._marks.get(id(value))
        return None if known is None or known[0]() is not value else known[1]
