"""The state of one pass of a foreign model while it runs: what each stack reads, and which modules
are running. And its hooks: one owner at a time, none in compiled code, none in copies.
"""

import inspect
import sys
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import update_wrapper
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from attnlab.errors import WrongUsage
from attnlab.pretrained.backends.caches import order_of
from attnlab.pretrained.images import image_places
from attnlab.pretrained.model_trace import ModuleCall
from attnlab.pretrained.structure import ModelStructure
from attnlab.pretrained.tracing import inside
from attnlab.sites import SitedModule

_lock = threading.Lock()
_taken: "weakref.WeakSet[nn.Module]" = weakref.WeakSet()  # attentions that have hooks of ours


def remove_copied_hooks(copied: nn.Module) -> None:
    """Remove from a copy what the original's hooks became in it: hooks that do nothing, its own
    forward."""
    for module in copied.modules():
        for hooks in (module._forward_pre_hooks, module._forward_hooks):
            for key, function in list(hooks.items()):
                if function is do_nothing:
                    del hooks[key]
        forward = vars(module).get("forward")
        if forward is not None and forward == type(module).forward.__get__(module):
            del module.forward


@contextmanager
def exclusive(attentions: Collection[nn.Module]) -> Iterator[None]:
    """Reserve these modules for one set of hook points: a second set would not see the edits of the
    first."""
    with _lock:
        if any(module in _taken for module in attentions):
            raise WrongUsage(
                "this model, or a part of it, was loaded twice, and hooks are installed through "
                "the other one; load it once, and record and edit through that."
            )
        _taken.update(attentions)
    try:
        yield
    finally:
        with _lock:
            _taken.difference_update(attentions)


@contextmanager
def _changed(changes: list[tuple[nn.Module, str, Any]]) -> Iterator[None]:
    """Give modules other attributes within the `with`, and the same objects back after it."""
    before = [(module, name, getattr(module, name)) for module, name, _ in changes]
    for change in changes:
        setattr(*change)
    try:
        yield
    finally:
        for change in before:
            setattr(*change)


_eager: list[None] = []  # one for each open `uncompiled`
_stances: list[Any] = []  # torch's stance, while any of them needs it


@contextmanager
def uncompiled() -> Iterator[None]:
    """Run what torch.compile has compiled as it was written: compiled code takes no hooks.

    It holds in the whole process; else hooks would run in some modules of a compiled model and
    not in others.
    """
    with _lock:
        if not _stances and "torch._dynamo" in sys.modules:  # else nothing is compiled
            _stances.append(torch.compiler.set_stance("force_eager"))
        _eager.append(None)
    try:
        yield
    finally:
        with _lock:
            _eager.pop()
            if _stances and not _eager:
                _stances.pop().__exit__(None, None, None)


def hooks_hidden(foreign: nn.Module) -> AbstractContextManager[None]:
    """Take our hooks and forwards out of a model within the `with`, so that it runs as it does
    without us.

    Hooks of others stay. torch's modules take their fast path only if they have no hook.
    """
    changes: list[tuple[nn.Module, str, Any]] = []
    for module in foreign.modules():
        for name in ("_forward_pre_hooks", "_forward_hooks"):
            hooks = vars(module)[name]
            others = {key: hook for key, hook in hooks.items() if not isinstance(hook, ModuleHook)}
            if len(others) < len(hooks):
                changes.append((module, name, OrderedDict(others)))
        forward = vars(module).get("forward")
        if isinstance(forward, ModuleHook):
            changes.append((module, "forward", forward.original))
    return _changed(changes)


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
        if isinstance(self._instead, ModuleHook):
            return self._instead.original
        return self._instead

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        """Give a copy the original."""
        return deepcopy(self._instead, memo)


def do_nothing(*_: Any) -> None:
    """Do nothing."""


@dataclass(frozen=True)
class StackInputs:
    """The inputs of a stack: ids (batch, length), real (batch, length), and the number of earlier
    tokens.

    cache: holds the earlier tokens · memory (batch, key, width): what cross-attention reads ·
    grids: of the images, see `image_places`.
    """

    ids: Tensor | None = None
    real: Tensor | None = None
    offset: int = 0
    cache: Any = None
    memory: Tensor | None = None
    grids: Tensor | None = None

    def last_real(self, batch: int, length: int) -> Tensor | None:
        """Return which of the last tokens are real, (batch, length); None where that is unknown."""
        real = self.real
        if real is None or real.shape[0] != batch or real.shape[1] < length:
            return None
        return real[:, -length:]


