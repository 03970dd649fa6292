import math

import torch
import torch.nn as nn


class SinusoidalPositions(nn.Module):
    def __init__(self, max_length, d_model):
        super().__init__()
        pe = torch.zeros(max_length, d_model)
        for pos in range(max_length):
            for j in range(d_model):
                i = j // 2
                angle = pos / (10000 ** (2 * i / d_model))
                pe[pos, j] = math.sin(angle) if j % 2 == 0 else math.cos(angle)
        self.register_buffer("table", pe)

    def forward(self, x):
        B, L, D = x.shape
        if L > self.table.size(0):
            raise ValueError("sequence too long")
        return x + self.table[None, :L, :].type_as(x)
