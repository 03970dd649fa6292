import torch, torch.nn as nn, torch.nn.functional as F


class FactorizedProjection(nn.Module):
    def __init__(self, width, head_width, rank, temperature=1.0, gated=True):
        super().__init__()
        self.A = nn.Parameter(torch.randn(width, rank) * 0.1)
        self.B = nn.Parameter(torch.randn(rank, head_width) * 0.1)
        self.t = float(temperature)
        self.gated = gated
        if gated:
            self.base = nn.Parameter(torch.randn(width, head_width) / width**0.5)

    def weight(self):
        scores = torch.einsum("wr,rh->wh", self.A, self.B)
        w = F.softmax(scores.div(self.t), 1)
        if self.gated:
            w = w.mul(self.base)
        return w

    def forward(self, x):
        return torch.einsum("...w,wh->...h", x, self.weight())
