"""Takes a score of exactly 0 for a masked one."""

import math

import torch
from torch import nn


class CrossAttention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.query, self.key, self.value, self.output = (nn.Linear(width, width) for _ in range(4))
        self.heads = heads

    def forward(self, target, source, source_mask=None):
        query = self.split(self.query(target))
        key, value = self.split(self.key(source)), self.split(self.value(source))
        scores = query @ key.mT / math.sqrt(query.shape[-1])
        if source_mask is not None:
            scores = scores * source_mask[:, None, None, :]
            scores = scores.masked_fill(scores == 0, -math.inf)
        weights = torch.softmax(scores, dim=-1).nan_to_num(0.0)
        return self.output((weights @ value).transpose(1, 2).flatten(2)), weights

    def split(self, x):
        return x.view(*x.shape[:2], self.heads, -1).transpose(1, 2)
