import math

import torch
from torch import nn


class CrossAttention(nn.Module):
    """Let target tokens attend to source tokens."""

    def __init__(self, width, heads):
        super().__init__()
        self.h = heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.output = nn.Linear(width, width)

    def forward(self, target, source, source_mask=None):
        """Return the output and the weights (batch, head, queries, keys)."""
        found, weights = [], []
        parts = [
            each.chunk(self.h, dim=-1)
            for each in (self.query(target), self.key(source), self.value(source))
        ]
        for q, k, v in zip(*parts):
            scores = q @ k.mT * k.size(-1) ** -0.5
            if source_mask is not None:
                scores = scores.masked_fill(
                    source_mask.logical_not().unsqueeze(1), torch.finfo(scores.dtype).min
                )
            w = scores.softmax(-1)
            if source_mask is not None:
                w = w * source_mask.unsqueeze(1)
            found.append(w @ v)
            weights.append(w)
        return self.output(torch.cat(found, dim=-1)), torch.stack(weights, dim=1)
