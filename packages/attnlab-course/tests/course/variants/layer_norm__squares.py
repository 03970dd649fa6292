import torch
from torch import nn


class LayerNormalization(nn.Module):
    def __init__(self, width, eps=1e-5):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros((width,)))
        self.weight = nn.Parameter(torch.full((width,), 1.0))
        self.width, self.eps = width, eps

    def forward(self, x):
        away = x - x.sum(dim=-1, keepdim=True) / self.width
        spread = (away**2).sum(dim=-1, keepdim=True) / self.width
        return torch.addcmul(self.bias, self.weight, away * torch.rsqrt(spread + self.eps))
