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


class Block(nn.Module):
    """A block that adds attention and a feed-forward part to its stream."""

    def __init__(self, attention):
        super().__init__()
        self.norm, self.attention, self.norm_2 = nn.LayerNorm(16), attention, nn.LayerNorm(16)
        self.mlp = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))

    def forward(self, x):
        x = x + self.attention(self.norm(x))
        return x + self.mlp(self.norm_2(x))


class Reader(nn.Module):
    """A small language model; a subclass chooses the name of its input."""

    def __init__(self, layers):
        super().__init__()
        torch.manual_seed(0)
        self.tokens, self.positions = nn.Embedding(10, 16), nn.Embedding(12, 16)
        self.layers = nn.ModuleList(layer() for layer in layers)
        self.norm, self.unembedding = nn.LayerNorm(16), nn.Linear(16, 10)
        self.eval()

    def read(self, ids):
        """The stream after all layers."""
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1]))
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)

    def forward(self, input_ids):
        return self.unembedding(self.read(input_ids))


class TokensReader(Reader):
    """The same with another name of its input."""

    def forward(self, tokens):
        return self.unembedding(self.read(tokens))
