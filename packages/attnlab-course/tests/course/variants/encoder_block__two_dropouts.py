import torch
from torch import nn


class EncoderBlock(nn.Module):
    def __init__(self, d_model, num_heads, d_ff, dropout=0.1):
        super().__init__()
        self.norm1 = nn.LayerNorm(d_model)
        self.norm2 = nn.LayerNorm(d_model)
        self.dropout1 = nn.Dropout(dropout)
        self.dropout2 = nn.Dropout(dropout)
        self.attention = SelfAttention(d_model, num_heads)
        self.feed_forward = FeedForward(d_model, d_ff, dropout)

    def forward(self, x, mask=None):
        attn_out, attn_weights = self.attention(x, mask=mask)
        a = self.norm1(self.dropout1(attn_out) + x)
        ff_out = self.feed_forward(a)
        out = self.norm2(self.dropout2(ff_out) + a)
        return out, attn_weights
