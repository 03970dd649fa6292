import torch
from torch import nn


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

    def forward(self, ids):
        """Return the logits (batch, classes) and the list of the weights of all layers."""
        keep = ~(ids == 0)
        x, weights = self.embedding(ids), ()
        for block in self.blocks:
            x, w = block(x, mask=keep)
            weights += (w,)
        share = keep.double() / keep.sum(-1, keepdim=True)
        pooled = torch.einsum("bl,blw->bw", share, self.norm(x))
        return self.output(pooled), list(weights)