def stack_inputs(
    signature: inspect.Signature, args: Any, kwargs: Any, *, is_plain: bool
) -> StackInputs:
    """Find the inputs of a stack among the arguments of a module around it.

    is_plain: the model is of plain torch; then the first integers are taken for ids.
    """
    try:
        bound = signature.bind_partial(*args, **kwargs).arguments
    except TypeError:
        bound = dict(kwargs)
    arguments = {**bound, **bound.get("kwargs", {})}
    ids = arguments.get("input_ids")
    if is_plain and "input_ids" not in arguments:
        ids = next(filter(_are_ids, arguments.values()), None)
    if not _are_ids(ids):
        ids = None
    cache: Any = arguments.get("past_key_values")
    offset = 0
    if hasattr(cache, "get_seq_length"):
        offset = int(cache.get_seq_length())
    else:
        cache = None
    memory = arguments.get("encoder_hidden_states", arguments.get("memory"))
    if not isinstance(memory, Tensor):
        memory = None
    grids = arguments.get("image_grid_thw")
    return StackInputs(ids, _real(arguments, is_plain=is_plain), offset, cache, memory, grids)


def _real(arguments: Mapping[str, object], *, is_plain: bool) -> Tensor | None:
    """Return which tokens are real, (batch, length); None if no argument says so."""
    mask = arguments.get("attention_mask")
    if isinstance(mask, Tensor) and mask.dim() == 2:
        return mask.bool()
    if is_plain:
        return _unpadded(arguments)
    return None


def _are_ids(values: Any) -> bool:
    if not isinstance(values, Tensor) or values.dim() != 2:
        return False
    return not values.is_floating_point() and values.dtype != torch.bool


def _unpadded(arguments: Mapping[str, object]) -> Tensor | None:
    """Return the inverse of the padding mask that plain torch takes."""
    for name, mask in arguments.items():
        if name.endswith("key_padding_mask") and name[0] != "m":  # not memory_key_padding_mask
            if isinstance(mask, Tensor) and mask.dtype == torch.bool and mask.dim() == 2:
                return ~mask
            return None
    return None


