"""A transformer without norms as matrices, to which heads and dimensions can be added.

`take_apart` reads them from a compiled encoder, `put_together` makes an ordinary model of them.
Every matrix that reads the stream has one more column than the stream has dimensions: its bias.
Dimensions that a norm needs are added at the end: see `Network.has_norm`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from attnlab.models.encoder import Encoder, EncoderConfig
from attnlab.models.encoder_decoder import EncoderDecoder, EncoderDecoderConfig

Matrix = NDArray[np.float64]
HeadKind = Literal["program", "sharp", "twin", "backup", "suppressor", "random", "idle"]

_NORM_SCALE = 1000.0  # of the two constants beside which the rest of the stream is small


@dataclass(frozen=True, eq=False)
class MatrixHead:
    """One head: scores are (query @ x) · (key @ y), and it writes output @ value @ y.

    query, key, value: (channel, dimension + 1), the last column a bias · output: (dimension,
    channel) · kind: "program", or which decoy.
    """

    query: Matrix
    key: Matrix
    value: Matrix
    output: Matrix
    kind: HeadKind = "program"

    @property
    def width(self) -> int:
        """How many channels the head needs."""
        return max(len(self.query), len(self.value))


@dataclass(eq=False)
class MatrixLayer:
    """One block: its heads, the heads of cross-attention, and the hidden units.

    inner (unit, dimension + 1) and outer (dimension, unit + 1): outer @ relu(inner @ x).
    """

    heads: list[MatrixHead]
    cross: list[MatrixHead]
    inner: Matrix
    outer: Matrix

    @classmethod
    def empty(cls, width: int) -> "MatrixLayer":
        """Return a block that does nothing."""
        return cls([], [], np.zeros((0, width + 1)), np.zeros((width, 1)))


@dataclass(eq=False)
class MatrixStack:
    """An embedding and blocks: tokens (token, dimension), positions (position, dimension)."""

    tokens: Matrix
    positions: Matrix
    layers: list[MatrixLayer]
    features: slice | None = None  # where the decoys read place and token


@dataclass(eq=False)
class Network:
    """An encoder, or an encoder and a decoder, and how the stream is read out."""

    stacks: list[MatrixStack]
    readout: Matrix
    bos: int | None = None  # the dimension that is 1 at BOS alone
    has_norm: bool = False

    @property
    def width(self) -> int:
        """The dimensions of the stream."""
        return int(self.readout.shape[1]) - 1

    def layers(self) -> Iterator[MatrixLayer]:
        """Go through all blocks."""
        for stack in self.stacks:
            yield from stack.layers

    def map(self, reading: Matrix, writing: Matrix) -> None:
        """Change the stream: read by `reading` (old, new), written by `writing` (new, old)."""

        def read(matrix: Matrix) -> Matrix:
            return np.hstack([matrix[:, :-1] @ reading, matrix[:, -1:]])

        def changed(head: MatrixHead) -> MatrixHead:
            query, key, value = map(read, (head.query, head.key, head.value))
            return MatrixHead(query, key, value, writing @ head.output, head.kind)

        for stack in self.stacks:
            stack.tokens, stack.positions = stack.tokens @ writing.T, stack.positions @ writing.T
        for layer in self.layers():
            layer.heads = list(map(changed, layer.heads))
            layer.cross = list(map(changed, layer.cross))
            layer.inner, layer.outer = read(layer.inner), writing @ layer.outer
        self.readout = read(self.readout)

    def grow(self, more: int) -> slice:
        """Add dimensions that nothing reads or writes, and return where they are."""
        old = self.width
        wide = np.eye(old, old + more)
        self.map(wide, wide.T)
        return slice(old, old + more)


def shuffle_heads(network: Network, random: np.random.Generator) -> None:
    """Shuffle the heads of each attention, so that a head's number says nothing about its role."""
    for layer in network.layers():
        for heads in (layer.heads, layer.cross):
            heads[:] = [heads[place] for place in random.permutation(len(heads))]


def take_apart(model: Encoder, bos: int | None) -> Network:
    """Return the matrices of a compiled encoder; bos: the dimension that is 1 at BOS alone."""
    width, config = model.config.head_width, model.config
    layers = []
    for layer in model.layers:
        block: Any = layer
        heads = []
        for number in range(config.num_heads):
            rows = slice(number * width, (number + 1) * width)
            query = _augmented(block.attention.query)[rows]
            key = _augmented(block.attention.key)[rows]
            value = _augmented(block.attention.value)[rows]
            output = _array(block.attention.output.weight)[:, rows]
            if output.any():
                heads.append(MatrixHead(query / width**0.5, key, value, output))
        inner = _augmented(block.feed_forward.inner)
        outer = _augmented(block.feed_forward.outer)
        layers.append(MatrixLayer(heads, [], inner, outer))
    positions: Any = model.embedding.positions
    stack = MatrixStack(_array(model.embedding.tokens.weight), _array(positions.weight), layers)
    return Network([stack], _augmented(model.head), bos)


