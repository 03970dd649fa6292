"""Decoys: heads that look important and are not, or that hide how important others are.

sharp: a crisp pattern whose output goes where nothing reads. random: no pattern, mostly likewise,
and faintly everywhere. twin: does the same job as another head, so that either alone suffices.
backup: acts if another head was cut. suppressor: writes against the right answer, too weakly to
change it.
"""

from dataclasses import dataclass, replace

import numpy as np

from attnlab.truth.network import HeadKind, MatrixHead, MatrixLayer, MatrixStack, Network

_GAINS = (10.0, 40.0)  # of sharp patterns, whose largest weights are then about 0.9 to 0.99999
_FAINT = 0.0005  # of what a random head writes where something may read it


@dataclass(frozen=True)
class HeadPlace:
    """Where a head is: stack, layer, in cross-attention or not, and its number there."""

    stack: int
    layer: int
    number: int
    is_cross: bool = False

    def layer_of(self, network: Network) -> MatrixLayer:
        """Return the layer."""
        return network.stacks[self.stack].layers[self.layer]

    def heads_of(self, network: Network) -> list[MatrixHead]:
        """Return all heads of the same attention."""
        layer = self.layer_of(network)
        return layer.cross if self.is_cross else layer.heads

    def head_of(self, network: Network) -> MatrixHead:
        """Return the head."""
        return self.heads_of(network)[self.number]


def add_decoy(
    network: Network, kind: HeadKind, target: HeadPlace, random: np.random.Generator
) -> None:
    """Add one decoy, beside the target or of it."""
    if kind == "twin":
        _add_twin(network, target)
    elif kind == "backup":
        _add_backup(network, target)
    elif kind == "suppressor":
        head = target.head_of(network)
        block = head.output.any(1)  # read by the output layer alone, or by hidden units too?
        inner = [layer.inner[:, :-1][:, block].any() for layer in network.layers()]
        is_final = network.readout[:, :-1][:, block].any() and not any(inner)
        strength = 0.4 if is_final else 0.01
        against = replace(head, output=-strength * head.output, kind="suppressor")
        target.heads_of(network).append(against)
    elif kind == "sharp":
        _add_sharp(network, target, random)
    else:
        _add_random(network, target, random)


def _add_twin(network: Network, target: HeadPlace) -> None:
    """Copy a head into new dimensions, and let hidden units take the larger of both."""
    if target.layer_of(network).outer.any():
        _split(network, target)
    head = target.head_of(network)
    block = np.flatnonzero(head.output.any(1))
    new = network.grow(len(block))
    head = target.head_of(network)
    output = np.zeros_like(head.output)
    output[new] = head.output[block]
    target.heads_of(network).append(replace(head, output=output, kind="twin"))
    layer, width = target.layer_of(network), network.width
    inner, outer = np.zeros((len(block), width + 1)), np.zeros((width, len(block) + 1))
    units = np.arange(len(block))
    inner[units, np.arange(width)[new]], inner[units, block] = 1.0, -1.0
    outer[block, units] = 1.0
    layer.inner, layer.outer = inner, outer


def _add_backup(network: Network, target: HeadPlace) -> None:
    """Copy a head into the next layer, where it gathers nothing if the first one wrote.

    What BOS holds decides how: where it holds nothing, the copy attends to BOS alone; where it is
    what counts (widths), the copy turns away from BOS.
    """
    if network.bos is None:
        raise ValueError("a backup needs BOS to attend to")
    after, head, width = _split(network, target), target.head_of(network), network.width
    gate, at_bos = np.zeros((1, width + 1)), np.zeros((1, width + 1))
    at_bos[0, network.bos] = 1.0
    block = head.output.any(1)
    others = np.delete(head.value[:, :-1], network.bos, 1)
    if not others.any():  # a width: at least 1 / (1 + tokens) where it was written
        gate[0, :-1][block] = -2000.0
    else:  # one-hot, or nothing: the score of BOS is 200 or -200
        gate[0, :-1][block] = 400.0
        gate[0, network.bos] += 400.0
        gate[0, -1] = -200.0
    query, key = np.vstack([head.query, gate]), np.vstack([head.key, at_bos])
    copy = replace(head, query=query, key=key, kind="backup")
    (after.cross if target.is_cross else after.heads).append(copy)


def _split(network: Network, target: HeadPlace) -> MatrixLayer:
    """Put a layer after an attention, move the hidden units there, and return it."""
    layer, empty = target.layer_of(network), MatrixLayer.empty(network.width)
    after = replace(empty, inner=layer.inner, outer=layer.outer)
    layer.inner, layer.outer = empty.inner, empty.outer
    network.stacks[target.stack].layers.insert(target.layer + 1, after)
    return after


def _features(network: Network, stack: MatrixStack, random: np.random.Generator) -> slice:
    """Return four dimensions for decoys: the place, as a point of a circle, and the token."""
    if stack.features is None:
        new = network.grow(4)
        places = np.arange(len(stack.positions)) * 2 * np.pi / (len(stack.positions) + 2)
        stack.positions[:, new.start] = np.cos(places)
        stack.positions[:, new.start + 1] = np.sin(places)
        stack.tokens[:, new.start + 2 : new.stop] = random.normal(size=(len(stack.tokens), 2))
        stack.features = new
    return stack.features


def _add_sharp(network: Network, target: HeadPlace, random: np.random.Generator) -> None:
    """Add a head that attends to a neighbor, and tells its token where nothing reads."""
    stacks = network.stacks
    of_queries = stacks[target.stack]
    of_keys = stacks[0] if target.is_cross else of_queries
    here, there = _features(network, of_queries, random), _features(network, of_keys, random)
    new = network.grow(2)
    width = network.width
    query, key = np.zeros((2, width + 1)), np.zeros((2, width + 1))
    step = 2 * np.pi / (len(of_queries.positions) + 2) * random.choice([-1, 1])
    turn = np.array([[np.cos(step), -np.sin(step)], [np.sin(step), np.cos(step)]])
    query[:, here.start : here.start + 2] = random.uniform(*_GAINS) * turn
    key[:, there.start : there.start + 2] = np.eye(2)
    value = np.zeros((2, width + 1))
    value[:, there.start + 2 : there.stop] = random.normal(size=(2, 2))
    output = np.zeros((width, 2))
    output[new] = np.eye(2)
    target.heads_of(network).append(MatrixHead(query, key, value, output, "sharp"))


def _add_random(network: Network, target: HeadPlace, random: np.random.Generator) -> None:
    new = network.grow(2)
    width = network.width

    output = _FAINT * random.normal(size=(width, 2))
    output[new] = np.eye(2)
    query, key, value = random.normal(size=(3, 2, width + 1))
    target.heads_of(network).append(MatrixHead(query, key, value, output, "random"))
