import torch
from torch import nn


def swish(z):
    small = torch.exp(-z.abs())
    return z * torch.where(z >= 0, 1 / (1 + small), small / (1 + small))


class SwiGLU(nn.Module):
    def __init__(self, d_model, d_ff):
        super().__init__()
        make = lambda i, o: nn.Linear(i, o, bias=False)
        self.gate, self.up, self.down = (
            make(d_model, d_ff),
            make(d_model, d_ff),
            make(d_ff, d_model),
        )

    def forward(self, x):
        return self.down(swish(self.gate(x)).mul(self.up(x)))
