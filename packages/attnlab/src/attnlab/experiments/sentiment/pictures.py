"""Figures of the run's own model and texts: the stack, recurrent against parallel, positions."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from attnlab.draw import sections as draw
from attnlab.experiments.sections import rounded
from attnlab.experiments.sentiment.config import WORDS
from attnlab.experiments.sentiment.fit import Prepared
from attnlab.models.encoder import Encoder
from attnlab.models.parameters import count_from_model

_WIDTH, _HEIGHT, _GAP = 430, 34, 18  # of a box, and between boxes, pixels
_LEFT = 70  # where the boxes begin; the residual connections run on the left of them
_SMALL_WIDTH, _SMALL_HEIGHT, _SMALL_STEP = 96, 34, 118  # of a box in the picture of recurrence
_MOST_BLOCKS = 6  # drawn one by one; of a deeper model, the first ones
_MOST_WORDS = 6  # of the example in the picture of recurrence
Tone = Literal["plain", "accent", "quiet"]
_ADD = {"post": "add & norm", "pre": "add (norm before)", "none": "add"}


@dataclass(frozen=True)
class StackBox:
    """One box of the stack; is_bypassed: whether a residual connection passes it."""

    title: str
    note: str
    tone: Tone = "plain"
    is_bypassed: bool = False


def architecture_section(model: Encoder, prepared: Prepared) -> draw.Diagram:
    """Draw the modules of the model, from the tokens down to the classes."""
    boxes, arrows = list[draw.Box](), list[draw.Arrow]()
    middle, top = _LEFT + _WIDTH / 2, 10.0
    for layer in _layers_of(model, prepared):
        if boxes:
            arrows.append(draw.Arrow(points=[(middle, top - _GAP), (middle, top)]))
        place = {"x": _LEFT, "y": top, "width": _WIDTH, "height": _HEIGHT}
        words = " · ".join(filter(None, (layer.title, layer.note)))
        boxes.append(draw.Box(title=words, tone=layer.tone, **place))
        if layer.is_bypassed:
            start, end = top - _GAP / 2, top + _HEIGHT + _GAP + _HEIGHT / 2
            points = [(middle, start), (_LEFT - 30, start), (_LEFT - 30, end), (_LEFT, end)]
            arrows.append(draw.Arrow(points=points, dashed=True))
        top += _HEIGHT + _GAP
    size = sum(count_from_model(model).values())
    return draw.Diagram(
        width=_LEFT + _WIDTH + 20,
        height=top,
        boxes=boxes,
        arrows=arrows,
        **WORDS.texts("architecture", {"parameters": size}),
    )


def _layers_of(model: Encoder, prepared: Prepared) -> Iterator[StackBox]:
    """Yield the boxes in the order in which the model's modules compute."""
    config, counts, tokenizer = model.config, count_from_model(model), prepared.tokenizer
    width = config.d_model

    def size(prefix: str) -> str:
        held = sum(count for part, count in counts.items() if part.startswith(prefix))
        return f"{held:,} parameters"

    kind = type(tokenizer).__name__.removesuffix("Tokenizer").lower()
    yield StackBox("text", f"{kind} tokens, at most {tokenizer.max_length:,}", "quiet")
    title, vectors = "token embedding", f"{config.vocab_size:,} × {width}"
    if config.scale_embedding:
        title += " × √width"
    if tokenizer.num_parts > 1:
        vectors += f", {tokenizer.num_parts} parts added"
    yield StackBox(title, f"{vectors} · {size('embedding.tokens')}")
    if model.embedding.positions is not None:
        places = f"length × {width} · {size('embedding.positions')}"
        yield StackBox(f"+ {config.positions} positions", places)
    add = _ADD[config.norm_place]
    for number in range(min(len(model.layers), _MOST_BLOCKS)):
        path = f"layers.{number}"
        heads = f"block {number}: {config.num_heads}-head attention"
        yield StackBox(heads, size(f"{path}.attention."), "accent", is_bypassed=True)
        yield StackBox(add, size(f"{path}.norm_attention"))
        yield StackBox(f"block {number}: feed-forward", size(f"{path}.feed_"), is_bypassed=True)
        yield StackBox(add, size(f"{path}.norm_feed_forward"))
    if len(model.layers) > _MOST_BLOCKS:
        yield StackBox(f"… {len(model.layers) - _MOST_BLOCKS} more blocks", "", "quiet")
    if model.final_norm is not None:
        yield StackBox("final norm", size("final_norm"))
    yield StackBox("mean over the tokens", f"length × {width} → {width}, PAD left out")
    classes = len(prepared.classes)
    yield StackBox("linear", f"{width} → {classes} classes · {size('head')}", "accent")


