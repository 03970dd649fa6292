"""Figures of the run's own model and texts: the stack, recurrent against parallel, positions."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnlab.draw.sections import (
    Arrow,
    Box,
    Diagram,
    Heatmap,
    MapChoice,
    Maps,
    Section,
    Table,
    Tone,
)
from attnlab.experiments.sentiment.fit import Prepared
from attnlab.models.embedding import Embedding
from attnlab.models.encoder import Encoder
from attnlab.models.parameters import count_from_model
from attnlab.parts.blocks import Block

_WIDTH, _HEIGHT, _GAP = 330, 46, 22  # of a box, and between boxes, pixels
_LEFT = 70  # where the boxes begin; the residual connections run on the left of them
_MOST_BLOCKS = 6  # drawn one by one; of a deeper model, the first ones
_MOST_WORDS = 6  # of the example in the picture of recurrence


@dataclass(frozen=True)
class Layer:
    """One box of the stack; is_bypassed: whether a residual connection passes it."""

    title: str
    note: str
    is_bypassed: bool = False
    tone: Tone = "plain"


def architecture_section(model: Encoder, prepared: Prepared) -> Diagram:
    """Draw the modules of the model, from the tokens down to the classes."""
    layers = _layers_of(model, prepared)
    boxes, arrows = [], []
    middle, top = _LEFT + _WIDTH / 2, 10.0
    for number, layer in enumerate(layers):
        boxes.append(
            Box(
                x=_LEFT,
                y=top,
                width=_WIDTH,
                height=_HEIGHT,
                title=layer.title,
                note=layer.note,
                tone=layer.tone,
            )
        )
        if number:
            arrows.append(Arrow(points=[(middle, top - _GAP), (middle, top)]))
        if layer.is_bypassed:
            start, end = top - _GAP / 2, top + _HEIGHT + _GAP + _HEIGHT / 2
            points = [(middle, start), (_LEFT - 30, start), (_LEFT - 30, end), (_LEFT, end)]
            arrows.append(Arrow(points=points, dashed=True))
        top += _HEIGHT + _GAP
    counts = count_from_model(model)
    return Diagram(
        title="The model",
        caption=f"Drawn from the modules of the trained model, {sum(counts.values()):,} "
        "parameters in all; shapes are length × width. Dashed: the residual stream, which is "
        "added to the output of a sub-layer.",
        figure="architecture",
        width=_LEFT + _WIDTH + 20,
        height=top,
        boxes=boxes,
        arrows=arrows,
    )


def recurrence_sections(model: Encoder, prepared: Prepared, texts: Sequence[str]) -> list[Section]:
    """Draw a recurrent network and this model reading one of the texts, and count their steps."""
    starts = [prepared.tokenizer.words(text)[:_MOST_WORDS] for text in texts]
    words = max(starts, key=lambda words: len(set(words)))
    width = model.config.d_model
    lengths = [len(ids) for ids in prepared.test.ids]
    mean = round(sum(lengths) / len(lengths))
    recurrent = sum(value.numel() for value in nn.GRU(width, width).parameters())
    block = sum(value.numel() for value in model.layers[0].parameters())
    rows: list[list[str | int]] = []
    for what, length in (
        (f"a text of mean length, {mean} tokens", mean),
        (f"the longest text, {max(lengths)} tokens", max(lengths)),
    ):
        rows += [
            [f"steps one after another: {what}", length, 1],
            [f"longest path between two tokens: {what}", length - 1, 1],
            [f"multiplications: {what}", length * 6 * width**2, _block_products(model, length)],
        ]
    rows.append(["parameters of a layer", recurrent, block])
    table = Table(
        title="Recurrent against parallel, counted",
        caption="One layer of a gated recurrent unit (torch.nn.GRU) and one block of this model, "
        f"both of width {width}, on the test texts of this run. A recurrent layer has to wait "
        "for the token before; attention reads all at once, at a cost for each pair of tokens.",
        columns=["", "recurrent layer", "block of this model"],
        rows=rows,
    )
    return [_recurrence_diagram(words, mean), table]


@torch.no_grad()
def positions_section(model: Encoder, prepared: Prepared, text: str) -> Maps:
    """Compare a text's vectors with each other: tokens alone, positions alone, and their sum."""
    ids = torch.tensor([prepared.tokenizer.ids(text)])
    words = _numbered(prepared.tokenizer.words(text))
    tokens = model.embedding.tokens(ids)
    tokens = (tokens.sum(-2) if tokens.dim() == 4 else tokens)[0] * model.embedding.scale
    both = model.embedding(ids)[0]
    place = both - tokens
    parts = [("tokens alone", tokens), ("positions alone", place), ("tokens + positions", both)]
    has_positions = float(place.abs().max()) > 0
    shown = parts if has_positions else parts[:1]
    meaning = "This model adds no positions: it reads its tokens as a set."
    if has_positions:
        meaning = "Alone, a word is the same at every position; with its position added it is not."
    return Maps(
        title="Token against token with position",
        caption="The similarity (cosine, 1 for the same direction) of the vectors of each two "
        f"tokens before the first block. {meaning}",
        figure="positions",
        choices=[
            MapChoice(
                label=text,
                note=_repeated_note(words, tokens, both),
                maps=[
                    Heatmap(
                        title=title,
                        rows=_cosines(vectors),
                        row_labels=words,
                        column_labels=words,
                        row_title="",
                        column_title="",
                        low=-1.0,
                        high=1.0,
                    )
                    for title, vectors in shown
                ],
            )
        ],
    )


