"""Products of attention weights with values, as models write them: by matmul, bmm or einsum, the
weights as the first factor or the second, and their axes in any order."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import torch
from torch import Tensor

MATRIX_PRODUCTS = (
    torch.matmul,
    torch.bmm,
    torch.Tensor.matmul,
    torch.Tensor.__matmul__,
    torch.Tensor.bmm,
)
PRODUCTS = (*MATRIX_PRODUCTS, torch.einsum)
_NAMES = ("input", "other", "mat2")  # of the factors, in their order


@dataclass(frozen=True)
class WeightsProduct:
    """A product of weights with values; place: which of the two factors holds the weights."""

    func: Callable[..., Any]
    args: Any
    kwargs: Any
    place: int

    @classmethod
    def of(
        cls, made: Sequence[Tensor], func: Callable[..., Any], args: Any, kwargs: Any
    ) -> Self | None:
        """Return a product of attention weights, or what was made of them, with values; None for
        anything else, also for a product of weights with weights."""
        if func not in PRODUCTS:
            return None
        args = (*args, *(kwargs[name] for name in _NAMES if name in kwargs))
        kwargs = {name: option for name, option in kwargs.items() if name not in _NAMES}
        factors = operands_of(args)
        if len(factors) != 2:
            return None
        places = [place for place, factor in enumerate(factors) if is_one_of(factor, made)]
        if len(places) != 1:
            return None
        product = cls(func, args, kwargs, places[0])
        return product if product._mixes_values() else None

    @property
    def factor(self) -> Tensor:
        """The weights as the model multiplies them."""
        return operands_of(self.args)[self.place]

    @property
    def value(self) -> Tensor:
        """The other factor."""
        return operands_of(self.args)[1 - self.place]

    @property
    def matrix(self) -> Tensor:
        """The weights as (…, query, key)."""
        return self.factor.mT if self._is_turned else self.factor

    @property
    def key_axis(self) -> int:
        """The axis of the keys in the other factor."""
        if not self._terms:
            return -1 if self._is_turned else -2
        value = self._terms[1 - self.place]
        return value.index(self._terms[self.place][-1]) - len(value)

    def shape(self, lead: Sequence[int]) -> tuple[int, ...] | None:
        """Return the shape of the weights after some first axes; None if they do not fit."""
        shape = (*lead, *self.matrix.shape[-2:])
        return shape if math.prod(shape) == self.factor.numel() else None

    def run(self, weights: Tensor | None = None) -> Tensor:
        """Multiply these weights with the values; None for the model's."""
        args = self.args
        if weights is not None:
            weights = weights.reshape(self.matrix.shape).to(self.factor.dtype)
            args = _with_factor(args, self.place, weights.mT if self._is_turned else weights)
        output: Tensor = self.func(*args, **self.kwargs)
        return output

    def heads(self, output: Tensor, shape: Sequence[int]) -> Tensor:
        """Return the product as (batch, head, query, width); shape: of the weights."""
        ordered = output.permute(self._order(output))
        return ordered.reshape(*shape[:-1], ordered.shape[-1])

    def turned_back(self, heads: Tensor, output: Tensor) -> Tensor:
        """Return heads in the order of axes of the product."""
        order = self._order(output)
        back = list(map(order.index, range(output.dim())))
        return heads.reshape(output.permute(order).shape).permute(back)

    def every_value(self, shape: Sequence[int]) -> Tensor:
        """Return every head's values, (batch, head, key, width), by weights that pick one key for
        each query."""
        queries, keys = shape[-2:]
        values = []
        for start in range(0, keys, max(queries, 1)):
            places = torch.arange(min(queries, keys - start))
            chosen = self.factor.new_zeros(tuple(shape))
            chosen[..., places, start + places] = 1.0
            values.append(self.heads(self.run(chosen), shape)[..., : len(places), :])
        return torch.cat(values, -2)

    @property
    def _is_turned(self) -> bool:
        """Are the weights multiplied as (…, key, query)?"""
        return self.place == 1 and self.func is not torch.einsum

    @cached_property
    def _terms(self) -> list[str]:
        """The axes of both factors and of the output of an einsum; none of another product."""
        if self.func is not torch.einsum or not isinstance(self.args[0], str):
            return []
        equation = self.args[0].replace(" ", "")
        first = operands_of(self.args)[0]
        others = first.dim() - len(equation.partition(",")[0].replace("...", ""))
        return equation.replace("...", "ABCDEFGH"[:others]).replace("->", ",").split(",")

    def _mixes_values(self) -> bool:
        """Does it sum over the keys alone, and return every query of every head once?"""
        if self.func is torch.einsum:
            if len(self._terms) != 3:
                return False
            weights, value = self._terms[self.place], self._terms[1 - self.place]
            *others, query, key = list(weights)
            output = self._terms[2]
            is_sum = key in value and key not in output and query not in value
            widths = set(output) - set(weights)
            return is_sum and {*others, query} <= set(output) and len(widths) == 1
        if min(self.factor.dim(), self.value.dim()) < 2:
            return False
        lead, values = self.factor.shape[-3::-1], self.value.shape[-3::-1]
        fits = (size in (1, whole) for size, whole in zip(values, lead, strict=False))
        return len(values) <= len(lead) and all(fits)

    def _order(self, output: Tensor) -> list[int]:
        """Return the order of axes that turns the output into (…, query, width)."""
        axes = list(range(output.dim()))
        if self._is_turned:
            return [*axes[:-2], axes[-1], axes[-2]]
        if not self._terms:
            return axes
        named = self._terms[2]
        wanted = self._terms[self.place][:-1]
        wanted += "".join(letter for letter in named if letter not in wanted)
        return list(map(named.index, wanted))


