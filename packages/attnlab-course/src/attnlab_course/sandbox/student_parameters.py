"""A student's parameters under the solution's names: of functions, and of modules.

A check calls by keyword and writes a module's parameters by name. A student may have chosen other
names, so an argument takes the name at its place, and a parameter the place that is most like it.
It stands beside `student_code.py` in the sandbox and imports nothing of attnlab.
"""

import inspect
import itertools
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

Settings = Mapping[str, Any]
"""Keyword arguments."""

_PARAMETERS = "parameters are not those of the statement"


def rename_settings(target: Any, settings: Settings, names: Sequence[str]) -> Settings:
    """Return keyword arguments under the names that a program has for them.

    names: those of the solution's parameters, in whose places they are.
    """
    try:
        parameters = inspect.signature(target).parameters.values()
    except ValueError:  # it is not written in Python
        return settings
    kinds = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
    mine = [parameter.name for parameter in parameters if parameter.kind in kinds]
    renamed = {name: other for name, other in zip(names, mine, strict=False) if other not in names}
    return {renamed.get(name, name): value for name, value in settings.items()}


def load_parameters(module: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Write parameters into a module, where a name is wrong into the one that is most like it.

    What a check asks of names is another matter. Buffers that are not given keep their values.

    Raises:
        RuntimeError: the module lacks a parameter.
    """
    places = _places(module, state)
    shapes = tensor_shapes(places)
    if any(shapes.get(name) != tensor.shape for name, tensor in state.items()):
        raise RuntimeError(f"its {_PARAMETERS}; {_parameter_words(module, state)}")
    with torch.no_grad():
        for name, tensor in state.items():
            places[name].copy_(tensor)


def _places(module: nn.Module, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors of a module that parameters are written into, by the parameters' names.

    One of another name has the same shape and the most of the last parts of the name,
    `norm.weight` for `normalize.weight`; it is the first that was made. A plain tensor is one, too.
    """
    places = {name: value for name, value in vars(module).items() if isinstance(value, Tensor)}
    places |= module.state_dict()
    spare = dict(module.named_parameters())
    for name in state:
        spare.pop(name, None)
    for name, tensor in state.items():
        like = [other for other in spare if spare[other].shape == tensor.shape]
        if like and name not in places:
            places[name] = spare.pop(max(like, key=partial(_same_ending, name)))
    return places


def _same_ending(one: str, other: str) -> int:
    """Return how many of the last parts of two names are the same."""
    pairs = zip(reversed(one.split(".")), reversed(other.split(".")), strict=False)
    return len([*itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)])


def _parameter_words(module: nn.Module, state: Mapping[str, Tensor]) -> str:
    """Say in plain words how a module's parameters differ from those that are given to it."""
    shapes, wanted = tensor_shapes(module.state_dict()), tensor_shapes(state)
    words = [
        *_lacking("missing", wanted, shapes),
        *_lacking("unexpected", dict(module.named_parameters()), wanted),
    ]
    for name, shape in shapes.items():
        if shape != wanted.get(name, shape):
            words.append(f"{name} has the shape {shape}; it should be {wanted[name]}")
    return "; ".join(words)


def _lacking(words: str, these: Iterable[str], those: Container[str]) -> Iterator[str]:
    """Yield the names that are in these and not in those, in one text; nothing without any."""
    names = [name for name in these if name not in those]
    if names:
        yield f"{words}: {', '.join(names)}"


def tensor_shapes(tensors: Mapping[str, Tensor]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of tensors by name."""
    return {name: tuple(tensor.shape) for name, tensor in tensors.items()}
