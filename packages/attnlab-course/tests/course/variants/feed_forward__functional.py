import torch.nn as nn
import torch.nn.functional as F


class FeedForward(nn.Module):
    def __init__(self, d_model, d_ff, dropout=0.1):
        super().__init__()
        self.p = dropout
        self.outer = nn.Linear(d_ff, d_model)
        self.inner = nn.Linear(d_model, d_ff)

    def forward(self, x):
        h = F.relu(self.inner(x))
        h = F.dropout(h, self.p, self.training)
        return self.outer(h)
