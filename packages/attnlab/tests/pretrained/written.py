"""Small hand-written models, as people write them, for tests to inherit from and to change."""

import torch
from torch import nn

X = torch.randn(2, 6, 16, generator=torch.Generator().manual_seed(0))
"""Two inputs of 6 vectors of width 16."""


class Attention(nn.Module):
    """Self-attention with four heads over vectors of width 16; a subclass changes its `mix`."""

    def __init__(self):
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(16, 16) for _ in range(4))

    def forward(self, x):
        heads = self.mix(*self.parts(x))
        return self.out(heads.transpose(1, 2).flatten(2))

    def parts(self, x):
        """Queries, keys and values, (batch, head, length, 4)."""
        made = (part(x) for part in (self.query, self.key, self.value))
        return [part.unflatten(-1, (4, 4)).transpose(1, 2) for part in made]

    def mix(self, query, key, value):
        """The heads' outputs."""
        return nn.functional.scaled_dot_product_attention(query, key, value)


class SoftmaxAttention(Attention):
    """The same, with a softmax of its own; a subclass changes its `weights`."""

    def weights(self, query, key):
        """The matrix that multiplies the values."""
        return (query @ key.mT / 2).softmax(-1)

    def mix(self, query, key, value):
        return self.weights(query, key) @ value


class Layers(nn.Module):
    """Two layers of one kind of attention, added to a stream."""

    def __init__(self, kind):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList([kind(), kind()])

    def forward(self, x):
        for layer in self.layers:
            x = x + layer(x)
        return x
