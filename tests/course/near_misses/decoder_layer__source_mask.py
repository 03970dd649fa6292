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
        self.cross_attention = Attention(width, heads)
        self.feed_forward = FeedForward(width, hidden)
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(width) for _ in range(3))
        self.p = dropout

    def forward(self, target, source, source_mask=None):
        """Return the output, the weights of the self-attention and of the cross-attention."""
        drop = lambda x: nn.functional.dropout(x, self.p, self.training)
        n = target.size(1)
        seen = torch.arange(n)[:, None] >= torch.arange(n)
        a, w1 = self.self_attention(target, target, seen)
        t = self.norm1(target + drop(a))
        if source_mask is None:
            source_mask = torch.ones(source.shape[:2], dtype=torch.bool)
        a, w2 = self.cross_attention(t, source)
        t = self.norm2(t + drop(a))
        return self.norm3(t + drop(self.feed_forward(t))), w1, w2
