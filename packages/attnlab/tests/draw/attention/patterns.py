"""Patterns to draw: random weights of any size, causal or not, with tokens of one's own."""

import torch

from attnlab import seeds
from attnlab.draw.attention import Pattern

ODD = (
    "",
    " ",
    "\n",
    "שלום",
    "مرحبا",
    "😀",
    "👩‍👩‍👧",
    "a token that goes on and on and on",
    "$x_1$",
    "<script>alert(1)</script>",
)


def words(length):
    return tuple(f"w{i}" for i in range(length))


def make_pattern(
    site="layers.0.attention.weights",
    heads=3,
    queries=8,
    keys=None,
    *,
    is_causal=True,
    seed=0,
    tokens=None,
):
    """Softmax of random scores: no two heads, rows or columns are alike."""
    keys = keys or queries
    generator = seeds.generator(seed, "test patterns", site)
    scores = 2.0 * torch.randn(heads, queries, keys, generator=generator)
    if is_causal:
        scores = scores.masked_fill(torch.ones(queries, keys).triu(1).bool(), -torch.inf)
    names = tuple(tokens) if tokens else words(keys)
    return Pattern(
        site,
        scores.softmax(-1),
        names if queries == keys else words(queries),
        names,
        "causal" if is_causal else None,
    )


def make_layers(layers=2, heads=3, length=8, **options):
    return [
        make_pattern(f"layers.{i}.attention.weights", heads, length, **options)
        for i in range(layers)
    ]  # type: ignore[arg-type]