class PassState:
    """One thread's passes through one foreign model.

    stream: the present residual stream by the path of a block · hooked: how many attentions reached
    a hook point · left_out: how much of each text the running encoder of plain torch keeps
    before the zeros it writes at padding; None for all.
    """

    def __init__(self) -> None:
        self.stream: dict[str, Tensor] = {}
        self.left_out: list[int] | None = None
        self.hooked = self.ran = 0
        self._inputs: dict[str, StackInputs] = {}
        self._caches: dict[str, weakref.ref[Any]] = {}  # the cache of each stack's last pass
        self._text: tuple[Tensor, Tensor | None] | None = None  # the last input: tokens, real
        self._texts: dict[str, tuple[Tensor, Tensor | None]] = {}
        self._memories: dict[str, Tensor] = {}
        self.results: dict[str, set[str]] = {}  # module sites that have returned, by stack
        self._depth = 0
        self._calls: dict[str, int] = {}
        self._running: list[ModuleCall] = []
        self._counts: dict[tuple[str, ModuleCall], int] = {}

    def begin(self) -> None:
        """Discard the state of a pass that failed."""
        if not self._depth:
            self.hooked = self.ran = 0
            for record in (self._calls, self._counts, self._running, self.stream, self._inputs):
                record.clear()
            self.results.clear()

    @contextmanager
    def within(self, make: Callable[[], TorchFunctionMode]) -> Iterator[None]:
        """Run a module around a stack within a function mode, which the outermost one enters."""
        self._depth += 1
        try:
            with make() if self._depth == 1 else nullcontext():
                yield
        finally:
            self._depth -= 1

    def read(self, stack: str, inputs: StackInputs) -> None:
        """Note the inputs of a module around a stack; those of an inner module take precedence."""
        outer = self._inputs.get(stack)
        if outer is not None:
            known = {name: value for name, value in vars(inputs).items() if value is not None}
            known["offset"] = max(inputs.offset, outer.offset)
            inputs = replace(outer, **known)
        self._inputs[stack] = inputs

    def returned(self, stack: str, output: Any, memory: Tensor | None) -> None:
        """Note the output of a module around a stack: the memory for another stack, a new cache."""
        if memory is not None and self._text is not None:
            self._memories[stack], self._texts[stack] = memory, self._text
        cache = next((item for item in inside(output) if hasattr(item, "get_seq_length")), None)
        if cache is not None:
            self._caches[stack] = weakref.ref(cache)

    def announce(
        self,
        stack: str,
        point: SitedModule,
        hidden: Tensor,
        *,
        config: Any = None,
        is_turned: bool = False,
    ) -> None:
        """Tell the hooks what a stack reads: ids where they are known, else the stream.

        config: of the model, which says what stands for an image.

        is_turned: ids may be (length, batch), as the stream is; models of transformers take theirs
        batch first.
        """
        self.results.pop(stack, None)
        inputs = self._inputs.pop(stack, StackInputs())
        tokens, ids, (batch, length) = hidden, inputs.ids, hidden.shape[:2]
        places = None
        if ids is not None and is_turned and tuple(ids.shape) == (length, batch):
            ids = ids.t()
        if ids is not None and tuple(ids.shape) == (batch, length):
            tokens = ids
            places = image_places(config, ids, inputs.grids)
        real = inputs.last_real(batch, length)
        self._text = tokens, real
        rows = self._rows(stack, inputs.cache, batch) if inputs.offset else None
        if inputs.cache is not None:
            self._caches[stack] = weakref.ref(inputs.cache)
        point.announce(tokens.detach(), inputs.offset, real, rows, places)

    def remind(self, stack: str, memory: str, point: SitedModule) -> None:
        """Tell the hooks again what another stack has read, if this one receives it in other
        rows."""
        memory_input, made = (
            self._inputs.get(stack, StackInputs()).memory,
            self._memories.get(memory),
        )
        if (
            memory_input is None
            or made is None
            or memory_input is made
            or memory_input.shape[1:] != made.shape[1:]
        ):
            return
        if memory_input.shape == made.shape and torch.equal(memory_input, made):
            return
        tokens, real = self._texts.get(memory, (made, None))
        times = memory_input.shape[0] // max(made.shape[0], 1)
        # generate repeats the memory of each input for its beams.
        if times > 1 and torch.equal(memory_input, made.repeat_interleave(times, 0)):
            tokens = tokens.repeat_interleave(times, 0)
            if real is not None:
                real = real.repeat_interleave(times, 0)
        else:
            tokens, real = memory_input, None
        self._memories[memory], self._texts[memory] = memory_input, (tokens, real)
        point.announce(tokens.detach(), 0, real)

    def _rows(self, stack: str, cache: Any, batch: int) -> Tensor | None:
        """Return the rows of the stack's last pass that this one continues; -1 with another
        cache."""
        last = self._caches.get(stack)
        if cache is None or last is None or last() is not cache:
            return torch.full((batch,), -1)
        return order_of(cache)

    def call(self, path: str, calls: int) -> int:
        """Note the beginning of a module call, and return its number in this pass."""
        number = self._calls.get(path, 0) % calls
        self._calls[path] = self._calls.get(path, 0) + 1
        self._running.append(ModuleCall(path, number))
        for key in list(self._counts):
            if key[1] == self._running[-1]:
                del self._counts[key]
        return number

    def end(self, path: str) -> int:
        """Note the end of a module call, and return its number in this pass."""
        while self._running:
            place = self._running.pop()
            if place.path == path:
                return place.number
        return 0

    def number(self, path: str) -> int:
        """Return the number of a running module's call in this pass."""
        for place in reversed(self._running):
            if place.path == path:
                return place.number
        return 0

    def count(self, backend: str, place: ModuleCall) -> int:
        """Count what a backend finds in the present call of a module, from 0."""
        number = self._counts.get((backend, place), -1) + 1
        self._counts[backend, place] = number
        return number

    @property
    def innermost(self) -> ModuleCall | None:
        """The innermost running module, of those with hooks."""
        return None if not self._running else self._running[-1]


class ForeignModel(SitedModule):
    """A foreign model with hook points, as its hooks know it: its modules and the present pass."""

    foreign: nn.Module
    structure: ModelStructure
    without_points = ("foreign",)

    def __init__(self) -> None:
        super().__init__()
        self._own = threading.local()

    def point(self, path: str) -> Any:
        """Return the hook point with this path."""
        return self.get_submodule(path)

    @property
    def current_pass(self) -> PassState:
        """The state of this thread's pass."""
        state: PassState | None = getattr(self._own, "current_pass", None)
        if state is None:
            state = self._own.current_pass = PassState()
        return state
