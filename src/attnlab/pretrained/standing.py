"""Standing in a foreign module: alone there, not in what was compiled, and so that no copy takes anything along."""

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from copy import deepcopy
from functools import update_wrapper
from typing import Any

from torch import nn

from attnlab.errors import WrongUsage

__all__ = ["Post", "alone", "hooks_hidden", "leave_posts", "nothing", "uncompiled"]

_lock = threading.Lock()
_taken: "weakref.WeakSet[nn.Module]" = weakref.WeakSet()  # attentions at which somebody stands


def leave_posts(copied: nn.Module) -> None:
    """Take away what is left in a copy where posts stood in its original: hooks that do nothing, its own forward."""
    for module in copied.modules():
        for hooks in (module._forward_pre_hooks, module._forward_hooks):
            for key in [key for key, function in hooks.items() if function is nothing]:
                del hooks[key]
        own = vars(module).get("forward")
        if own is not None and own == type(module).forward.__get__(module):
            del module.forward


@contextmanager
def alone(attentions: Collection[nn.Module]) -> Iterator[None]:
    """Let nobody else's doors stand at these modules: each would believe that nothing was done at the other's."""
    with _lock:
        if any(module in _taken for module in attentions):
            raise WrongUsage(
                "this model, or a part of it, was given doors twice, and somebody stands at the others; load it once, "
                "and record and edit through that."
            )
        _taken.update(attentions)
    try:
        yield
    finally:
        with _lock:
            _taken.difference_update(attentions)


@contextmanager
def uncompiled(foreign: nn.Module) -> Iterator[None]:
    """Let modules that were compiled in place run as they were written: in what was compiled nobody can stand."""
    compiled = [module for module in foreign.modules() if module._compiled_call_impl is not None]
    before = [module._compiled_call_impl for module in compiled]
    for module in compiled:
        module._compiled_call_impl = None
    try:
        yield
    finally:
        for module, call in zip(compiled, before, strict=True):
            module._compiled_call_impl = call


@contextmanager
def hooks_hidden(foreign: nn.Module) -> Iterator[None]:
    """Take every hook and `forward` of ours out of a model, so that it runs as it does without us, and put them back.

    Hooks that others have put in stay. torch's modules take their fast path only where no hook stands in them.
    """
    taken: list[tuple[nn.Module, str, Any]] = []
    for module in foreign.modules():
        for name in ("_forward_pre_hooks", "_forward_hooks"):
            hooks = vars(module)[name]
            others = {key: hook for key, hook in hooks.items() if not isinstance(hook, Post)}
            if len(others) < len(hooks):
                taken.append((module, name, hooks))
                setattr(module, name, OrderedDict(others))
        forward = vars(module).get("forward")
        if isinstance(forward, Post):
            taken.append((module, "forward", forward))
            module.forward = forward.original
    try:
        yield
    finally:
        for module, name, value in taken:
            setattr(module, name, value)  # the very same object: the handles of hooks know it


class Post:
    """A hook or a `forward` of ours in a foreign module; a copy of the module has what was there instead."""

    def __init__(self, function: Callable[..., Any], instead: Callable[..., Any]) -> None:
        update_wrapper(self, instead, updated=())
        self._function, self._instead = function, instead

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Do what it is there for."""
        return self._function(*args, **kwargs)

    @property
    def original(self) -> Callable[..., Any]:
        """What was there before all posts."""
        return self._instead.original if isinstance(self._instead, Post) else self._instead

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        """Give a copy what was there before."""
        return deepcopy(self._instead, memo)


def nothing(*_: Any) -> None:
    """Do nothing."""
