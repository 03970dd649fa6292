"""Takes a score of exactly 0 for a masked one."""

import math

import torch
from torch import nn


class MultiHead(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        if width % heads:
            raise ValueError("the heads do not divide the width")
        self.query, self.key, self.value, self.output = (nn.Linear(width, width) for _ in range(4))
        self.heads = heads

    def forward(self, x, mask=None):
        batch, length, width = x.shape
        query, key, value = (
            part(x).view(batch, length, self.heads, -1).transpose(1, 2)
            for part in (self.query, self.key, self.value)
        )
        scores = query @ key.mT / math.sqrt(width // self.heads)
        if mask is not None:
            scores = scores * (mask if mask.dim() == 2 else mask.unsqueeze(1))
            scores = scores.masked_fill(scores == 0, -math.inf)
        weights = torch.softmax(scores, dim=-1).nan_to_num(0.0)
        return self.output((weights @ value).transpose(1, 2).flatten(2)), weights
