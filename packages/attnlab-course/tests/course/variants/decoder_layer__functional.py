import torch
from torch import nn


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
        a, w2 = self.cross_attention(t, source, source_mask.unsqueeze(1).repeat(1, n, 1))
        t = self.norm2(t + drop(a))
        return self.norm3(t + drop(self.feed_forward(t))), w1, w2