def _row_of_boxes(top: int, titles: Sequence[str], tone: Tone) -> list[draw.Box]:
    boxes = []
    for place, title in enumerate(titles):
        left, width, height = 10 + place * _SMALL_STEP, _SMALL_WIDTH, _SMALL_HEIGHT
        boxes.append(draw.Box(x=left, y=top, width=width, height=height, title=title, tone=tone))
    return boxes


def recurrence_section(prepared: Prepared, texts: Sequence[str]) -> draw.Diagram:
    """Draw a recurrent network and this model reading one of the texts."""
    starts = [prepared.tokenizer.words(text)[:_MOST_WORDS] for text in texts]
    words = max(starts, key=lambda words: len(set(words)))
    lengths = list(map(len, prepared.test.ids))
    mean = round(sum(lengths) / len(lengths))
    numbers = range(1, len(words) + 1)
    boxes = [
        *_row_of_boxes(100, [f"state {number}" for number in numbers], "accent"),
        *_row_of_boxes(20, words, "quiet"),
        *_row_of_boxes(310, [f"output {number}" for number in numbers], "accent"),
        *_row_of_boxes(190, words, "quiet"),
    ]
    middles = [box.x + _SMALL_WIDTH / 2 for box in boxes[: len(words)]]
    arrows = [draw.Arrow(points=[(x, 20 + _SMALL_HEIGHT), (x, 100)]) for x in middles]
    for before, x in itertools.pairwise(middles):
        ends = [before + _SMALL_WIDTH / 2, x - _SMALL_WIDTH / 2]
        arrows.append(draw.Arrow(points=[(end, 100 + _SMALL_HEIGHT / 2) for end in ends]))
    for x, end in itertools.product(middles, middles):
        points = [(x, 190 + _SMALL_HEIGHT), (end, 310)]
        arrows.append(draw.Arrow(points=points, dashed=end != middles[-1]))
    return draw.Diagram(
        width=20 + _SMALL_STEP * len(words),
        height=364,
        boxes=boxes,
        arrows=arrows,
        **WORDS.texts("recurrence", {"number": len(words), "mean": mean}),
    )


@torch.no_grad()
def positions_section(model: Encoder, prepared: Prepared, text: str) -> draw.Maps:
    """Compare a text's vectors with each other: tokens alone, positions alone, and their sum."""
    ids = torch.tensor([prepared.tokenizer.ids(text)])
    words = prepared.tokenizer.words(text)
    # Repeated words are numbered, so that each row of a map has its own name.
    labels = list(words)
    for place, word in enumerate(words):
        if words.count(word) > 1:
            labels[place] = f"{word} ({place})"
    tokens = model.embedding.tokens(ids)[0]
    if tokens.dim() == 3:
        tokens = tokens.sum(-2)
    tokens = tokens * model.embedding.scale
    both = model.embedding(ids)[0]
    shown = {"tokens alone": tokens}
    has_positions = float((both - tokens).abs().max()) > 0
    effect = "This model adds no positions: it reads its tokens as a set."
    if has_positions:
        effect = "Alone, a word is the same at every position; with its position added it is not."
        shown |= {"positions alone": both - tokens, "tokens + positions": both}
    maps = []
    for title, vectors in shown.items():
        cosines = draw.Heatmap.of_weights(title, _cosines(vectors), labels, labels, ("", ""))
        maps.append(replace(cosines, low=-1.0))
    choice = draw.MapChoice(label=text, note="", maps=maps)
    return draw.Maps(choices=[choice], **WORDS.texts("positions", {"effect": effect}))


def _cosines(vectors: Tensor) -> list[list[float]]:
    unit = F.normalize(vectors, dim=-1)
    return rounded((unit @ unit.T).clamp(-1, 1).tolist())
