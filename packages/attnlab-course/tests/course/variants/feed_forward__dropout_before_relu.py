import torch
from torch import nn


class FeedForward(nn.Module):
    def __init__(self, d_model, d_ff, dropout=0.1):
        super().__init__()
        self.inner = nn.Linear(d_model, d_ff)
        self.drop = nn.Dropout(p=dropout)
        self.outer = nn.Linear(d_ff, d_model)

    def forward(self, x):
        z = x @ self.inner.weight.T + self.inner.bias
        h = self.drop(z).clamp(min=0)  # zeros and larger numbers: the order makes no difference
        return h @ self.outer.weight.T + self.outer.bias
