"""The layout `simd` without a compiler: PyTorch runs each operation of the program for all members
of a block at once.

The population is the innermost axis here too, so PyTorch's own loops run over members. Every
operation writes into memory that was allocated before the first step, and memory that is no longer
needed is reused.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from typing import Any

import torch
from torch import Tensor

from attnlab.errors import WrongUsage
from attnlab.simd.program import Stage
from attnlab.simd.terms import Apply, Buffer, ElementRead, Reduce, Scalar, Term, reads
from attnlab.simd.trace import TracedStep

aten = torch.ops.aten

_TRUTHS = ("eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_not")
_MOST_AT_ONCE = 2**18  # numbers that a sum's terms may take before they are summed one by one


class Interpreter:
    """Losses and gradients of `width` members, (…, member) in memory; an engine of
    `train/layouts/blocks.py`."""

    def __init__(
        self, recorded: TracedStep, example: Sequence[Tensor], width: int, dtype: torch.dtype
    ) -> None:
        """Lay out the memory of a recorded step."""
        self._memory = _Memory(recorded, width, dtype)
        self._starts, self._example = recorded.batch_starts, example
        self.parameters = self._memory.behind(recorded.parameters).T
        self.gradients = self._memory.behind(recorded.gradients).T
        self._loss = self._memory.behind(recorded.loss)[0]
        self._batch = self._memory.behind(recorded.batch)
        self.buffers = self._memory.behind(recorded.members)
        with torch.no_grad():
            self._calls = _bound(recorded.program.stages, self._memory)

    def losses(self, batch: Sequence[Tensor]) -> Tensor:
        """Go through the program."""
        for start, like, part in zip(self._starts, self._example, batch, strict=True):
            self._batch[start : start + like.numel()].copy_(part.reshape(len(part), -1).T)
        try:
            for call in self._calls:
                call()
        except (IndexError, RuntimeError) as error:
            if "out of bounds" not in str(error) and "out of range" not in str(error):
                raise
            raise WrongUsage(
                "an id of a batch is not from 0 to below the size of what is looked up."
            ) from None
        return self._loss


class _Memory:
    """The tensors behind the program's buffers, (element, member), and a store of those that are
    free."""

    def __init__(self, recorded: TracedStep, width: int, dtype: torch.dtype) -> None:
        self.width, self.dtype = width, dtype
        lasting = (
            recorded.parameters,
            recorded.gradients,
            recorded.members,
            recorded.batch,
            recorded.loss,
        )
        self._behind = {buffer: self._empty(buffer.size) for buffer in lasting}
        self._free: list[Tensor] = []

    def _empty(self, size: int) -> Tensor:
        return torch.empty(size, self.width, dtype=self.dtype)

    def behind(self, buffer: Buffer) -> Tensor:
        """Return what a buffer stands for; one of a constant has a single member."""
        if buffer not in self._behind:
            if buffer.values is not None:
                self._behind[buffer] = buffer.values.to(self.dtype).unsqueeze(1)
            else:
                self._behind[buffer] = self.take(buffer.size)
        return self._behind[buffer]

    def take(self, size: int) -> Tensor:
        """Lend memory: the smallest that is free and large enough."""
        fitting = [tensor for tensor in self._free if len(tensor) >= size]
        if not fitting:
            return self._empty(size)
        best = min(fitting, key=len)
        self._free = [tensor for tensor in self._free if tensor is not best]
        return best

    def give_back(self, tensor: Tensor) -> None:
        """Take memory back."""
        self._free.append(tensor)

    def forget(self, buffer: Buffer) -> None:
        """Take back what a buffer stood for."""
        self.give_back(self._behind.pop(buffer))


def _check_places(places: Tensor, count: int) -> None:
    """Refuse places that are not there: what lies beside is another tensor's."""
    low, high = places.aminmax()
    if low < 0 or high >= count:
        raise IndexError("out of range")


def _bound(stages: Sequence[Stage], memory: _Memory) -> list[Callable[[], object]]:
    """Turn the stages into calls that need no argument."""
    last: dict[Buffer, int] = {}
    for index, stage in enumerate(stages):
        for read in (stage.target, stage.target.where, *reads(stage.term)):
            if read is not None:
                last[read.buffer] = index
    calls: list[Callable[[], object]] = []
    for index, stage in enumerate(stages):
        _Writer(memory, calls).write(stage)
        for buffer, end in last.items():
            if end == index and buffer.kind == "temporary":
                memory.forget(buffer)
    return calls


