"""Hooks in a foreign module: one owner at a time, none in compiled code, none in copies."""

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

__all__ = [
    "ModuleHook",
    "do_nothing",
    "exclusive",
    "hooks_hidden",
    "remove_copied_hooks",
    "uncompiled",
]

_lock = threading.Lock()
_taken: "weakref.WeakSet[nn.Module]" = weakref.WeakSet()  # attentions that have hooks of ours


def remove_copied_hooks(copied: nn.Module) -> None:
    """Remove from a copy what the original's hooks became in it: hooks that do nothing, its own
    forward."""
    for module in copied.modules():
        for hooks in (module._forward_pre_hooks, module._forward_hooks):
            for key in [key for key, function in hooks.items() if function is do_nothing]:
                del hooks[key]
        own = vars(module).get("forward")
        if own is not None and own == type(module).forward.__get__(module):
            del module.forward


@contextmanager
def exclusive(attentions: Collection[nn.Module]) -> Iterator[None]:
    """Reserve these modules for one set of hook points: a second set would not see the edits of the
    first."""
    with _lock:
        if any(module in _taken for module in attentions):
            raise WrongUsage(
                "this model, or a part of it, was given hook points twice, and hooks are installed "
                "at the others; load it once, and record and edit through that."
            )
        _taken.update(attentions)
    try:
        yield
    finally:
        with _lock:
            _taken.difference_update(attentions)


@contextmanager
def uncompiled(foreign: nn.Module) -> Iterator[None]:
    """Run modules that were compiled in place as they were written: compiled code takes no
    hooks."""
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
    """Take our hooks and forwards out of a model within the `with`, so that it runs as it does
    without us.

    Hooks of others stay. torch's modules take their fast path only if they have no hook.
    """
    taken: list[tuple[nn.Module, str, Any]] = []
    for module in foreign.modules():
        for name in ("_forward_pre_hooks", "_forward_hooks"):
            hooks = vars(module)[name]
            others = {key: hook for key, hook in hooks.items() if not isinstance(hook, ModuleHook)}
            if len(others) < len(hooks):
                taken.append((module, name, hooks))
                setattr(module, name, OrderedDict(others))
        forward = vars(module).get("forward")
        if isinstance(forward, ModuleHook):
            taken.append((module, "forward", forward))
            module.forward = forward.original
    try:
        yield
    finally:
        for module, name, value in taken:
            setattr(module, name, value)  # the same object, to which the hooks' handles refer


class ModuleHook:
    """A hook or a `forward` of ours in a foreign module; a copy of the module gets the original
    back."""

    def __init__(self, function: Callable[..., Any], instead: Callable[..., Any]) -> None:
        update_wrapper(self, instead, updated=())
        self._function, self._instead = function, instead

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call our function."""
        return self._function(*args, **kwargs)

    @property
    def original(self) -> Callable[..., Any]:
        """The function that all our hooks replaced."""
        return self._instead.original if isinstance(self._instead, ModuleHook) else self._instead

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        """Give a copy the original."""
        return deepcopy(self._instead, memo)


def do_nothing(*_: Any) -> None:
    """Do nothing."""
