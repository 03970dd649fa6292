"""What is known of one pass of a foreign model while it runs: what it reads, and which modules are at work."""

import inspect
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from attnlab.pretrained.caching import order_of
from attnlab.pretrained.plan import Place
from attnlab.sites import SitedModule

__all__ = ["Reads", "Run", "Told"]


class Told(NamedTuple):
    """What a module around a stack was told: ids (batch, length), real (batch, length), how much came before.

    cache: what holds that · memory (batch, key, width): what cross-attention looks at.
    """

    ids: Tensor | None = None
    real: Tensor | None = None
    offset: int = 0
    cache: Any = None
    memory: Tensor | None = None


class Reads:
    """Finds in the arguments of a module what a stack is going to read.

    is_plain: the model is of plain torch; then the first whole numbers are taken for ids, where they fit the stream.
    """

    def __init__(self, module: nn.Module, *, is_plain: bool = False) -> None:
        self._signature, self._is_plain = inspect.signature(module.forward), is_plain

    def of(self, args: Any, kwargs: Mapping[str, Any]) -> Told:
        """Read one call."""
        try:
            bound = self._signature.bind_partial(*args, **kwargs).arguments
        except TypeError:
            bound = dict(kwargs)
        given = {**bound, **bound.get("kwargs", {})}
        ids = _first_ids(given) if self._is_plain and "input_ids" not in given else given.get("input_ids")
        ids = ids if isinstance(ids, Tensor) and not ids.is_floating_point() and ids.dim() == 2 else None
        mask = given.get("attention_mask")
        real = mask.bool() if isinstance(mask, Tensor) and mask.dim() == 2 else None
        real = _unpadded(given) if real is None and self._is_plain else real
        past: Any = given.get("past_key_values")
        cache = past if hasattr(past, "get_seq_length") else None
        memory = given.get("encoder_hidden_states", given.get("memory"))
        length = 0 if cache is None else int(cache.get_seq_length())
        return Told(ids, real, length, cache, memory if isinstance(memory, Tensor) else None)


def _first_ids(given: Mapping[str, Any]) -> Tensor | None:
    """Return the first whole numbers among the inputs of a model that does not say what they are."""
    whole = (each for each in given.values() if isinstance(each, Tensor) and each.dim() == 2)
    return next((each for each in whole if not each.is_floating_point() and each.dtype != torch.bool), None)


def _unpadded(given: Mapping[str, Any]) -> Tensor | None:
    """Return what plain torch calls padding, the other way round."""
    mask = next((each for name, each in given.items() if name.endswith("key_padding_mask") and name[0] != "m"), None)
    return ~mask if isinstance(mask, Tensor) and mask.dtype == torch.bool and mask.dim() == 2 else None


