import torch
from torch import nn


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
        found, weights = self.attention(x, mask)
        a = self.add(x, found, self.norm1)
        return self.add(a, self.feed_forward(a), self.norm2), weights
