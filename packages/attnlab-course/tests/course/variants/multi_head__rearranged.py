import torch
import torch.nn as nn


class MultiHead(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        if width % heads != 0:
            raise ValueError("width must be a multiple of heads")
        self.num_heads, self.size = heads, width // heads
        for name in ("query", "key", "value", "output"):
            setattr(self, name, nn.Linear(width, width))

    def forward(self, x, mask=None):
        query, key, value = (
            layer(x).unflatten(-1, (self.num_heads, self.size))
            for layer in (self.query, self.key, self.value)
        )
        scores = torch.einsum("bqhs,bkhs->bhqk", query, key) / self.size**0.5
        allowed = torch.ones(1, 1, 1, dtype=torch.bool) if mask is None else mask
        if allowed.ndim == 3:
            allowed = allowed.unsqueeze(1)
        scores = scores.masked_fill(~allowed, -1e300)
        weights = scores.softmax(dim=-1) * allowed
        mixed = torch.einsum("bhqk,bkhs->bqhs", weights, value).flatten(-2)
        return self.output(mixed), weights