class Run:
    """One thread's passes through one foreign model.

    stream: by the path of a block, the residual stream as it is there now · met: how many attentions passed a door ·
    left_out: where the encoder of plain torch that is at work puts zeros at its end, None for nowhere.
    """

    def __init__(self) -> None:
        self.stream: dict[str, Tensor] = {}
        self.left_out: Tensor | None = None
        self.met = 0
        self._told: dict[str, Told] = {}
        self._caches: dict[str, weakref.ref[Any]] = {}  # what each stack's last pass went into
        self._text: tuple[Tensor, Tensor | None] | None = None  # what was read last
        self._texts: dict[str, tuple[Tensor, Tensor | None]] = {}
        self._gave: dict[str, Tensor] = {}
        self._depth = 0
        self._calls: dict[str, int] = {}
        self._at_work: list[Place] = []
        self._counts: dict[tuple[str, Place], int] = {}

    def begin(self) -> None:
        """Forget what a pass that broke off has left."""
        if not self._depth:
            self.met = 0
            self._calls.clear()
            self._counts.clear()
            self._at_work.clear()
            self.stream.clear()
            self._told.clear()

    @contextmanager
    def within(self, make: Callable[[], TorchFunctionMode]) -> Iterator[None]:
        """Be in a module around a stack, whatever ends it; the outermost turns the seam on."""
        self._depth += 1
        try:
            if self._depth == 1:
                with make():
                    yield
            else:
                yield
        finally:
            self._depth -= 1

    def read(self, stack: str, told: Told) -> None:
        """Learn what a module around a stack was told; what an inner one is told is nearer the truth."""
        before = self._told.get(stack)
        if before is not None:
            told = Told(
                before.ids if told.ids is None else told.ids,
                before.real if told.real is None else told.real,
                max(told.offset, before.offset),
                before.cache if told.cache is None else told.cache,
                before.memory if told.memory is None else told.memory,
            )
        self._told[stack] = told

    def gave(self, stack: str, output: Any, memory: Tensor | None) -> None:
        """Learn what a module around a stack gave: what another stack may look at, a cache that was made on the way."""
        if memory is not None and self._text is not None:
            self._gave[stack], self._texts[stack] = memory, self._text
        inside = output.values() if isinstance(output, Mapping) else output if isinstance(output, Sequence) else ()
        cache = next((each for each in inside if hasattr(each, "get_seq_length")), None)
        if cache is not None:
            self._caches[stack] = weakref.ref(cache)

    def announce(self, stack: str, door: SitedModule, hidden: Tensor, *, is_turned: bool = False) -> None:
        """Tell the instruments what a stack begins to read, ids where they are known.

        is_turned: ids may stand as the stream does, (length, batch); models of transformers take theirs batch first.
        """
        told = self._told.pop(stack, Told())
        ids, real, offset, cache = told.ids, told.real, told.offset, told.cache
        batch, length = hidden.shape[:2]
        if ids is not None and is_turned and tuple(ids.shape) == (length, batch):
            ids = ids.t()
        tokens = ids if ids is not None and tuple(ids.shape) == (batch, length) else hidden
        if real is not None:
            real = real[:, -length:] if real.shape[0] == batch and real.shape[1] >= length else None
        self._text = tokens, real
        rows = self._rows(stack, cache, batch) if offset else None
        if cache is not None:
            self._caches[stack] = weakref.ref(cache)
        door.announce(tokens.detach(), offset, real, rows)

    def remind(self, stack: str, memory: str, door: SitedModule) -> None:
        """Tell the instruments anew what another stack has read, where this one is given it in other rows."""
        given, gave = self._told.get(stack, Told()).memory, self._gave.get(memory)
        if given is None or gave is None or given is gave or given.shape[1:] != gave.shape[1:]:
            return
        if given.shape == gave.shape and torch.equal(given, gave):
            return
        tokens, real = self._texts.get(memory, (gave, None))
        times = given.shape[0] // max(gave.shape[0], 1)
        if times > 1 and torch.equal(given, gave.repeat_interleave(times, 0)):  # so generate goes on with each input
            tokens = tokens.repeat_interleave(times, 0)
            real = None if real is None else real.repeat_interleave(times, 0)
        else:
            tokens, real = given, None
        self._gave[memory], self._texts[memory] = given, (tokens, real)
        door.announce(tokens.detach(), 0, real)

    def _rows(self, stack: str, cache: Any, batch: int) -> Tensor | None:
        """Say which rows of the stack's last pass are gone on from; -1 where its cache is another one."""
        last = self._caches.get(stack)
        if cache is None or last is None or last() is not cache:
            return torch.full((batch,), -1)
        return order_of(cache)

    def call(self, path: str, calls: int) -> int:
        """Note that a module begins, and return which of its calls in this pass it is."""
        number = self._calls.get(path, 0) % calls
        self._calls[path] = self._calls.get(path, 0) + 1
        self._at_work.append(Place(path, number))
        for key in [key for key in self._counts if key[1] == self._at_work[-1]]:
            del self._counts[key]
        return number

    def end(self, path: str) -> int:
        """Note that a module ends, and return which of its calls in this pass it was."""
        while self._at_work:
            place = self._at_work.pop()
            if place.path == path:
                return place.number
        return 0

    def number(self, path: str, calls: int) -> int:
        """Which of its calls in this pass a module at work is in."""
        return next((place.number for place in reversed(self._at_work) if place.path == path), 0)

    def count(self, seam: str, place: Place) -> int:
        """Count what a seam meets in the present call of a module, from 0."""
        found = self._counts.get((seam, place), -1) + 1
        self._counts[seam, place] = found
        return found

    @property
    def innermost(self) -> Place | None:
        """The module that began last and has not ended, of those that were planned."""
        return self._at_work[-1] if self._at_work else None
