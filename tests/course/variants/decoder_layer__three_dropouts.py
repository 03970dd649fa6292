import torch
from torch import nn


# Given: leave these two classes as they are.
class Attention(nn.Module):
    """Let tokens attend to tokens, with PyTorch's multi-head attention."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.inner = nn.MultiheadAttention(width, heads, batch_first=True)

    def forward(self, asking, read, mask=None):
        """Return the output (batch, queries, width) and the weights (batch, head, queries, keys).

        `mask` is (queries, keys) or (batch, queries, keys), True = may attend. It may have size 1
        in place of batch or queries.
        """
        hidden = None
        if mask is not None:
            full = mask.expand(len(asking), asking.shape[1], read.shape[1])
            hidden = ~full.repeat_interleave(self.heads, dim=0)
        return self.inner(asking, read, read, attn_mask=hidden, average_attn_weights=False)


class FeedForward(nn.Module):
    """Let each position think by itself."""

    def __init__(self, width, hidden):
        super().__init__()
        self.wide = nn.Linear(width, hidden)
        self.narrow = nn.Linear(hidden, width)

    def forward(self, x):
        """Return (batch, length, width) for (batch, length, width)."""
        return self.narrow(torch.relu(self.wide(x)))


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
