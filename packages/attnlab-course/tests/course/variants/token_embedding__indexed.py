import numpy as np
import torch
from torch import nn


class TokenEmbedding(nn.Module):
    def __init__(self, vocab_size, d_model):
        super(TokenEmbedding, self).__init__()
        self.embedding = nn.Embedding(vocab_size, d_model)
        self.scale = float(np.sqrt(d_model))

    def forward(self, ids):
        return self.scale * self.embedding.weight[ids]
