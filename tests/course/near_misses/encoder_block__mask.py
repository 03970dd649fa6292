import torch
from torch import nn


class SelfAttention(nn.Module):
    """Attention with several heads. It is given; leave it as it is."""

    def __init__(self, d_model, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.project_in = nn.Linear(d_model, 3 * d_model)
        self.project_out = nn.Linear(d_model, d_model)

    def forward(self, x, mask=None):
        """(batch, length, d_model) -> the same, and weights (batch, head, length, length)."""
        shape = (*x.shape[:2], 3, self.num_heads, -1)
        q, k, v = self.project_in(x).view(shape).permute(2, 0, 3, 1, 4)
        fit = torch.einsum("bhqd,bhkd->bhqk", q, k) * q.shape[-1] ** -0.5
        if mask is not None:
            allowed = mask if mask.dim() == 2 else mask.unsqueeze(1)
            fit = fit.masked_fill(allowed.logical_not(), float("-inf"))
        weights = fit.softmax(-1)
        return self.project_out((weights @ v).transpose(1, 2).flatten(2)), weights


class FeedForward(nn.Sequential):
    """Two layers with ReLU and dropout between them. It is given; leave it as it is."""

    def __init__(self, d_model, d_ff, dropout):
        wide, back = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)
        super().__init__(wide, nn.ReLU(), nn.Dropout(dropout), back)


class EncoderBlock(nn.Module):
    def __init__(self, d_model, num_heads, d_ff, dropout=0.1):
        super().__init__()
        self.attention = SelfAttention(d_model, num_heads)
        self.feed_forward = FeedForward(d_model, d_ff, dropout)
        self.norm1 = nn.LayerNorm([d_model])
        self.norm2 = nn.LayerNorm([d_model])
        self.chance = dropout

    def add(self, x, found, norm):
        return norm(x + torch.dropout(found, self.chance, self.training))

    def forward(self, x, mask=None):
        found, weights = self.attention(x)
        a = self.add(x, found, self.norm1)
        return self.add(a, self.feed_forward(a), self.norm2), weights
