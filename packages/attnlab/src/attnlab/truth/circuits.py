"""A circuit: a model, every input of its domain, the right answers, and the role of each head."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from attnlab.look.inputs import Call
from attnlab.programs import CompiledProgram
from attnlab.truth.decoys import HeadPlace
from attnlab.truth.network import HeadKind, Network, put_together, take_apart

USED: tuple[HeadKind, ...] = ("program", "twin", "backup")
"""Heads of these kinds can make the difference between right and wrong answers."""


@dataclass(frozen=True, eq=False)
class Circuit:
    """A model in which the role of each head is known.

    Attributes:
        name, ladder: which circuit it is.
        network: the matrices that the model is made of.
        model: an encoder, or an encoder–decoder.
        inputs: every input of the domain, by the name of the model's argument: tokens and real,
            or source and target.
        answers: (input, position) right classes, -100 where nothing is asked.
        kinds: by name, such as layers.0.attention.1: "program", a decoy, or "idle" (no weights).
        dial: how the model was changed after it was made; empty for not at all.
    """

    name: str
    ladder: str
    network: Network
    model: nn.Module
    inputs: Mapping[str, Tensor]
    answers: Tensor
    kinds: dict[str, HeadKind]
    dial: str = ""

    @property
    def heads(self) -> list[str]:
        """The heads that have weights."""
        return [name for name, kind in self.kinds.items() if kind != "idle"]

    @property
    def decoys(self) -> tuple[HeadKind, ...]:
        """The kinds of decoys in it."""
        kinds = dict.fromkeys(self.kinds.values())
        return tuple(kind for kind in kinds if kind not in ("program", "idle"))

    @property
    def num_inputs(self) -> int:
        """How many inputs there are."""
        return len(self.answers)

    def logits(self) -> Tensor:
        """Run the model on every input: (input, position, class)."""
        with torch.no_grad():
            return Call.of(self.inputs, self.model)(self.model)

    def rebuilt(self, dial: str, network: Network) -> "Circuit":
        """Return the same circuit with a changed network."""
        model, kinds = put_together(network)
        same = (self.inputs, self.answers)
        return Circuit(self.name, self.ladder, network, model, *same, kinds, dial)


def network_of(compiled: CompiledProgram) -> tuple[Network, HeadPlace]:
    """Take a compiled program apart, and locate its last head."""
    places = {name: first for name, first, _ in compiled.stream}
    layer, _, number = list(compiled.heads)[-1].partition(".")
    return take_apart(compiled.model, places.get("bos")), HeadPlace(0, int(layer), int(number))
