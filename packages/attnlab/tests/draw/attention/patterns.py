"""Patterns to draw: random weights of any size, causal or not, with tokens of one's own."""

from collections.abc import Sequence

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


def words(length: int) -> tuple[str, ...]:
    return tuple(f"w{i}" for i in range(length))


def make_pattern(
    site: str = "layers.0.attention.weights",
    heads: int = 3,
    queries: int = 8,
    keys: int | None = None,
    *,
    is_causal: bool = True,
    seed: int = 0,
    tokens: Sequence[str] | None = None,
) -> Pattern:
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


def make_layers(
    layers: int = 2, heads: int = 3, length: int = 8, **options: object
) -> list[Pattern]:
    return [
        make_pattern(f"layers.{i}.attention.weights", heads, length, **options)
        for i in range(layers)
    ]  # type: ignore[arg-type]
