import torch
from torch import nn

PAD, UNK = 0, 1


# Given: leave these two classes as they are.
class Embedding(nn.Module):
    """Add what a token is to where it stands."""

    def __init__(self, vocab_size, width, longest, dropout):
        super().__init__()
        self.token = nn.Embedding(vocab_size, width)
        self.position = nn.Embedding(longest, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, ids):
        """Return (batch, length, width) for ids (batch, length)."""
        positions = self.position(torch.arange(ids.shape[1]))
        return self.dropout(self.token(ids) + positions)


class Block(nn.Module):
    """Attention and a feed-forward network, with add & norm after each."""

    def __init__(self, width, heads, hidden, dropout):
        super().__init__()
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.norm1 = nn.LayerNorm(width)
        self.feed_forward = nn.Sequential(
            nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, width)
        )
        self.norm2 = nn.LayerNorm(width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, mask=None):
        """Return (batch, length, width) and the weights (batch, head, query, key).

        `mask` is (batch, length), True = may attend; None where all may.
        """
        hidden_keys = None if mask is None else ~mask
        mixed, weights = self.attention(
            x, x, x, key_padding_mask=hidden_keys, average_attn_weights=False
        )
        x = self.norm1(x + self.dropout(mixed))
        return self.norm2(x + self.dropout(self.feed_forward(x))), weights


class MiniTransformer(nn.Module):
    """Classify texts of token ids."""

    def __init__(self, vocab_size, width, heads, layers, hidden, classes, longest=32, dropout=0.1):
        super().__init__()
        self.embedding = Embedding(vocab_size, width, longest, dropout)
        blocks = []
        for layer in range(layers):
            blocks.append(Block(width, heads, hidden, dropout))
        self.blocks = nn.ModuleList(blocks)
        self.norm = nn.LayerNorm(width)
        self.output = nn.Linear(width, classes)
        self.dropout = nn.Dropout(dropout)

    def forward(self, ids):
        """Return the logits (batch, classes) and the list of the weights of all layers."""
        keep = ~(ids == 0)
        x, weights = self.embedding(ids), ()
        for block in self.blocks:
            x, w = block(x, mask=keep)
            weights += (w,)
        share = keep.double() / keep.sum(-1, keepdim=True)
        pooled = torch.einsum("bl,blw->bw", share, self.norm(x))
        return self.output(self.dropout(pooled)), list(weights)
