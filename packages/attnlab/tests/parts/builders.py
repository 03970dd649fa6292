"""Small parts with seeded weights; all widths are distinct primes times heads."""

import torch
from torch import nn

from attnlab.parts.blocks import Block
from attnlab.parts.feed_forward import FeedForward
from attnlab.parts.heads import multi_head_attention
from attnlab.parts.positions import (
    Alibi,
    ConcatenatedPositions,
    LearnedPositions,
    Rotary,
    SinusoidalPositions,
)
from attnlab.seeds import generator, isolated

POSITIONS = ("none", "rotary", "alibi", "sinusoidal", "learned", "concatenated")
NORM_PLACES = ("pre", "post", "none")


def normal(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=generator(seed, "test", *shape), dtype=torch.float64).to(
        dtype
    )


def in_heads(position, num_heads):
    return {"rotary": Rotary(), "alibi": Alibi(num_heads)}.get(position)


def make_attention(d_model=28, num_heads=4, *, position="none", dtype=torch.float64, **options):
    with isolated(5):
        part = multi_head_attention(
            d_model, num_heads, position=in_heads(position, num_heads), **options
        )
        return _shaken(part).to(dtype)


def make_block(
    d_model=28,
    num_heads=4,
    *,
    position="none",
    norm_place="pre",
    norm="layer",
    activation="gelu",
    is_decoder=False,
    dropout=0.0,
    dtype=torch.float64,
    **options,
):
    with isolated(7):
        block = Block(
            multi_head_attention(
                d_model,
                num_heads,
                position=in_heads(position, num_heads),
                dropout=dropout,
                **options,
            ),
            FeedForward(d_model, 31, activation=activation, dropout=dropout),
            d_model=d_model,
            cross_attention=multi_head_attention(d_model, num_heads, **options)
            if is_decoder
            else None,
            norm=norm,
            norm_place=norm_place,
            dropout=dropout,
        )
        return _shaken(block).to(dtype)


def with_positions(block, position, d_model=28, **options):
    """A function from tokens to the block's output, positions of any kind included."""
    with isolated(11):
        before: nn.Module = {
            "sinusoidal": SinusoidalPositions(d_model),
            "learned": LearnedPositions(17, d_model),
            "concatenated": ConcatenatedPositions(17, 5),
        }.get(position, nn.Identity())
    before.to(next(block.parameters()).dtype)

    def run(x):
        return block(before(x[..., :-5] if position == "concatenated" else x), **options)

    return run


def _shaken(part):
    """Zero biases and unit gains would hide mistakes."""
    with torch.no_grad():
        for parameter in part.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    return part
