"""The matrices of a model, written from the blueprint of a program."""

from collections.abc import Sequence as Items
from typing import Any, NamedTuple

import numpy as np
import torch

from attnlab.errors import not_none
from attnlab.models.encoder import Encoder, EncoderConfig
from attnlab.parts.positions import LearnedPositions
from attnlab.programs.blueprint import (
    Blueprint,
    HiddenUnits,
    Matrix,
    ProgramHead,
    StreamBlock,
    View,
)
from attnlab.programs.views import Views

_CERTAIN = 40.0  # BOS sees nothing but itself: e^-40 of the rest


class AssembledModel(NamedTuple):
    """A model in float64; by head, the program's line and its method; the parts of the stream:
    name, first and last dimension."""

    model: Encoder
    heads: dict[str, str]
    ways: dict[str, str]
    stream: tuple[tuple[str, int, int], ...]


def assemble(views: Views, output: View, *, causal: bool) -> AssembledModel:
    """Write the model of the views' blueprint."""
    blueprint = views.blueprint
    layers, parts, hidden = [], [], 1
    for slot in range(0, 2 * blueprint.num_layers, 2):
        layers.append([head for head in blueprint.heads if head.block.slot == slot])
        parts.append([units for units in blueprint.units if units.block.slot == slot + 1])
        hidden = max(hidden, sum(units.outer.shape[1] for units in parts[-1]))
    num_heads = max([1, *map(len, layers)])
    head_width = max([1, *(head.width for head in blueprint.heads)]) + views.has_bos
    width = max(blueprint.place(), num_heads * head_width)
    config = EncoderConfig(
        vocab_size=len(views.domains.program.alphabet) + views.has_bos,
        max_length=views.longest + views.has_bos,
        d_model=-(-width // num_heads) * num_heads,
        num_heads=num_heads,
        num_layers=blueprint.num_layers,
        d_ff=hidden,
        norm_place="none",
        final_norm=False,
        positions="learned",
        num_classes=len(output.constant),
        per_token=True,
        causal=causal,
    )
    model = Encoder(config).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        _write_embedding(model, blueprint, views)
        bos = blueprint.inputs.get("bos")
        for number, (heads, units) in enumerate(zip(layers, parts, strict=True)):
            layer = model.layers[number]
            _write_heads(layer.attention, heads, config, bos)
            _write_units(layer.feed_forward, units, config, bos)
        _write(model.head, slice(None), output, config, None)
    lines, ways, stream = {}, {}, []
    for index, heads in enumerate(layers):
        for number, head in enumerate(heads):
            lines[f"{index}.{number}"], ways[f"{index}.{number}"] = head.label, head.way
    for block in blueprint.blocks:
        stream.append((block.name, block.offset, _end(block) - 1))
    return AssembledModel(model, lines, ways, tuple(stream))


def _end(block: StreamBlock) -> int:
    return block.offset + block.width


def _write_embedding(model: Encoder, blueprint: Blueprint, views: Views) -> None:
    table, positions = model.embedding.tokens.weight, model.embedding.positions
    assert isinstance(positions, LearnedPositions)
    for name, block in blueprint.inputs.items():
        places = range(block.offset, _end(block))
        if name == "bos":
            table[-1, block.offset] = 1.0
        elif name == "tokens":
            table[range(block.width), places] = 1.0
        else:
            rows = range(views.has_bos, views.longest + views.has_bos)
            positions.weight[rows, places] = 1.0


def _write(
    linear: Any,
    rows: slice,
    view: View,
    config: EncoderConfig,
    bos: StreamBlock | None,
    at_bos: Matrix | float = 0.0,
) -> None:
    """Write a view as rows of a layer, with another value at BOS."""
    matrix = view.written(config.d_model)
    if bos is not None:
        matrix[:, bos.offset] += at_bos - view.at_bos
    linear.weight[rows] = torch.from_numpy(matrix)
    linear.bias[rows] = torch.from_numpy(view.constant)


def _write_heads(
    attention: Any, heads: Items[ProgramHead], config: EncoderConfig, bos: StreamBlock | None
) -> None:
    width = config.head_width
    for number, head in enumerate(heads):
        channels, block, first = len(head.queries.constant), head.block, number * width
        rows, columns = slice(first, first + channels), slice(first, first + block.width)
        scaled = head.queries.through(np.eye(channels) * width**0.5)
        _write(attention.query, rows, scaled, config, bos)
        _write(attention.key, rows, head.keys, config, bos)
        _write(attention.value, columns, head.values, config, bos, block.at_bos)
        attention.output.weight[range(block.offset, _end(block)), range(first, columns.stop)] = 1.0
        if bos is not None:
            score = not_none(head.bos_score)
            bos_channel = first + channels  # the channel in which BOS is a key
            attention.query.bias[bos_channel] = score * width**0.5
            attention.query.weight[bos_channel, bos.offset] = (_CERTAIN - score) * width**0.5
            attention.key.weight[bos_channel, bos.offset] = 1.0


def _write_units(
    feed_forward: Any, parts: Items[HiddenUnits], config: EncoderConfig, bos: StreamBlock | None
) -> None:
    first = 0
    for units in parts:
        number, block = units.outer.shape[1], units.block
        rows = slice(first, first + number)
        _write(feed_forward.inner, rows, units.inner, config, bos, -1.0)  # which relu makes 0
        places = slice(block.offset, _end(block))
        feed_forward.outer.weight[places, rows] = torch.from_numpy(units.outer)
        feed_forward.outer.bias[places] = torch.from_numpy(block.at_bos)
        first += number