def _layers_of(model: Encoder, prepared: Prepared) -> list[Layer]:
    """List the boxes in the order in which the model's modules compute."""
    config, counts = model.config, count_from_model(model)
    kind = type(prepared.tokenizer).__name__.removesuffix("Tokenizer").lower()
    layers = [
        Layer("text", f"{kind} tokens, at most {prepared.tokenizer.max_length:,}", tone="quiet")
    ]
    for name, module in model.named_children():
        if isinstance(module, Embedding):
            scaled = " × √width" if module.scale != 1.0 else ""
            parts = ""
            if prepared.tokenizer.num_parts > 1:
                parts = f", {prepared.tokenizer.num_parts} parts added"
            layers.append(
                Layer(
                    f"token embedding{scaled}",
                    f"{module.vocab_size:,} × {config.d_model}{parts} · "
                    f"{_sum(counts, 'embedding.tokens')} parameters",
                )
            )
            if module.positions is not None:
                of = _sum(counts, "embedding.positions")
                layers.append(
                    Layer(
                        f"+ {config.positions} positions",
                        f"length × {config.d_model} · {of} parameters",
                    )
                )
        elif isinstance(module, nn.ModuleList):
            for number, block in enumerate(module[:_MOST_BLOCKS]):
                assert isinstance(block, Block)
                layers += _block_layers(block, f"{name}.{number}", counts)
            if len(module) > _MOST_BLOCKS:
                layers.append(
                    Layer(f"… {len(module) - _MOST_BLOCKS} more blocks", "", tone="quiet")
                )
        elif name == "head":
            layers.append(
                Layer(
                    "mean over the tokens",
                    f"length × {config.d_model} → {config.d_model}, PAD left out",
                )
            )
            classes = len(prepared.classes)
            layers.append(
                Layer(
                    "linear",
                    f"{config.d_model} → {classes} classes · {_sum(counts, 'head')} parameters",
                    tone="accent",
                )
            )
        else:
            layers.append(Layer(name.replace("_", " "), f"{_sum(counts, name)} parameters"))
    return layers