def operands_of(args: Any) -> list[Tensor]:
    """List the tensors among the arguments of a product; einsum takes them one by one or in a
    tuple."""
    operands: list[Tensor] = []
    for arg in args:
        if isinstance(arg, Tensor):
            operands.append(arg)
        elif isinstance(arg, tuple | list):
            operands += [item for item in arg if isinstance(item, Tensor)]
    return operands


def carries(made: Sequence[Tensor], args: Any, output: Any) -> bool:
    """Are attention weights passed on in an output: all of them (masked, dropped, reshaped), or
    those of some keys, as without a sink?"""
    if not isinstance(output, Tensor) or not output.is_floating_point():
        return False
    operands = operands_of(args)
    return any(
        (output.numel() == weights.numel() or _is_of_some_keys(output, weights))
        and any(operand is weights for operand in operands)
        for weights in made
    )


def _is_of_some_keys(output: Tensor, weights: Tensor) -> bool:
    """Is a tensor a view of some columns of others?"""
    if output.dim() != weights.dim() or output.shape[:-1] != weights.shape[:-1]:
        return False
    return output.shape[-1] < weights.shape[-1] and output.stride() == weights.stride()


def is_one_of(value: Tensor, made: Iterable[Tensor]) -> bool:
    """Does a tensor lie in the same place as one of others?"""
    place = _place_of(value)
    return any(value.numel() == tensor.numel() and place == _place_of(tensor) for tensor in made)


def _place_of(value: Tensor) -> int:
    """Return what tells a tensor's memory; under torch.func no tensor says where it lies."""
    return id(value) if torch._C._are_functorch_transforms_active() else value.data_ptr()


def _with_factor(args: Any, place: int, new: Tensor) -> Any:
    """Replace one tensor among a product's arguments."""
    tensors = iter(range(2))

    def replaced(arg: Any) -> Any:
        if isinstance(arg, tuple | list):  # the operands of an einsum in a tuple
            return type(arg)(map(replaced, arg))
        return new if isinstance(arg, Tensor) and next(tensors) == place else arg

    return tuple(map(replaced, args))
