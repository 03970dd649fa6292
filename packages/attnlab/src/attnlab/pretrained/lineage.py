"""The lineage of tensors in a traced pass: which are products of two activations.

Scores of attention are such products (queries with keys), and values are not: they are projections
of single tokens. A softmax over features, as in linear attention, has it the other way round.
"""

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor, nn
from torch.utils.weak import WeakTensorKeyDictionary

from attnlab.core.sizes import stored_tensors

_PRODUCTS = ("matmul", "bmm", "mm", "einsum", "baddbmm")
_PROJECTIONS = ("linear", "conv1d", "conv2d", "conv3d", "addmm")


class Lineage:
    """Follows products of activations through operations that keep the count of their numbers."""

    def __init__(self, model: nn.Module) -> None:
        self._weights = set(map(_storage_of, model.parameters()))
        self._marks: Any = WeakTensorKeyDictionary()
        self._features: Any = WeakTensorKeyDictionary()  # of projections: strides, their axis

    def is_weight(self, value: Tensor) -> bool:
        """Is a tensor a parameter of the model, or a view of one?"""
        return _storage_of(value) in self._weights

    def is_product(self, value: Tensor) -> bool:
        """Is a tensor made by a product of two activations?"""
        return value in self._marks

    def is_over_features(self, value: Tensor, axis: int) -> bool:
        """Do steps along an axis of a view stay within the features that a layer made of one
        token?"""
        known = self._features.get(_base_of(value))
        if known is None or value.shape[axis] < 2:
            return False
        strides, features = known
        start, step = int(value.storage_offset()), int(value.stride(axis))
        first, second = _indices(start, strides), _indices(start + step, strides)
        changed = [place for place in range(len(strides)) if first[place] != second[place]]
        return changed == [features % len(strides)]

    def mark(self, value: Tensor, source: Any) -> None:
        """Note what a product is: an attention's output."""
        self._marks[value] = source

    def note(self, func: Callable[..., Any], operands: list[Tensor], output: Tensor) -> list[Any]:
        """Follow one function; return what was marked among the operands of a product."""
        name = str(getattr(func, "__name__", "")).strip("_")
        if name in _PROJECTIONS:
            features = 1 if name.startswith("conv") else -1
            self._features[_base_of(output)] = output.stride(), features
            return []
        marks = list(map(self._marks.get, operands))
        if name in _PRODUCTS:
            activations = [operand for operand in operands if not self.is_weight(operand)]
            if len(activations) < 2:
                return []
            self.mark(output, True)
            return [mark for mark in marks if mark is not None]
        self._carry(operands, marks, output)
        return []

    def _carry(self, operands: list[Tensor], marks: list[Any], output: Tensor) -> None:
        """Pass what is known of the operands of an elementwise function on to its output."""
        for operand, mark in zip(operands, marks, strict=True):
            known = self._features.get(_base_of(operand))
            if known is not None and operand.stride() == output.stride() == known[0]:
                self._features[_base_of(output)] = known
            if mark is not None and operand.numel() == output.numel():
                self.mark(output, mark)


def _storage_of(value: Tensor) -> int:
    """Return what tells a tensor's memory apart; quantized weights have none of their own."""
    is_plain = stored_tensors(value)[0] is value
    return value.untyped_storage().data_ptr() if is_plain else id(value)


def _base_of(value: Tensor) -> Tensor:
    """Return the tensor that a view is of, or a tensor itself."""
    return value if value._base is None else value._base


def _indices(place: int, strides: Sequence[int]) -> list[int]:
    """Return the indices of the number at a place in a storage."""
    indices = [0] * len(strides)
    for axis in sorted(range(len(strides)), key=strides.__getitem__, reverse=True):
        indices[axis], place = divmod(place, max(strides[axis], 1))
    return indices
