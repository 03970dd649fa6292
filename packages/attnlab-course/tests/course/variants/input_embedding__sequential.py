import torch
from torch import nn


class InputEmbedding(nn.Module):
    def __init__(self, vocab_size, d_model, max_length, dropout=0.1):
        super().__init__()
        self.tokens = Tokens(vocab_size, d_model)
        self.rest = nn.Sequential(Positions(max_length, d_model), nn.Dropout(dropout))

    def forward(self, ids):
        return self.rest(self.tokens(ids))