def _at(value: Tensor, index: tuple[int, ...]) -> Tensor:
    """Return one place of the last axes but the members'; a number is everywhere the same."""
    if not value.dim():
        return value
    place: Any = (..., *index, slice(None))
    return value[place]


class _Writer:
    """Writes the calls of one stage."""

    def __init__(self, memory: _Memory, calls: list[Callable[[], object]]) -> None:
        self._memory, self._calls, self._lent = memory, calls, list[Tensor]()

    def write(self, stage: Stage) -> None:
        """Compute the term into the target."""
        if stage.is_sum:
            value = self._found(stage.term, stage.shape)
            self._add_up(stage.target, stage.shape, value)
        else:
            self._compute(stage.term, stage.shape, self._view(stage.target, stage.shape))
        for tensor in self._lent:
            self._memory.give_back(tensor)

    def _do(self, function: Callable[..., object], *arguments: Any, **options: Any) -> None:
        self._calls.append(partial(function, *arguments, **options))

    def _view(self, read: ElementRead, shape: tuple[int, ...]) -> Tensor:
        tensor = self._memory.behind(read.buffer)
        width = tensor.shape[1]
        strides = [stride * width for stride in read.strides]
        return tensor.as_strided((*shape, width), (*strides, 1), read.offset * width)

    def _new(self, shape: tuple[int, ...]) -> Tensor:
        tensor = self._memory.take(math.prod(shape))
        self._lent.append(tensor)
        return tensor[: math.prod(shape)].view(*shape, self._memory.width)

    def _found(self, term: Term, shape: tuple[int, ...]) -> Tensor | float:
        """Return a term's value, computed if it is not there: (…, member), or one that broadcasts
        to it."""
        if isinstance(term, Scalar):
            return term.value
        if isinstance(term, ElementRead) and term.where is None:
            return self._view(term, shape)
        if isinstance(term, Apply) and (term.name == "is_true" or term.name in _TRUTHS):
            return self._truth(term, shape)
        target = self._new(shape)
        self._compute(term, shape, target)
        return target

    def _truth(self, term: Apply, shape: tuple[int, ...]) -> Tensor:
        values = [self._found(argument, shape) for argument in term.arguments]
        if term.name == "is_true":
            number = self._tensor(values[0])
            if number.shape[-1:] != (self._memory.width,):  # known beforehand
                return torch.ne(number, 0.0)
            values, function = [number, 0.0], torch.ne
        else:
            function = getattr(torch, term.name)
        target = torch.empty(*shape, self._memory.width, dtype=torch.bool)
        values[0] = self._tensor(values[0]).expand(target.shape)
        self._do(function, *values, out=target)
        return target

    def _compute(self, term: Term, shape: tuple[int, ...], target: Tensor) -> None:
        if isinstance(term, Scalar):
            self._do(target.fill_, term.value)
        elif isinstance(term, ElementRead) and term.where is not None:
            self._look_up(term, shape, target)
        elif isinstance(term, ElementRead):
            self._do(target.copy_, self._view(term, shape))
        elif isinstance(term, Reduce):
            self._reduce(term, shape, target)
        else:
            self._apply(term, shape, target)

    def _apply(self, term: Apply, shape: tuple[int, ...], target: Tensor) -> None:
        if term.name == "choose":
            return self._choose(term, shape, target)
        values = [self._found(argument, shape) for argument in term.arguments]
        values[0] = self._tensor(values[0]).expand(
            target.shape
        )  # a number would not fill the target
        if term.name in ("as_number", "is_true"):
            return self._do(target.copy_, values[0])
        if term.name == "relu":
            return self._do(aten.clamp_min.out, values[0], 0, out=target)
        if term.name == "exp":
            # torch's own exp is the slower on processors for which MKL was not made
            self._do(torch.mul, values[0], math.log2(math.e), out=target)
            return self._do(torch.exp2, target, out=target)
        if term.name in ("maximum", "minimum"):
            values[1] = self._tensor(values[1])
        return self._do(getattr(torch, term.name), *values, out=target)

    def _choose(self, term: Apply, shape: tuple[int, ...], target: Tensor) -> None:
        condition, yes, no = term.arguments
        match condition, yes:
            case Apply("le", (x, Scalar(level))), Scalar(0.0):
                # The derivative of ReLU, for which PyTorch has an operation of its own.
                gradient, value = self._found(no, shape), self._found(x, shape)
                if isinstance(gradient, Tensor) and isinstance(value, Tensor):
                    backward = aten.threshold_backward.grad_input
                    return self._do(backward, gradient, value, level, grad_input=target)
        truth = self._found(condition, shape)
        assert isinstance(truth, Tensor)
        if truth.shape[-1:] != (self._memory.width,) and yes == Scalar(-math.inf):
            # Known beforehand, so that an addition does it, which is quicker than a choice.
            known = torch.zeros(truth.shape, dtype=self._memory.dtype).masked_fill(truth, -math.inf)
            return self._do(torch.add, self._found(no, shape), known, out=target)
        tensors = [self._tensor(self._found(branch, shape)) for branch in (yes, no)]
        return self._do(torch.where, truth, *tensors, out=target)

    def _reduce(self, term: Reduce, shape: tuple[int, ...], target: Tensor) -> None:
        whole, inner = (*shape, *term.sizes), term.term
        if term.name == "add" and isinstance(inner, Apply) and inner.name == "mul":
            a, b = (self._tensor(self._found(argument, whole)) for argument in inner.arguments)
            size = math.prod(whole) * self._memory.width
            if size > _MOST_AT_ONCE and math.prod(term.sizes) <= math.prod(shape):
                self._sum_of_products(a, b, term.sizes, target)
                return
            value = self._new(whole)
            self._do(torch.mul, a, b, out=value)
        else:
            value = self._tensor(self._found(inner, whole)).expand(*whole, self._memory.width)
        axes = tuple(range(len(shape), len(whole)))
        assert axes, "none would mean all"
        reduce = torch.sum if term.name == "add" else torch.amax
        self._do(reduce, value, axes, out=target)

    def _sum_of_products(
        self, a: Tensor, b: Tensor, sizes: tuple[int, ...], target: Tensor
    ) -> None:
        for number, index in enumerate(product(*map(range, sizes))):
            left, right = _at(a, index), _at(b, index)
            if number:
                self._do(torch.addcmul, target, left, right, out=target)
            else:
                self._do(torch.mul, left, right, out=target)

    def _tensor(self, value: Tensor | float) -> Tensor:
        return value if isinstance(value, Tensor) else torch.tensor(value, dtype=self._memory.dtype)

    def _addresses(self, read: ElementRead, shape: tuple[int, ...]) -> Tensor:
        """Return where each element's number lies: (element, 1) for all members alike, or (element,
        member)."""
        address = torch.tensor(read.offset)
        for size, stride in zip(shape, read.strides, strict=True):
            address = address.unsqueeze(-1) + torch.arange(size) * stride
        address = address.expand(shape).reshape(-1, 1)
        if read.where is None:
            return address
        where = self._view(read.where, shape)
        if where.shape[-1] != self._memory.width:
            return address + where.reshape(-1, 1).long() * read.pick
        places = torch.empty(where.shape, dtype=torch.int64)
        self._do(places.copy_, where)
        self._do(_check_places, places, read.pick_size)
        flat = places.view(-1, self._memory.width)
        if read.pick != 1:
            self._do(flat.mul_, read.pick)
        self._do(flat.add_, address)
        return flat

    def _look_up(self, read: ElementRead, shape: tuple[int, ...], target: Tensor) -> None:
        source, places = self._memory.behind(read.buffer), self._addresses(read, shape)
        if source.shape[1] != self._memory.width:
            source = source.expand(-1, self._memory.width)
        buffer = self._new(shape)
        flat = buffer.view(-1, self._memory.width)
        if places.shape[1] == 1:
            self._do(torch.index_select, source, 0, places[:, 0], out=flat)
        else:
            self._do(torch.gather, source, 0, places, out=flat)
        self._do(target.copy_, buffer)

    def _add_up(self, target: ElementRead, shape: tuple[int, ...], value: Tensor | float) -> None:
        tensor, places = self._memory.behind(target.buffer), self._addresses(target, shape)
        flat = self._new(shape)
        if isinstance(value, Tensor):
            self._do(flat.copy_, value)
        else:
            self._do(flat.fill_, value)
        flat = flat.view(-1, self._memory.width)
        if places.shape[1] == 1:
            self._do(tensor.index_add_, 0, places[:, 0], flat)
        else:
            self._do(tensor.scatter_add_, 0, places, flat)
