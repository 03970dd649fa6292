"""The state of a foreign model, kept while small passes run through it and put back to the bit.

A forward pass may write: a streaming buffer, a counter, a cache, a list of what it has seen,
modules that it replaces (BigBird turns to full attention at a short input, for good), random
numbers. What is kept is everything that its modules reach: tensors, attributes, containers, and
objects of classes outside the standard library; and the random generators that all models share.

Buffers are always copied. Other tensors, parameters included, are copied up to `_COPIED` bytes in
all: models seldom write into their weights, and a second copy of large ones may not fit.
"""

import random
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FunctionType, MethodType, ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

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
    """All that some values reach: tensors and containers, and what was in them."""

    def __init__(self, model: nn.Module, others: Sequence[Any], *, weights: bool) -> None:
        self._room = _COPIED
        self._tensors: list[_KeptTensor] = []
        self._contents: list[tuple[Any, Any]] = []
        self._classes = [(module, type(module)) for module in model.modules()]
        self._seen: dict[int, Any] = {}
        self._buffers = set(map(id, model.buffers()))
        parameters, waiting = list(model.parameters()), [model, *others]
        self._seen.update((id(weight), weight) for weight in parameters)
        while waiting:
            waiting += self._keep(waiting.pop())
        for weight in (
            parameters if weights else ()
        ):  # last: a counter or a cache has the first claim on the room
            self._keep_tensor(weight)

    def _keep(self, value: Any) -> list[Any]:
        """Keep one value, and return what it holds."""
        if value is None or isinstance(value, _LEAVES) or id(value) in self._seen:
            return []
        self._seen[id(value)] = value
        if isinstance(value, Tensor):
            self._keep_tensor(value)
            return []
        inside: list[Any] = []
        if isinstance(value, np.ndarray | torch.Generator | random.Random):
            self._contents.append((value, _contents_of(value)))
        elif isinstance(value, dict | list | deque | set):
            self._contents.append((value, _contents_of(value)))
            inside += value.values() if isinstance(value, dict) else value
        elif isinstance(value, tuple | frozenset):
            inside += value
        if isinstance(value, nn.Module | SimpleNamespace) or _is_of_a_library(value):
            inside.append(getattr(value, "__dict__", None))
        return inside

    def _keep_tensor(self, value: Tensor) -> None:
        if value.layout != torch.strided or value.device.type == "meta":
            return
        copied = None
        if id(value) in self._buffers or value.nbytes <= self._room:
            self._room -= 0 if id(value) in self._buffers else value.nbytes
            copied = value.detach().clone()
        self._tensors.append(_KeptTensor(value, copied))

    @torch.no_grad()
    def restore(self) -> None:
        """Put everything back, in the same objects."""
        for module, cls in self._classes:
            if type(module) is not cls:
                module.__class__ = cls
        for value, contents in self._contents:
            _put_back(value, contents)
        for tensor in self._tensors:
            tensor.restore()


class _KeptTensor:
    """A tensor, where its numbers were, and a copy of them where there was room."""

    def __init__(self, value: Tensor, copied: Tensor | None) -> None:
        self._value, self._copied, self._place = value, copied, value.data
        self._requires_grad = value.requires_grad

    def restore(self) -> None:
        value, place = self._value, self._place
        ours = place.data_ptr(), place.shape, place.stride(), place.dtype
        if (value.data_ptr(), value.shape, value.stride(), value.dtype) != ours:
            value.data = place
        if self._copied is not None and not _are_same_bits(place, self._copied):
            place.copy_(self._copied)
        if value.requires_grad != self._requires_grad and value.is_leaf:
            value.requires_grad_(self._requires_grad)


def _are_same_bits(one: Tensor, other: Tensor) -> bool:
    """Are two tensors equal, NaN and the sign of zero included?"""
    bits = [tensor.reshape(-1).view(torch.uint8) for tensor in (one.detach(), other)]
    return torch.equal(*bits)


def _is_of_a_library(value: Any) -> bool:
    """Is a value of a class that the standard library does not define?

    Locks, loggers and threads are left alone, and what transformers and users define is not.
    """
    return type(value).__module__.partition(".")[0] not in sys.stdlib_module_names


def _contents_of(value: Any) -> Any:
    """Copy what a container, an array or a random generator holds; a dict's keys come first."""
    if isinstance(value, torch.Generator):
        return value.get_state()
    if isinstance(value, random.Random):
        return value.getstate()
    if isinstance(value, np.ndarray):
        return value.copy()
    return [*value, *value.values()] if isinstance(value, dict) else list(value)


def _put_back(value: Any, contents: Any) -> None:
    """Give a container, an array or a random generator what it held, if that has changed."""
    if isinstance(value, torch.Generator):
        value.set_state(contents)
    elif isinstance(value, random.Random):
        value.setstate(contents)
    elif isinstance(value, np.ndarray):
        if value.tobytes() != contents.tobytes():
            value[...] = contents
    elif _differ(_contents_of(value), contents):
        value.clear()
        if isinstance(value, dict):
            half = len(contents) // 2
            value.update(zip(contents[:half], contents[half:], strict=True))
        elif isinstance(value, set):
            value.update(contents)
        else:
            value.extend(contents)


def _differ(now: list[Any], before: list[Any]) -> bool:
    """Do two lists hold other objects?"""
    if len(now) != len(before):
        return True
    return any(one is not other for one, other in zip(now, before, strict=True))
