"""Dials: the same circuits made harder to read, and proved again.

rotate: the stream turned at random, so that no dimension means anything. compress: the stream and
the heads in as few dimensions as leave every label as it was. noise: every weight moved at random,
as by a little training. norm: layer norms before every part, beside two large constants.
"""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from attnlab.errors import CouldNotRun, WrongUsage, did_you_mean
from attnlab.truth.circuits import Circuit
from attnlab.truth.labels import Labels, is_wrong, label
from attnlab.truth.network import Matrix, MatrixHead, Network, add_norm

_NOISE = 0.01  # standard deviation, as a share of the root mean square of a row
_HALVINGS = 8
_FAINT = 0.1  # what a head writes at least, after compression


def turned(circuit: Circuit, dial: str, labels: Labels, *, seed: int = 0) -> tuple[Circuit, Labels]:
    """Return the circuit under a dial, with labels that are proved again.

    The same units are used and needed; edges, and what counts for each input, may differ.

    Raises:
        WrongUsage: there is no such dial.
        CouldNotRun: an answer would be wrong, or other units used.
    """
    if dial not in DIALS:
        raise WrongUsage(f"there is no dial {dial!r}; {did_you_mean(dial, DIALS)}")
    random = np.random.default_rng(seed)
    changed = DIALS[dial](circuit, labels, random)
    again = label(changed)
    if not again.agree(labels):
        raise CouldNotRun(f"{circuit.name}: under {dial} it uses other parts than before.")
    return changed, again


def _rotated(circuit: Circuit, labels: Labels, random: np.random.Generator) -> Circuit:
    network = copy.deepcopy(circuit.network)
    turn, _ = np.linalg.qr(random.normal(size=(network.width, network.width)))
    network.map(turn.T, turn)
    return circuit.rebuilt("rotate", network)


def _normed(circuit: Circuit, labels: Labels, random: np.random.Generator) -> Circuit:
    network = copy.deepcopy(circuit.network)
    add_norm(network)
    return circuit.rebuilt("norm", network)


def _with_noise(circuit: Circuit, labels: Labels, random: np.random.Generator) -> Circuit:
    """Move every weight by up to a hundredth of its row's size, or as much as the labels bear."""
    seed = int(random.integers(2**31))
    for halving in range(_HALVINGS):
        noisy = circuit.rebuilt("noise", circuit.network)
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for parameter in noisy.model.parameters():
                size = parameter.abs()
                if parameter.dim() == 2:
                    size = parameter.square().mean(-1, keepdim=True).sqrt()
                noise = torch.randn(parameter.shape, generator=generator)
                moved = parameter + _NOISE * 0.5**halving * size * noise
                parameter.copy_(moved.float())  # as it is stored
        if _holds(noisy, labels):
            return noisy
    raise CouldNotRun(f"{circuit.name}: its labels change under any noise.")


def _holds(changed: Circuit, labels: Labels) -> bool:
    """Are all answers right, and the same units used as before?"""
    if bool(is_wrong(changed, [frozenset()]).any()):
        return False
    try:
        return label(changed).agree(labels)
    except CouldNotRun:  # a decoy is used
        return False


def _compressed(circuit: Circuit, labels: Labels, random: np.random.Generator) -> Circuit:
    """Take away dimensions until a label would change."""
    network, best = circuit.network, circuit
    reading, writing = _factors(network)
    for width in range(min(network.width - 1, reading.shape[1]), 0, -1):
        smaller = copy.deepcopy(network)
        smaller.map(reading[:, :width], writing[:width])
        _compress_heads(smaller, width)
        compressed = circuit.rebuilt("compress", smaller)
        if not (_all_write(smaller) and _holds(compressed, labels)):
            break
        best = compressed
    if best is circuit:
        raise CouldNotRun(f"{circuit.name}: no dimension can be spared.")
    return best


def _all_write(network: Network) -> bool:
    """Does every head still write something, decoys too?"""
    for layer in network.layers():
        for head in (*layer.heads, *layer.cross):
            if not np.abs(head.output @ head.value).max() > _FAINT:
                return False
    return True


def _factors(network: Network) -> tuple[Matrix, Matrix]:
    """Factor the product of readers and writers: dimensions by how much passes through them.

    With readers R and writers W, R W = U S V' by its singular values; then x' = S^-1/2 U' R x is
    read by U S^1/2 (balanced truncation: Moore 1981).
    """
    # What nothing reads is read here once, or every decoy would be taken away first.
    readers, writers = [network.readout, np.eye(network.width, network.width + 1)], []
    for stack in network.stacks:
        writers += [stack.tokens.T, stack.positions.T]
    for layer in network.layers():
        readers.append(layer.inner)
        writers.append(layer.outer)
        for head in (*layer.heads, *layer.cross):
            readers += [head.query, head.key, head.value]
            writers.append(head.output)
    read, written = np.vstack(readers)[:, :-1], np.hstack(writers)
    left, sizes, right = np.linalg.svd(read @ written, full_matrices=False)
    rank = int((sizes > 1e-9 * sizes[0]).sum())
    root = np.sqrt(sizes[:rank])
    return written @ right[:rank].T / root, (left[:, :rank] / root).T @ read


def _compress_heads(network: Network, width: int) -> None:
    """Write each head in as few channels as a stream of this width has for it."""
    num_heads = max(max(len(layer.heads), len(layer.cross)) for layer in network.layers())
    channels = -(-width // num_heads)
    for layer in network.layers():
        layer.heads = [_narrow(head, channels) for head in layer.heads]
        layer.cross = [_narrow(head, channels) for head in layer.cross]


def _narrow(head: MatrixHead, channels: int) -> MatrixHead:
    query, key = _truncated(head.query.T, head.key, channels)
    output, value = _truncated(head.output, head.value, channels)
    return MatrixHead(query.T, key, value, output, head.kind)


def _truncated(one: Matrix, two: Matrix, rank: int) -> tuple[Matrix, Matrix]:
    """Return two matrices of lower rank with nearly the same product."""
    left, sizes, right = np.linalg.svd(one @ two, full_matrices=False)
    root = np.sqrt(sizes[:rank])
    return left[:, :rank] * root, root[:, None] * right[:rank]


Dial = Callable[[Circuit, Labels, np.random.Generator], Any]
DIALS: dict[str, Dial] = {
    "rotate": _rotated,
    "compress": _compressed,
    "noise": _with_noise,
    "norm": _normed,
}