def _array(weight: torch.Tensor) -> Matrix:
    return weight.detach().double().numpy().copy()


def _augmented(linear: Any) -> Matrix:
    return np.hstack([_array(linear.weight), _array(linear.bias)[:, None]])


def put_together(network: Network) -> tuple[nn.Module, dict[str, HeadKind]]:
    """Make the model, and return it with the kind of each head, by name.

    It computes in float64, with weights that float32 holds exactly.
    """
    kinds: dict[str, HeadKind] = {}
    settings = _settings(network)
    model: Any
    if len(network.stacks) == 1:
        classes = len(network.readout)
        model = Encoder(EncoderConfig(num_classes=classes, per_token=True, **settings))
        stacks = {"": model}
    else:
        layers = len(network.stacks[0].layers)
        model = EncoderDecoder(EncoderDecoderConfig(num_encoder_layers=layers, **settings))
        stacks = {"encoder.": model.encoder, "decoder.": model.decoder}
    model = model.double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        for (name, module), stack in zip(stacks.items(), network.stacks, strict=True):
            _write_stack(module, stack, f"{name}layers", kinds)
        _write(model.head, network.readout)
        for name, parameter in model.named_parameters():
            if "norm" in name and name.endswith("weight"):
                # what the norm divides by
                parameter.fill_(_NORM_SCALE * (2 / settings["d_model"]) ** 0.5)
                parameter.copy_(parameter.float())
    return model, kinds


def _settings(network: Network) -> dict[str, Any]:
    """Return the settings of an encoder, or of a decoder, that has room for the network."""
    num_heads, head_width, hidden = 1, 1, 1
    for layer in network.layers():
        num_heads = max(num_heads, len(layer.heads), len(layer.cross))
        hidden = max(hidden, len(layer.inner))
        for head in (*layer.heads, *layer.cross):
            head_width = max(head_width, head.width)
    width = max(-(-network.width // num_heads), head_width)
    return {
        "vocab_size": len(network.stacks[0].tokens),
        "max_length": max(len(stack.positions) for stack in network.stacks),
        "d_model": width * num_heads,
        "num_heads": num_heads,
        "num_layers": len(network.stacks[-1].layers),
        "d_ff": hidden,
        "norm_place": "pre" if network.has_norm else "none",
        "final_norm": network.has_norm,
        "positions": "learned",
    }


def _write_stack(module: Any, stack: MatrixStack, name: str, kinds: dict[str, HeadKind]) -> None:
    _fill(module.embedding.tokens.weight, stack.tokens)
    _fill(module.embedding.positions.weight, stack.positions)
    for index, (block, layer) in enumerate(zip(module.layers, stack.layers, strict=True)):
        _write_heads(block.attention, layer.heads, f"{name}.{index}.attention", kinds)
        if block.cross_attention is not None:
            path = f"{name}.{index}.cross_attention"
            _write_heads(block.cross_attention, layer.cross, path, kinds)
        _write(block.feed_forward.inner, layer.inner)
        _fill(block.feed_forward.outer.weight, layer.outer[:, :-1])
        _fill(block.feed_forward.outer.bias, layer.outer[:, -1])


def _write_heads(
    attention: Any, heads: list[MatrixHead], path: str, kinds: dict[str, HeadKind]
) -> None:
    width = attention.query.weight.shape[0] // attention.layout.num_heads
    for number in range(attention.layout.num_heads):
        kinds[f"{path}.{number}"] = "idle"
        if number >= len(heads):
            continue
        head, first = heads[number], number * width
        kinds[f"{path}.{number}"] = head.kind
        _write(attention.query, head.query * width**0.5, first)
        _write(attention.key, head.key, first)
        _write(attention.value, head.value, first)
        _fill(attention.output.weight[:, first : first + width], head.output)


def _write(linear: Any, matrix: Matrix, first: int = 0) -> None:
    """Write a matrix with its bias as rows of a linear layer, from row `first` on."""
    _fill(linear.weight[first:], matrix[:, :-1])
    _fill(linear.bias[first:], matrix[:, -1])


def _fill(tensor: torch.Tensor, matrix: Matrix) -> None:
    """Write a matrix into the corner of a tensor that may be larger."""
    tensor[tuple(map(slice, matrix.shape))] = torch.from_numpy(matrix).float()


def add_norm(network: Network) -> None:
    """Add two large constants, and a dimension that makes every vector's mean zero.

    A layer norm then divides by nearly the same everywhere, and its gain multiplies by that again.
    """
    old = network.width
    balance = np.vstack([np.eye(old), np.zeros((2, old)), -np.ones((1, old))])
    network.map(np.eye(old, old + 3), balance)
    for stack in network.stacks:
        stack.tokens[:, old] += _NORM_SCALE
        stack.tokens[:, old + 1] -= _NORM_SCALE
    network.has_norm = True
