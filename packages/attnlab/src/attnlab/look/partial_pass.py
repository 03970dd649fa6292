"""Passes of a model up to one attention: one as it computes, one from zeros in the streams' place.

The first notes what the modules between the streams and the attention read and return. The second
begins at the streams: blocks before them are supplied, norms have the scales of the first pass, and
modules that treat positions apart run at the asked ones alone. Its queries and keys are the biases;
their gradients to the zeros are the matrices.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from attnlab.errors import CouldNotRun, not_none
from attnlab.look.anatomy import Function, are_close
from attnlab.look.inputs import Call
from attnlab.look.readout import FrozenNorm, is_norm
from attnlab.sites import AttentionCall, Hook, installed, site_of

_MOST_GRADIENTS = 2**19  # numbers made at once: more are slower, for memory must be cleared


class ModuleNotes:
    """What the norms of a model, and the innermost modules of one block, read and returned between
    `begin` and `end`."""

    def __init__(self, model: nn.Module, block: nn.Module) -> None:
        inner = [module for module in block.modules() if not any(module.children())]
        self._modules = {*filter(is_norm, model.modules()), *inner}
        self._noted: dict[nn.Module, list[tuple[Tensor, Tensor]]] = {}
        self._calls: Counter[nn.Module] = Counter()
        self._is_on = False
        # by the id of a value: the value, its version, and its numbers at the asked positions
        self._rows: dict[int, tuple[Tensor, int, Tensor]] = {}

    def begin(self) -> None:
        """Note, or replay, the modules from here on."""
        self._is_on = True

    def end(self) -> None:
        """Leave the later modules alone."""
        self._is_on = False

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Note modules within the `with`."""
        with ExitStack() as stack:
            for module in self._modules:
                # before hooks that put another value in the place of its output
                handle = module.register_forward_hook(self._note, prepend=True, with_kwargs=True)
                stack.callback(handle.remove)
            yield

    @contextmanager
    def replayed(self, rows: Sequence[int]) -> Iterator[None]:
        """Within the `with`, hold norms at their scales, and run other modules at these positions
        alone where they treat positions apart."""
        self._calls.clear()
        with ExitStack() as stack:
            stack.callback(self._rows.clear)
            for module in self._noted:
                if is_norm(module):
                    handle = module.register_forward_hook(self._hold, prepend=True)
                    stack.callback(handle.remove)
                elif "forward" not in vars(module) and self._treats_apart(module, rows):
                    module.forward = partial(self._at_rows, rows, module.forward)
                    stack.callback(vars(module).pop, "forward")
            yield

    def _note(self, module: nn.Module, args: Any, options: Any, output: Any) -> None:
        """Note one call; of a module that is no norm, only one that reads one tensor."""
        if not self._is_on or not args or not isinstance(output, Tensor):
            return
        if is_norm(module):  # some models write over what a norm has read
            noted = args[0].detach().clone(), output.detach().clone()
        elif len(args) == 1 and not options and isinstance(args[0], Tensor):
            noted = args[0].detach(), output.detach()
        else:
            return
        self._noted.setdefault(module, []).append(noted)

    def _hold(self, module: nn.Module, args: Any, output: Any) -> Tensor | None:
        """Hold a norm at the scale that it had in the same call of the pass that was noted."""
        number = self._calls[module]
        if not self._is_on or number >= len(self._noted[module]):
            return None
        self._calls[module] += 1
        norm = FrozenNorm.of_module(module, *self._noted[module][number])
        return None if norm is None else norm(args[0])

    @torch.no_grad()
    def _treats_apart(self, module: nn.Module, rows: Sequence[int]) -> bool:
        """Does a module give the same at these positions without the others?"""
        for read, output in self._noted[module]:
            if read.dim() != 3 or len(read) != 1 or output.shape[:-1] != read.shape[:-1]:
                return False
            index = _index(read, rows)
            if not are_close(module.forward(read[:, index]), output[:, index]):
                return False
        return True

    def _at_rows(self, rows: Sequence[int], forward: Function, x: Tensor) -> Tensor:
        """Run a module at some positions, (1, length, width), with zeros at the others."""
        if not self._is_on:
            return forward(x)
        index, (_, version, read) = _index(x, rows), self._rows.get(id(x), (x, -1, x))
        if version != x._version:  # of another value, or one that the model has written over
            read = x.index_select(1, index)
        return self.spread(forward(read), index, x.shape[1])

    def spread(self, some: Tensor, index: Tensor, length: int) -> Tensor:
        """Put values of some positions, (1, position, width), among zeros, (1, length, width).

        A module that reads the result takes the values themselves, without the way through it.
        """
        whole = some.new_zeros((1, length, some.shape[2])).index_copy(1, index, some)
        self._rows[id(whole)] = whole, whole._version, some
        return whole


def _index(x: Tensor, rows: Sequence[int]) -> Tensor:
    """Return the positions among these that a value (1, length, width) has."""
    return torch.tensor([row for row in rows if row < x.shape[1]], device=x.device)


class _Reached(BaseException):
    """Raised at the attention, to skip the rest of the model."""


class _Pass(Hook):
    """A pass up to an attention, whose call is kept."""

    def __init__(self, part: str, streams: Collection[str], notes: ModuleNotes) -> None:
        self._part, self._end, self._streams = part, site_of(part, "heads"), frozenset(streams)
        self._notes = notes
        self.sites: frozenset[str] = self._streams | {self._end}
        self._call: AttentionCall | None = None

    @property
    def call(self) -> AttentionCall:
        """The call of the attention."""
        return not_none(self._call)

    def run(self, model: nn.Module, call: Call) -> None:
        """Run the model up to the attention.

        Raises:
            CouldNotRun: it did not get there.
        """
        with installed(model, self), torch.no_grad(), suppress(_Reached):
            call(model)
        self._notes.end()
        if self._call is None:
            raise CouldNotRun(f"the model ran without {self._part}.")

    def wants(self, site: str) -> bool:
        return site in self._streams or site == self._end


