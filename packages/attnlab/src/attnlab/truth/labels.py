"""Labels: the heads, feed-forward parts and edges that a model uses, by ablation.

An answer is right if its logit leads all others by 0.05; a tie is no answer.

A cut sets what a head or a feed-forward part writes to zeros. A set of cuts is *safe* if every
answer to every input stays right. A unit is *used* if some safe set is no longer safe with it: so
twins and backups are used, although cutting one of them alone changes nothing. It is *needed* if
cutting it alone is not safe.

An edge is what one sender (an embedding, a head, a feed-forward part) writes, as far as the query,
key or value of one later head reads it. It is needed if some answer becomes wrong without it; where
a norm stands between, the norm divides by what it divides by in the plain run.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any

import torch
from torch import Tensor

from attnlab.edits.effects.metrics import IGNORED
from attnlab.errors import CouldNotRun
from attnlab.look.inputs import Call
from attnlab.parts.feed_forward import FeedForward
from attnlab.sites import Hook, installed
from attnlab.truth.circuits import USED, Circuit
from attnlab.truth.edges import reads_of

LEAD = 0.05
"""By how much the logit of the right answer must lead."""

_ROWS = 12_000  # inputs of one pass


@dataclass(frozen=True, eq=False)
class Labels:
    """The result of ablation over the whole domain.

    units: heads and feed-forward parts with weights, by name · used, needed: of each unit ·
    by_input (input, unit): does this input's answer change if the unit alone is cut? · edges:
    (sender, receiver), such as ("embedding", "layers.0.attention.1.key") · edge_needed: of each ·
    sets: how many sets of cuts were tried.
    """

    units: tuple[str, ...]
    used: tuple[bool, ...]
    needed: tuple[bool, ...]
    by_input: Tensor
    edges: tuple[tuple[str, str], ...]
    edge_needed: tuple[bool, ...]
    sets: int

    def agree(self, other: "Labels") -> bool:
        """Are the same units used, and the same needed?"""
        units = (self.units, self.used, self.needed)
        return units == (other.units, other.used, other.needed)

    @property
    def needed_edges(self) -> list[tuple[str, str]]:
        """The edges whose removal makes some answer wrong."""
        return list(compress(self.edges, self.edge_needed))

    def used_heads(self, circuit: Circuit) -> dict[str, bool]:
        """Map each head that has weights to whether it is used."""
        used = dict(zip(self.units, self.used, strict=True))
        return {head: used[head] for head in circuit.heads}


def label(circuit: Circuit) -> Labels:
    """Label a circuit, and compare the labels with the purpose of its heads.

    Args:
        circuit: as `build_circuit` makes it.

    Returns:
        the `Labels`: for each head and edge, whether the answers need it.

    Raises:
        CouldNotRun: an answer is wrong, or a head is used that was meant to be a decoy, or not used
            that was meant to be.
    """
    units = units_of(circuit)
    if bool(is_wrong(circuit, [frozenset()]).any()):
        raise CouldNotRun(f"{circuit.name}: some answers of the model are wrong.")
    used, sets = _used(circuit, units)
    alone = is_wrong(circuit, [frozenset({unit}) for unit in units])
    edges = _edges(circuit)
    labels = Labels(
        units=tuple(units),
        used=tuple(map(used.__contains__, units)),
        needed=tuple(alone.any(1).tolist()),
        by_input=alone.T.clone(),
        edges=tuple(edges),
        edge_needed=tuple(edges.values()),
        sets=sets,
    )
    for head, is_used in labels.used_heads(circuit).items():
        kind = circuit.kinds[head]
        if is_used != (kind in USED):
            finding = "used" if is_used else "not used"
            raise CouldNotRun(f"{circuit.name}: {head} was made as {kind}, and is {finding}.")
    return labels


def units_of(circuit: Circuit) -> list[str]:
    """List the heads and the feed-forward parts that have weights."""
    units = circuit.heads
    for name, module in circuit.model.named_modules():
        if isinstance(module, FeedForward) and bool(module.outer.weight.any()):
            units.append(name)
    return units


class _Cuts(Hook):
    """Sets the output of chosen units to zeros, in some rows of a batch each."""

    def __init__(self, cuts: Sequence[frozenset[str]], rows: int) -> None:
        self._units = {}  # in which rows each is cut
        for unit in frozenset().union(*cuts):
            is_cut = torch.tensor([unit in cut for cut in cuts])
            self._units[unit] = is_cut.repeat_interleave(rows)

    def wants(self, site: str) -> bool:
        return site.endswith((".heads", "feed_forward.output"))

    def visit(self, site: str, value: Tensor) -> Tensor:
        part, _, site_suffix = site.rpartition(".")
        value = value.clone()
        if site_suffix == "output":
            if part in self._units:
                value[self._units[part]] = 0.0
            return value
        for head in range(value.shape[1]):
            cut = self._units.get(f"{part}.{head}")
            if cut is not None:
                value[cut, head] = 0.0
        return value


def is_wrong(circuit: Circuit, cuts: Sequence[frozenset[str]]) -> Tensor:
    """Return for each set of cuts the inputs with a wrong answer: (set, input) boolean."""
    step = max(1, _ROWS // circuit.num_inputs)
    wrong = []
    for first in range(0, len(cuts), step):
        some = cuts[first : first + step]
        with installed(circuit.model, _Cuts(some, circuit.num_inputs)):
            wrong.append(_errors(circuit, len(some)))
    return torch.cat(wrong)


def _errors(circuit: Circuit, copies: int) -> Tensor:
    """Run copies of all inputs under the hooks that are installed: (copy, input) boolean."""
    call = repeated(circuit.inputs, copies)
    with torch.no_grad():
        logits = call(circuit.model)
    has_answer = circuit.answers != IGNORED
    logits = logits.view(copies, *circuit.answers.shape, -1)
    places = circuit.answers.clamp(min=0).unsqueeze(-1).expand(copies, -1, -1, -1)
    right = logits.gather(-1, places).squeeze(-1)
    others = logits.scatter(-1, places, float("-inf")).amax(-1)
    return (~(right - others >= LEAD) & has_answer).any(-1)  # NaN is wrong too


def repeated(inputs: Mapping[str, Tensor], copies: int) -> Call:
    """Return a call of so many copies of all inputs, one after another."""
    return Call.of({name: values.repeat(copies, 1) for name, values in inputs.items()})


def _used(circuit: Circuit, units: Sequence[str]) -> tuple[set[str], int]:
    """Return the units that belong to a minimal set of cuts that is not safe."""
    used: set[str] = set()
    safe, tried = [frozenset[str]()], 1
    while safe:
        larger = {one | {unit} for one in safe for unit in units if unit not in one}
        cuts = sorted(larger, key=sorted)
        if not cuts:
            break
        tried += len(cuts)
        was_safe, safe = set(safe), []
        is_safe = (~is_wrong(circuit, cuts).any(1)).tolist()
        for cut, holds in zip(cuts, is_safe, strict=True):
            if holds:
                safe.append(cut)
            else:
                used |= {unit for unit in cut if cut - {unit} in was_safe}
    return used, tried


def _edges(circuit: Circuit) -> dict[tuple[str, str], bool]:
    """Cut each edge alone: is some answer wrong then?"""
    needed: dict[tuple[str, str], bool] = {}
    for read in reads_of(circuit):
        edges, model = read.edges(), circuit.model
        attention: Any = model.get_submodule(read.path)
        with installed(model, read.cut(attention.layout.num_heads)):
            wrong = _errors(circuit, len(edges)).any(1).tolist()
        needed |= dict(zip(edges, wrong, strict=True))
    return needed
