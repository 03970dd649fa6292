"""How the residual stream goes on after an attention and to the end of its block: sums and calls
whose values agree in the trace of one pass."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from attnlab.pretrained.model_trace import ModuleCall, TracedAttention, TracedCall


@dataclass(frozen=True)
class Step:
    """How the stream goes on after an attention: what adds to it, the stream after it (as in
    `AttentionStructure`), its value and, after the last attention, the call that the rest of the
    block adds."""

    adds: ModuleCall | None = None
    after: ModuleCall | str | None = None
    stream: Tensor | None = None
    last: TracedCall | None = None


def follow(
    stream: Tensor | None,
    calls: Sequence[TracedCall],
    block: TracedCall | None,
    attention: TracedAttention,
    following: TracedAttention | None,
) -> Step:
    """Follow the stream through one attention."""
    if block is None:
        return Step()
    end = following.begun if following is not None else block.ended
    after = [call for call in _calls_after(calls, attention) if call.begun < end]
    added = _adds(stream, after, attention)
    if added is None:
        return Step()
    if following is None:
        return _last_step(added, calls, block)
    for onward, value in added.streams:
        further = _adds(value, _calls_after(calls, following), following)
        if further is not None and further.taker is not None:
            return Step(added.place, onward, value)
    return Step(added.place)


def _last_step(added: "_Added", calls: Sequence[TracedCall], block: TracedCall) -> Step:
    """Follow the stream from the last attention to the end of the block."""
    for onward, value in added.streams:
        closes = _closes(value, calls, block)
        if closes is not None and added.taker is not None:
            return Step(added.by.place, onward, value, closes)
        if closes is not None:  # the feed-forward part is parallel to attention
            return Step(added.by.place, None, value, closes)
    return Step(added.place)


def _calls_after(calls: Sequence[TracedCall], attention: TracedAttention) -> list[TracedCall]:
    """List the calls after an attention; multi-head attention projects inside its own call, which
    counts too."""
    place = None
    if attention.backend == "multi-head":
        place = attention.place
    return [call for call in calls if call.begun > attention.begun or call.place == place]


class _Target:
    """A tensor that others are compared with, many of them: its size and first value are kept."""

    def __init__(self, values: Tensor) -> None:
        self._values = values.detach().float()
        self._size = self._first = 0.0
        if values.numel():
            self._size = float(self._values.abs().max())
            self._first = float(self._values.flatten()[0])

    def is_close(self, other: Any) -> bool:
        """Does another value hold the same numbers, perhaps in another shape?"""
        if not isinstance(other, Tensor) or not other.is_floating_point():
            return False
        if other.numel() != self._values.numel():
            return False
        within = 1e-5 * max(self._size, 1e-6)
        if other.numel():
            apart = abs(float(other.detach().flatten()[0]) - self._first)
            if apart > 2 * (within + 1e-4 * abs(self._first)):
                return False
        # Some blocks join the batch and the length into one axis.
        other = other.reshape(self._values.shape).float()
        return torch.allclose(other, self._values, rtol=1e-4, atol=within)


@dataclass(frozen=True)
class _Added:
    """An addition to the stream: the call whose output was added, the sum, and the call that
    received the sum, if any."""

    by: TracedCall
    total: Tensor
    taker: TracedCall | None

    @property
    def place(self) -> ModuleCall | None:
        """The call whose output was added, if another call received the sum."""
        return None if self.taker is None else self.by.place

    @property
    def streams(self) -> list[tuple[ModuleCall | str, Tensor]]:
        """What may go on as the stream: the sum, or what the call that received it returns."""
        streams: list[tuple[ModuleCall | str, Tensor]] = [("sum", self.total)]
        if self.taker is None or self.taker.output is None:
            return streams
        if self.taker.output.shape == self.total.shape:
            streams.append((self.taker.place, self.taker.output))
        return streams


def _adds(
    stream: Tensor | None, after: Sequence[TracedCall], attention: TracedAttention
) -> _Added | None:
    """Find the call after an attention whose output, added to the stream, a later call receives."""
    if stream is None:
        return None
    if attention.backend != "multi-head":
        after = _from_reader(attention, after)
    alone = None
    for call in after:
        if call.output is None or call.output.shape != stream.shape:
            continue
        total = stream + call.output
        taker = _receiver(total, [later for later in after if later.begun > call.begun])
        if taker is not None:
            return _Added(call, total, taker)
        alone = alone or _Added(call, total, None)
    return alone


def _from_reader(attention: TracedAttention, after: Sequence[TracedCall]) -> Sequence[TracedCall]:
    """Return the calls from the first that is given the joined heads of an attention."""
    if attention.heads is None:
        return []
    reader = _receiver(attention.heads.transpose(1, 2).flatten(2), after)
    return [] if reader is None else [call for call in after if call.begun >= reader.begun]


def _receiver(values: Tensor, calls: Sequence[TracedCall]) -> TracedCall | None:
    """Find the first call that is given these values."""
    target = _Target(values)
    for call in calls:
        if target.is_close(call.input):
            return call
    return None


def _closes(stream: Tensor, calls: Sequence[TracedCall], block: TracedCall) -> TracedCall | None:
    """Find the call whose output, added to the stream, is the block's output, perhaps after a
    norm."""
    for call in calls:
        if call.output is None or call.output.numel() != stream.numel():
            continue
        total = _Target(stream + call.output.reshape(stream.shape))
        if total.is_close(block.output):
            return call
        for later in calls:
            is_norm = later.begun > call.begun and total.is_close(later.input)
            if (
                is_norm
                and later.output is not None
                and _Target(later.output).is_close(block.output)
            ):
                return call
    return None


def find_down(last: TracedCall, calls: Sequence[TracedCall]) -> ModuleCall | None:
    """Find the projection from the hidden layer back to d_model: its output is added, perhaps after
    a norm."""
    for call in reversed(calls):
        if call.output is None or not call.projects:
            continue
        target = _Target(call.output)
        if target.is_close(last.output) or target.is_close(last.input):
            return call.place
    return None
