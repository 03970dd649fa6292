import torch
from torch import nn


class InputEmbedding(nn.Module):
    def __init__(self, vocab_size, d_model, max_length, dropout=0.1):
        super().__init__()
        self.pos = Positions(max_length, d_model)
        self.p = dropout
        self.tokens = Tokens(vocab_size, d_model)

    def forward(self, ids):
        summed = self.pos(self.tokens(ids))
        return torch.nn.functional.dropout(summed, p=self.p, training=self.training)
