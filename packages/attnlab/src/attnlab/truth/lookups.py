"""Encoder–decoders by hand: each position of the target takes a letter from the source.

The source is BOS and letters. Dimensions of the stream: the source's letters, BOS, the source's
places, the target's places, the target's tokens, what the encoder's head writes, and the answer.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import permutations, product

import numpy as np
import torch
from torch import Tensor

from attnlab.edits.effects.metrics import IGNORED
from attnlab.truth.network import Matrix, MatrixHead, MatrixLayer, MatrixStack, Network

_GAIN = 16.0  # scores of what is looked for; all else scores 0


@dataclass(frozen=True)
class Lookup:
    """The decoder's rule.

    letters, length: of the source · place: which place of the source the target's place t takes,
    by `place(t)`; None where the target's token says which letter to look for · step: take the
    letter so many places before or after what was found, which the encoder's head moves there.
    """

    name: str
    letters: int
    length: int
    place: Callable[[int], int] | None = None
    step: int = 0


def lookup_network(lookup: Lookup) -> Network:
    """Write the matrices of an encoder–decoder."""
    letters, length = lookup.letters, lookup.length
    sizes = (letters, 1, length + 1, length + 1, letters, letters, letters)
    ends = np.cumsum(sizes)
    blocks = [range(end - size, end) for end, size in zip(ends, sizes, strict=True)]
    letter, bos, source_place, target_place, target, moved, answer = blocks
    width = int(ends[-1])

    def reads(*pairs: tuple[range, Matrix]) -> Matrix:
        reader = np.zeros((len(pairs[0][1]), width + 1))
        for block, matrix in pairs:
            reader[:, block] += matrix
        return reader

    def writes(block: range) -> Matrix:
        matrix = np.zeros((width, len(block)))
        matrix[block, range(len(block))] = 1.0
        return matrix

    places, eye = length + 1, np.eye(letters)
    encoder_layer, decoder_layer = MatrixLayer.empty(width), MatrixLayer.empty(width)
    source = letter
    if lookup.step:
        wanted = np.eye(places, k=-lookup.step)
        wanted[:, 0] = np.eye(places)[0]  # BOS attends to itself, and so it gathers nothing
        query, key = _GAIN * reads((source_place, wanted)), reads((source_place, np.eye(places)))
        encoder_layer.heads.append(MatrixHead(query, key, reads((letter, eye)), writes(moved)))
        source = moved
    if lookup.place is None:
        query, key = _GAIN * reads((target, eye)), reads((letter, eye))
    else:
        wanted = np.zeros((places, places))
        for position in range(length):
            wanted[lookup.place(position) + 1, position] = 1.0
        query = _GAIN * reads((target_place, wanted))
        key = reads((source_place, np.eye(places)))
    decoder_layer.cross.append(MatrixHead(query, key, reads((source, eye)), writes(answer)))
    tokens = np.zeros((letters + 1, width))
    tokens[range(letters), list(letter)] = 1.0
    tokens[letters, bos[0]] = 1.0
    positions = np.zeros((places, width))
    positions[range(places), list(source_place)] = 1.0
    encoder = MatrixStack(tokens, positions, [encoder_layer])
    tokens, positions = np.zeros((letters + 1, width)), np.zeros((places, width))
    tokens[range(letters), list(target)] = 1.0
    positions[range(places), list(target_place)] = 1.0
    decoder = MatrixStack(tokens, positions, [decoder_layer])
    readout = np.zeros((letters + 1, width + 1))
    readout[:letters, list(answer)] = eye
    return Network([encoder, decoder], readout, bos[0])


def lookup_domain(lookup: Lookup) -> tuple[dict[str, Tensor], Tensor]:
    """Return all inputs, source and target, and the right letters.

    By place, the target is what was right so far (teacher forcing), after BOS. By letter, the
    source holds each letter once, and the target asks for each that has an answer.
    """
    letters = lookup.letters
    if lookup.place is None:
        sources = np.array(list(permutations(range(letters))))
        target = np.tile(np.arange(letters), (len(sources), 1))
        places = sources.argsort(1) + lookup.step
        is_there = (places >= 0) & (places < letters)
        neighbors = np.take_along_axis(sources, places.clip(0, letters - 1), 1)
        answers = np.where(is_there, neighbors, IGNORED)
    else:
        sources = np.array(list(product(range(letters), repeat=lookup.length)))
        order = [lookup.place(position) + lookup.step for position in range(lookup.length)]
        answers = sources[:, order]
        target = np.hstack([np.full((len(sources), 1), letters), answers[:, :-1]])
    source = np.hstack([np.full((len(sources), 1), letters), sources])
    inputs = {"source": torch.from_numpy(source), "target": torch.from_numpy(target)}
    return inputs, torch.from_numpy(answers)
