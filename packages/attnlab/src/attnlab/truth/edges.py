"""Edges: a sender's output, removed from the input of one head's query, key or value."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn

from attnlab.look.inputs import Call
from attnlab.look.recording import Recording, record
from attnlab.parts.heads import split_heads
from attnlab.sites import Hook
from attnlab.truth.circuits import Circuit

_SITES = ["*embedding", "*.residual_*", "*.heads", "*feed_forward.output"]
SLOTS = ("query", "key", "value")


@dataclass(frozen=True, eq=False)
class StreamRead:
    """One reading of the stream, by the queries, keys or values of all heads of an attention.

    path, slot: whose · senders: what was written there before, by name (input, position,
    dimension), as far as the norm lets it through · projection: what reads it · heads: names and
    numbers of the heads with weights.
    """

    path: str
    slot: str
    senders: dict[str, Tensor]
    projection: nn.Module
    heads: tuple[tuple[str, int], ...]

    def edges(self) -> list[tuple[str, str]]:
        """List sender and receiver of each edge, in the order of `cut`."""
        receivers = [f"{name}.{self.slot}" for name, _ in self.heads]
        return list(product(self.senders, receivers))

    def cut(self, num_heads: int) -> "EdgeCut":
        """Return the hook that cuts each edge in its own copy of all inputs."""
        weight: Any = self.projection.weight
        changes = []
        for written in self.senders.values():
            parts = split_heads(written @ weight.T, num_heads)
            for _, number in self.heads:
                changes.append((number, parts[:, number]))
        return EdgeCut(f"{self.path}.{self.slot}", changes)


class EdgeCut(Hook):
    """Subtracts from one head in each copy of a batch."""

    def __init__(self, site: str, changes: list[tuple[int, Tensor]]) -> None:
        self._site, self._changes = site, changes

    def wants(self, site: str) -> bool:
        """Is this the site that is changed?"""
        return site == self._site

    def visit(self, site: str, value: Tensor) -> Tensor:
        """Subtract each change from its copy."""
        value = value.clone()
        copies = value.view(len(self._changes), -1, *value.shape[1:])
        for copy, (head, change) in zip(copies, self._changes, strict=True):
            copy[:, head] -= change
        return value


def reads_of(circuit: Circuit) -> Iterator[StreamRead]:
    """Yield all readings of the stream by heads, with the senders before them."""
    model: Any = circuit.model
    call = Call.of(circuit.inputs)
    with torch.no_grad(), record(model, _SITES) as recording:
        call(model)
    with torch.no_grad():
        if len(circuit.network.stacks) == 1:
            yield from _reads_of_stack(circuit, recording, model, "", None)
            return
        senders: dict[str, Tensor] = {}
        yield from _reads_of_stack(circuit, recording, model.encoder, "encoder.", senders)
        last = f"encoder.layers.{len(model.encoder.layers) - 1}.residual_after"
        memory = _through(model.encoder.final_norm, recording[last], senders)
        yield from _reads_of_stack(circuit, recording, model.decoder, "decoder.", None, memory)


def _reads_of_stack(
    circuit: Circuit,
    recording: Recording,
    stack: Any,
    prefix: str,
    written: dict[str, Tensor] | None,
    memory: dict[str, Tensor] | None = None,
) -> Iterator[StreamRead]:
    """Yield the readings of one stack; `written` receives all that it writes."""
    senders = {} if written is None else written
    senders[f"{prefix}embedding"] = recording[f"{prefix}embedding"]
    for index, block in enumerate(stack.layers):
        path = f"{prefix}layers.{index}"
        known = _through(block.norm_attention, recording[f"{path}.residual_before"], senders)
        attention_path = f"{path}.attention"
        yield from _reads(circuit, block.attention, attention_path, (known, known))
        senders |= _written(circuit, recording, block.attention, attention_path)
        if memory is not None:
            before = recording[f"{path}.residual_between"]
            known = _through(block.norm_cross_attention, before, senders)
            attention_path = f"{path}.cross_attention"
            yield from _reads(circuit, block.cross_attention, attention_path, (known, memory))
            senders |= _written(circuit, recording, block.cross_attention, attention_path)
        if bool(block.feed_forward.outer.weight.any()):
            senders[f"{path}.feed_forward"] = recording[f"{path}.feed_forward.output"]


def _reads(
    circuit: Circuit, attention: Any, path: str, known: tuple[dict[str, Tensor], dict[str, Tensor]]
) -> Iterator[StreamRead]:
    heads = []
    for number in range(attention.layout.num_heads):
        if circuit.kinds[f"{path}.{number}"] != "idle":
            heads.append((f"{path}.{number}", number))
    if heads:
        for slot, senders in zip(SLOTS, (*known, known[1]), strict=True):
            yield StreamRead(path, slot, dict(senders), getattr(attention, slot), tuple(heads))


def _written(
    circuit: Circuit, recording: Recording, attention: Any, path: str
) -> dict[str, Tensor]:
    """Return each head's addition to the stream: (input, position, dimension)."""
    values = recording[f"{path}.heads"]
    width, parts = values.shape[-1], {}
    for number in range(values.shape[1]):
        if circuit.kinds[f"{path}.{number}"] != "idle":
            columns = attention.output.weight[:, number * width : (number + 1) * width]
            parts[f"{path}.{number}"] = values[:, number] @ columns.T
    return parts


def _through(norm: Any, stream: Tensor, senders: dict[str, Tensor]) -> dict[str, Tensor]:
    """Put each sender's part through a norm that divides as in the plain run."""
    if norm is None or isinstance(norm, nn.Identity):
        return dict(senders)
    scale = norm.weight / (stream.var(-1, unbiased=False, keepdim=True) + norm.epsilon).sqrt()
    return {name: (part - part.mean(-1, keepdim=True)) * scale for name, part in senders.items()}