class PlainPass(_Pass):
    """The model as it computes, with the modules after its streams noted.

    stops: the pass ends at the attention.
    """

    changes = False

    def __init__(
        self, part: str, streams: Collection[str], notes: ModuleNotes, *, stops: bool
    ) -> None:
        super().__init__(part, streams, notes)
        self._stops = stops

    def run(self, model: nn.Module, call: Call) -> None:
        """Run the model up to the attention, and note its modules."""
        with self._notes.taken():
            super().run(model, call)

    def visit(self, site: str, value: Tensor) -> Tensor:
        """Note the modules after a stream; end the pass after the attention."""
        if site != self._end:
            self._notes.begin()
        elif self._stops:  # scores that are computed explicitly are shown before this
            raise _Reached
        return value

    def watch(self, part: str, call: AttentionCall) -> None:
        """Keep the call; end the pass if its scores are not computed explicitly."""
        if part != self._part:
            return
        self._call = call
        self._notes.end()
        if self._stops and not call.is_explicit:
            raise _Reached


class HeadVector(NamedTuple):
    """The query or key of a head at a position; name: "query" or "key"."""

    name: str
    head: int
    position: int


class ZeroPass(_Pass):
    """The model with zeros in the place of its streams, for the queries and keys at some positions.

    known: the results of blocks that need not be computed again.
    """

    def __init__(
        self,
        part: str,
        streams: Collection[str],
        notes: ModuleNotes,
        known: Mapping[str, Tensor],
        rows: Sequence[int],
    ) -> None:
        super().__init__(part, streams, notes)
        self._known, self._rows = known, rows
        self.sites = self.sites | known.keys()
        self._leaves: dict[str, Tensor] = {}  # zeros at the positions, (1, position, d_model)

    def run(self, model: nn.Module, call: Call) -> None:
        """Run the model from zeros in its streams to the attention."""
        with self._notes.replayed(self._rows):
            super().run(model, call)

    def bias(self, vector: HeadVector) -> Tensor:
        """Return what a vector is of zeros, (head_width,)."""
        name, head, position = vector
        value: Tensor = getattr(self.call, name)
        return value[0, head, position].detach()

    def matrices(self, site: str, vectors: Sequence[HeadVector]) -> Tensor:
        """Return the matrices from a stream to vectors at its positions, (vector, head_width,
        d_model)."""
        leaf = self._leaves[site]
        width = self.call.query.shape[-1]
        matrices = leaf.new_zeros(len(vectors), width, leaf.shape[2])
        largest = max(self.call.query.numel(), self.call.key.numel())
        step = max(1, _MOST_GRADIENTS // largest)
        for numbers in _apart(vectors):
            gradients = self._gradients(leaf, [vectors[at] for at in numbers], step)
            for number in numbers:
                matrices[number] = gradients[:, self._rows.index(vectors[number].position)]
        return matrices

    def _gradients(self, leaf: Tensor, vectors: Sequence[HeadVector], step: int) -> Tensor:
        """Return the gradients of the channels of vectors to a leaf, (channel, position, d_model),
        added up over the vectors; `step` channels at a time."""
        outputs: dict[str, Tensor] = {name: getattr(self.call, name) for name, _, _ in vectors}
        wanted = {}
        for name, value in outputs.items():  # most models make them of (batch, length, head, width)
            turned = value.transpose(1, 2)
            wanted[name] = turned.new_zeros(step, *turned.shape).transpose(2, 3)
        gradients: list[Tensor] = []
        for channels in torch.split(torch.arange(value.shape[-1], device=leaf.device), step):
            numbers = torch.arange(len(channels))
            for name, head, position in vectors:
                wanted[name][numbers, 0, head, position, channels] = 1.0
            gradients += torch.autograd.grad(
                list(outputs.values()), leaf, [ones[: len(channels)] for ones in wanted.values()],
                retain_graph=True, is_grads_batched=True, materialize_grads=True,
            )  # fmt: skip
            for name, head, position in vectors:
                wanted[name][numbers, 0, head, position, channels] = 0.0
        return torch.cat(gradients)[:, 0]

    def visit(self, site: str, value: Tensor) -> Tensor:
        """Put zeros in the place of a stream."""
        if site == self._end:
            raise _Reached
        self._notes.begin()
        torch.set_grad_enabled(True)
        index = _index(value, self._rows)
        self._leaves[site] = value.new_zeros(1, len(index), value.shape[2]).requires_grad_()
        return self._notes.spread(self._leaves[site], index, value.shape[1])

    def supply(self, site: str) -> Tensor | None:
        """Return what stands for the result of an earlier block."""
        return self._known.get(site)

    def watch(self, part: str, call: AttentionCall) -> None:
        """Keep the call, and end the pass."""
        if part == self._part:
            self._call = call
            raise _Reached


def _apart(vectors: Sequence[HeadVector]) -> Iterator[list[int]]:
    """Group the numbers of vectors so that those of a group are at different positions."""
    groups: list[dict[int, int]] = []
    for number, vector in enumerate(vectors):
        for group in groups:
            if vector.position not in group:
                group[vector.position] = number
                break
        else:
            groups.append({vector.position: number})
    return (list(group.values()) for group in groups)