def _block_layers(block: Block, path: str, counts: dict[str, int]) -> list[Layer]:
    number = path.rpartition(".")[2]
    heads = block.attention.layout.num_heads
    hidden = counts[f"{path}.feed_forward"]
    add = {"post": "add & norm", "pre": "add (norm before)", "none": "add"}[block.norm_place]
    return [
        Layer(
            f"block {number}: {heads}-head attention",
            f"{_sum(counts, f'{path}.attention.')} parameters",
            is_bypassed=True,
            tone="accent",
        ),
        Layer(add, f"{_sum(counts, f'{path}.norm_attention')} parameters"),
        Layer(f"block {number}: feed-forward", f"{hidden:,} parameters", is_bypassed=True),
        Layer(add, f"{_sum(counts, f'{path}.norm_feed_forward')} parameters"),
    ]


def _sum(counts: dict[str, int], prefix: str) -> str:
    return f"{sum(count for part, count in counts.items() if part.startswith(prefix)):,}"


def _block_products(model: Encoder, length: int) -> int:
    """Count the multiplications of a block: projections, scores, weighted values, feed-forward."""
    width, inner = model.config.d_model, model.config.inner_width
    return length * (4 * width**2 + 2 * width * inner) + 2 * length**2 * width


def _recurrence_diagram(words: list[str], mean: int) -> Diagram:
    step, width, height = 118, 96, 34
    boxes: list[Box] = []
    arrows: list[Arrow] = []

    def row(
        top: float, titles: Sequence[str], tone: Tone, left: float
    ) -> list[tuple[float, float]]:
        for place, title in enumerate(titles):
            boxes.append(
                Box(
                    x=left + place * step,
                    y=top,
                    width=width,
                    height=height,
                    title=title,
                    tone=tone,
                )
            )
        return [(left + place * step + width / 2, top) for place in range(len(titles))]

    states = row(100, [f"state {place + 1}" for place in range(len(words))], "accent", 10)
    for place, (x, top) in enumerate(row(20, words, "quiet", 10)):
        arrows.append(Arrow(points=[(x, top + height), (x, states[place][1])]))
        if place:
            ends = [
                (states[place - 1][0] + width / 2, 100 + height / 2),
                (x - width / 2, 100 + height / 2),
            ]
            arrows.append(Arrow(points=ends))
    outputs = row(310, [f"output {place + 1}" for place in range(len(words))], "accent", 10)
    for x, top in row(190, words, "quiet", 10):
        for number, (end, bottom) in enumerate(outputs):
            is_last = number == len(outputs) - 1
            arrows.append(Arrow(points=[(x, top + height), (end, bottom)], dashed=not is_last))
    return Diagram(
        title="Recurrent against parallel",
        caption=f"Above, a recurrent network: each state waits for the one before, {len(words)} "
        f"steps for these {len(words)} tokens and {mean} for a test text of mean length; "
        "information from the first token passes through all other states. Below, attention: "
        "every output reads every token directly, in 1 step (solid: the inputs of the last "
        "output).",
        figure="recurrence",
        width=20 + step * len(words),
        height=364,
        boxes=boxes,
        arrows=arrows,
    )


def _cosines(vectors: Tensor) -> list[list[float]]:
    unit = F.normalize(vectors, dim=-1)
    return [[round(value, 4) for value in row] for row in (unit @ unit.T).clamp(-1, 1).tolist()]


def _numbered(words: Sequence[str]) -> list[str]:
    """Number repeated words, so that each row of a map has its own name."""
    return [
        f"{word} ({place})" if list(words).count(word) > 1 else word
        for place, word in enumerate(words)
    ]


def _repeated_note(words: Sequence[str], tokens: Tensor, both: Tensor) -> str:
    plain = [word.rpartition(" (")[0] or word for word in words]
    pair = next(((i, j) for j in range(len(plain)) for i in range(j) if plain[i] == plain[j]), None)
    if pair is None:
        return (
            "No word occurs twice in this text; equal words would have a cosine of exactly 1 "
            "without positions."
        )
    one, other = pair
    alone, placed = (
        float(F.cosine_similarity(each[one], each[other], dim=0)) for each in (tokens, both)
    )
    return (
        f"“{plain[one]}” is at {one} and {other}: cosine {alone:.2f} alone, {placed:.2f} with "
        "positions."
    )
