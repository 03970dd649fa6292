import torch
from torch import nn


class Tokens(nn.Module):
    """A scaled row for each id. It is given; leave it as it is."""

    def __init__(self, vocab_size, d_model):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(vocab_size, d_model) / d_model)

    def forward(self, ids):
        """(batch, length) -> (batch, length, d_model)."""
        return self.weight[ids] * self.weight.shape[1] ** 0.5


class Positions(nn.Module):
    """A fixed pattern for each position, added to x. It is given; leave it as it is."""

    def __init__(self, max_length, d_model):
        super().__init__()
        column = torch.arange(d_model)
        slow = 10000.0 ** (-(column - column % 2) / d_model)
        angle = torch.arange(max_length)[:, None] * slow + column % 2 * torch.pi / 2
        self.register_buffer("table", angle.sin(), persistent=False)

    def forward(self, x):
        """(batch, length, d_model) -> the same."""
        return x + self.table[: x.shape[1]]


class InputEmbedding(nn.Module):
    def __init__(self, vocab_size, d_model, max_length, dropout=0.5):
        super().__init__()
        self.pos = Positions(max_length, d_model)
        self.p = dropout
        self.tokens = Tokens(vocab_size, d_model)

    def forward(self, ids):
        summed = self.pos(self.tokens(ids))
        return torch.nn.functional.dropout(summed, p=self.p, training=self.training)
