"""Causality: does a model's output at one position depend on later tokens?

In a causal model the derivative of output i with respect to input j > i is exactly 0, not merely
small: a blocked weight is exactly 0, and so is everything multiplied by it. `largest_leak` uses the
gradient, which shows the smallest dependence after the embedding; `largest_change` exchanges the
later tokens, which also shows dependences without a gradient, and leaks before the embedding.
"""

import math

import torch
from torch import Tensor, nn

from attnlab.errors import not_none
from attnlab.sites import Hook, installed


def largest_leak(model: nn.Module, tokens: Tensor, *, site: str = "embedding") -> float:
    """Return the largest |d output_ic / d embedding_jk| over all inputs, channels and j > i; NaN is
    no result.

    0.0 is causal. First a random combination of the channels of an output is tested: if it depends
    on no later token, no channel does (with probability 1). Otherwise each channel is tested by
    itself, so a causal model costs one backward pass for each position, and a leaking one as many
    as it has channels.

    Args:
        model: maps tokens (batch, length) to one vector for each position, and has the site.
        tokens: (batch, length) ids.
        site: of the tokens' embedding, such as "decoder.embedding".
    """
    leaf = _Leaf(site)
    with installed(model, leaf), torch.enable_grad():
        outputs = model(tokens)
        source = not_none(leaf.value)

        def later(output: Tensor, position: int) -> float:
            """Return the largest derivative by later tokens; inputs are independent, so they are
            summed."""
            (gradient,) = torch.autograd.grad(output.sum(), source, retain_graph=True)
            return float(gradient[:, position + 1 :].abs().max())

        largest = 0.0
        for position in range(tokens.shape[1] - 1):
            output = outputs[:, position]
            generator = torch.Generator().manual_seed(position)
            signs = torch.randn(output.shape, generator=generator, dtype=output.dtype)
            if later(output * signs, position) != 0.0:
                for channel in output.unbind(-1):
                    largest = _larger(largest, later(channel, position))
        if not bool(torch.isfinite(outputs).all()):
            return float("nan")
        return largest


@torch.no_grad()
def largest_change(model: nn.Module, tokens: Tensor) -> float:
    """Return the largest change of an output when only later tokens are exchanged; 0.0 is causal.

    Args:
        model: maps tokens (batch, length) to one vector for each position.
        tokens: (batch, length) ids, at least two of them different.
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
    """Return the larger of two numbers, and NaN if one is, which max() would lose."""
    if math.isnan(second) or second > first:
        return second
    return first


class _Leaf(Hook):
    """Makes the embedding a leaf, by which gradients can be computed."""

    def __init__(self, site: str) -> None:
        self.value: Tensor | None = None
        self._site, self.sites = site, (site,)

    def wants(self, site: str) -> bool:
        return site == self._site

    def visit(self, site: str, value: Tensor) -> Tensor:
        self.value = value.detach().requires_grad_()
        return self.value
