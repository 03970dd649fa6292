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
        h = self.embedding(ids)
        all_w = []
        for b in self.blocks:
            h, w = b(h, ids.ne(PAD))
            all_w.append(w)
        h = self.norm(h)
        rows = []
        for text, states in zip(ids, h):
            rows.append(states[text != 0].mean(0))
        return self.output(torch.stack(rows)), all_w
