"""The state of a foreign model, kept while small passes run through it and put back to the bit.

A forward pass may write: a streaming buffer, a counter, a cache, a list of what it has seen,
modules that it replaces (BigBird turns to full attention at a short input, for good), random
numbers. What is kept is everything that its modules reach: tensors, attributes, containers, and
objects of classes outside the standard library; and the random generators that all models share.

Buffers are always copied. Other tensors, parameters included, are copied up to `_COPIED` bytes in
all: models seldom write into their weights, and a second copy of large ones may not fit.
"""

import operator
import random
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from types import FunctionType, MethodType, ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from attnlab.core.sizes import stored_tensors
from attnlab.seeds import random_state_restored

_COPIED = 2**28
_LEAVES = (type, ModuleType, FunctionType, MethodType, str, bytes, int, float, complex, torch.dtype)


@contextmanager
def state_kept(model: nn.Module, *others: Any, weights: bool = True) -> Iterator[None]:
    """Put back whatever changes in a model, and in these other values, within the `with`; its
    parameters only with `weights`."""
    python_state = random.getstate()
    numpy_state = np.random.get_state()  # noqa: NPY002 - other models' generator, not ours
    state = _State(model, others, weights=weights)
    try:
        with random_state_restored():
            yield
    finally:
        state.restore()
        np.random.set_state(numpy_state)  # noqa: NPY002
        random.setstate(python_state)


class _State:
    """A snapshot of everything that some values reach: tensors, containers, random generators."""

    def __init__(self, model: nn.Module, others: Sequence[Any], *, weights: bool) -> None:
        self._room = _COPIED
        self._restores: list[Callable[[], object]] = []
        self._classes = [(module, type(module)) for module in model.modules()]
        self._seen: dict[int, Any] = {}
        self._buffers = set(map(id, model.buffers()))
        parameters, waiting = list(model.parameters()), [model, *others]
        self._seen.update((id(weight), weight) for weight in parameters)
        while waiting:
            waiting += self._keep(waiting.pop())
        if weights:  # last: a counter or a cache has the first claim on the room
            for weight in parameters:
                self._keep_tensor(weight)

    def _keep(self, value: Any) -> list[Any]:
        """Keep one value, and return what it holds."""
        if value is None or isinstance(value, _LEAVES) or id(value) in self._seen:
            return []
        self._seen[id(value)] = value
        inside: list[Any] = []
        match value:
            case Tensor():
                self._keep_tensor(value)
                return []
            case torch.Generator():
                self._restores.append(partial(value.set_state, value.get_state()))
            case random.Random():
                self._restores.append(partial(value.setstate, value.getstate()))
            case np.ndarray():
                self._restores.append(partial(_restore_array, value, value.copy()))
            case dict() | list() | deque() | set():
                inside = _items(value)
                self._restores.append(partial(_refill, value, inside))
            case tuple() | frozenset():
                inside = list(value)
        if isinstance(value, nn.Module | SimpleNamespace) or _is_of_a_library(value):
            return [*inside, getattr(value, "__dict__", None)]
        return inside

    def _keep_tensor(self, value: Tensor) -> None:
        parts = stored_tensors(value)
        if parts[0] is not value:  # a quantized weight
            for part in parts:
                self._keep_tensor(part)
            return
        if value.layout != torch.strided or value.device.type == "meta":
            return
        copied = None
        if id(value) in self._buffers or value.nbytes <= self._room:
            self._room -= 0 if id(value) in self._buffers else value.nbytes
            copied = value.detach().clone()
        state = value.data, copied, value.requires_grad
        self._restores.append(partial(_restore_tensor, value, *state))

    @torch.no_grad()
    def restore(self) -> None:
        """Put everything back, in the same objects."""
        for module, cls in self._classes:
            if type(module) is not cls:
                module.__class__ = cls
        for restore in self._restores:
            restore()


def _restore_tensor(
    value: Tensor, place: Tensor, copied: Tensor | None, requires_grad: bool
) -> None:
    """Give a tensor its place in memory again and, where there was room for a copy, its numbers."""
    ours = place.data_ptr(), place.shape, place.stride(), place.dtype
    if (value.data_ptr(), value.shape, value.stride(), value.dtype) != ours:
        value.data = place
    if copied is not None:
        # NaN and the sign of zero are compared too.
        bits = [tensor.reshape(-1).view(torch.uint8) for tensor in (place.detach(), copied)]
        if not torch.equal(*bits):
            place.copy_(copied)
    if value.requires_grad != requires_grad and value.is_leaf:
        value.requires_grad_(requires_grad)


def _restore_array(value: Any, copied: Any) -> None:
    if value.tobytes() != copied.tobytes():
        value[...] = copied


def _is_of_a_library(value: Any) -> bool:
    """Is a value of a class that the standard library does not define?

    Locks, loggers and threads are left alone, and what transformers and users define is not.
    """
    return type(value).__module__.partition(".")[0] not in sys.stdlib_module_names


def _items(value: Any) -> list[Any]:
    """List what a container holds; a dict's keys come first."""
    return [*value, *value.values()] if isinstance(value, dict) else list(value)


def _refill(value: Any, before: list[Any]) -> None:
    """Give a container what it held, if that has changed."""
    now = _items(value)
    if len(now) == len(before) and all(map(operator.is_, now, before)):
        return
    value.clear()
    if isinstance(value, dict):
        half = len(before) // 2
        value.update(zip(before[:half], before[half:], strict=True))
    elif isinstance(value, set):
        value.update(before)
    else:
        value.extend(before)
