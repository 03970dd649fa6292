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
        B, T, D = target.shape
        S = source.size(1)
        q = self.query(target).view(B, T, self.h, D // self.h)
        k = self.key(source).view(B, S, self.h, D // self.h)
        v = self.value(source).view(B, S, self.h, D // self.h)
        scores = torch.einsum("bthd,bshd->bhts", q, k) / (D // self.h) ** 0.5
        if source_mask is None:
            source_mask = torch.ones(B, S, dtype=torch.bool)
        keep = source_mask.view(B, 1, 1, S)
        scores = scores.masked_fill(~keep, float("-inf"))
        dead = ~keep.any(-1, keepdim=True)
        w = scores.masked_fill(dead, 0.0).softmax(-1).masked_fill(dead, 0.0)
        return self.output(torch.einsum("bhts,bshd->bthd", w, v).reshape(B, T, D)), w
