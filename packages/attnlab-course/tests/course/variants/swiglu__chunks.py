import torch
import torch.nn as nn


def swish(z):
    return z / 2 * (1 + torch.tanh(z / 2))


class SwiGLU(nn.Module):
    def __init__(self, d_model, d_ff):
        super().__init__()
        self.down = nn.Linear(d_ff, d_model, bias=False)
        self.up = nn.Linear(d_model, d_ff, bias=False)
        self.gate = nn.Linear(d_model, d_ff, bias=False)

    def forward(self, x):
        both = x @ torch.cat([self.gate.weight, self.up.weight]).T
        g, u = both.chunk(2, dim=-1)
        return self.down(u * swish(g))
