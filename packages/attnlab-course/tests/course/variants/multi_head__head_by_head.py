import math

import torch
from torch import nn


class MultiHead(nn.Module):
    def __init__(self, width, heads):
        if width % heads:
            raise ValueError("heads do not fit")
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.output = nn.Linear(width, width)
        self.register_buffer("size", torch.tensor(width // heads), persistent=False)

    def one(self, query, key, value, mask):
        scores = query.matmul(key.mT) / math.sqrt(int(self.size))
        if mask is None:
            weights = torch.softmax(scores, -1)
        else:
            scores = torch.where(mask, scores, -math.inf)
            weights = torch.softmax(scores, -1)
            weights = torch.where(mask, weights, 0.0)
        return weights @ value, weights

    def forward(self, x, mask=None):
        parts = [layer(x).chunk(self.heads, dim=-1) for layer in (self.query, self.key, self.value)]
        results = [self.one(*part, mask) for part in zip(*parts)]
        output = self.output(torch.cat([each[0] for each in results], dim=-1))
        return output, torch.stack([each[1] for each in results], dim=1)
