"""Causality: does what a model says at one position depend on what stands after it?

In a causal model the derivative of output i with respect to input j > i is exactly 0, not merely small: a blocked
weight is exactly 0, and so is everything multiplied by it. `largest_leak` asks the gradient, which sees the smallest
dependence behind the embedding; `largest_change` exchanges the later tokens themselves, which also sees what has no
gradient, and what leaks before the embedding.
"""

import math

import torch
from torch import Tensor, nn

from attnlab.sites import Instrument, installed

__all__ = ["largest_change", "largest_leak"]


def largest_leak(model: nn.Module, tokens: Tensor, *, site: str = "embedding") -> float:
    """Return the largest |d output_ic / d embedding_jk| over all inputs, channels and j > i; NaN tells nothing.

    0.0 is causal. A random combination of the channels of an output is asked first: where it does not depend on
    anything later, no channel does (but by a chance of nought). Only where it does is each channel asked by itself, so
    that a causal model costs one backward pass for each position, and a leaking one as many as it has channels.

    Args:
        model: maps tokens (batch, length) to one vector for each position, and shows the site.
        tokens: (batch, length) ids.
        site: where the tokens' embedding passes, such as "decoder.embedding".
    """
    leaf = _Leaf(site)
    with installed(model, leaf), torch.enable_grad():
        outputs = model(tokens)
        source = leaf.value
        assert source is not None

        def later(said: Tensor, position: int) -> float:
            """The largest derivative of a sum over inputs, which do not depend on one another."""
            (gradient,) = torch.autograd.grad(said.sum(), source, retain_graph=True)
            return float(gradient[:, position + 1 :].abs().max())

        largest = 0.0
        for position in range(tokens.shape[1] - 1):
            output = outputs[:, position]
            signs = torch.randn(output.shape, generator=torch.Generator().manual_seed(position), dtype=output.dtype)
            if later(output * signs, position) != 0.0:
                for channel in output.unbind(-1):
                    largest = _larger(largest, later(channel, position))
        return _larger(largest, 0.0 if bool(torch.isfinite(outputs).all()) else float("nan"))


@torch.no_grad()
def largest_change(model: nn.Module, tokens: Tensor) -> float:
    """Return by how much an output changes, at most, when only later tokens are exchanged; 0.0 is causal.

    Args:
        model: maps tokens (batch, length) to one vector for each position.
        tokens: (batch, length) ids, of which at least two are different.
    """
    outputs = model(tokens)
    others = (tokens - tokens.min() + 1) % (tokens.max() - tokens.min() + 1) + tokens.min()
    largest = 0.0
    for position in range(tokens.shape[1] - 1):
        seen = position + 1
        changed = model(torch.cat((tokens[:, :seen], others[:, seen:]), -1))
        largest = _larger(largest, float((changed[:, :seen] - outputs[:, :seen]).abs().max()))
    return largest


def _larger(first: float, second: float) -> float:
    """The larger of two numbers; NaN wins, where max() would lose it."""
    return second if math.isnan(second) or second > first else first


class _Leaf(Instrument):
    """An instrument that makes the embedding a leaf, so that gradients with respect to it can be asked for."""

    def __init__(self, site: str) -> None:
        self.value: Tensor | None = None
        self._site = site

    def wants(self, site: str) -> bool:
        return site == self._site

    def visit(self, site: str, value: Tensor) -> Tensor:
        self.value = value.detach().requires_grad_()
        return self.value
