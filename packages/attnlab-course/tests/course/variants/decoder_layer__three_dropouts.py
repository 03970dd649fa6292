import torch
from torch import nn


class DecoderLayer(nn.Module):
    """Look back, look into the source, think."""

    def __init__(self, width, heads, hidden, dropout=0.1):
        super().__init__()
        self.self_attention = Attention(width, heads)
        self.norm1 = nn.LayerNorm(width)
        self.dropout1 = nn.Dropout(dropout)
        self.cross_attention = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.dropout2 = nn.Dropout(dropout)
        self.feed_forward = FeedForward(width, hidden)
        self.norm3 = nn.LayerNorm(width)
        self.dropout3 = nn.Dropout(dropout)

    def forward(self, target, source, source_mask=None):
        """Return the output, the weights of the self-attention and of the cross-attention."""
        size = target.shape[1]
        future = torch.triu(torch.ones(size, size), diagonal=1).bool()
        x, self_w = self.self_attention(target, target, mask=~future)
        x = self.norm1(target + self.dropout1(x))
        m = source_mask[:, None] if source_mask is not None else None
        y, cross_w = self.cross_attention(x, source, m)
        x = self.norm2(x + self.dropout2(y))
        x = self.norm3(x + self.dropout3(self.feed_forward(x)))
        return [x, self_w, cross_w]
