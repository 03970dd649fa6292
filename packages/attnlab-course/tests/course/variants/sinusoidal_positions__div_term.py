import math

import torch
from torch import nn


class SinusoidalPositions(nn.Module):
    def __init__(self, max_length, d_model):
        super().__init__()
        self.max_length = max_length
        position = torch.arange(max_length).unsqueeze(1)
        div_term = torch.exp(torch.arange(0, d_model, 2) * (-math.log(10000.0) / d_model))
        table = torch.empty(max_length, d_model)
        table[:, 0::2] = torch.sin(position * div_term)
        if d_model > 1:
            table[:, 1::2] = torch.cos(position * div_term[: d_model // 2])
        self.register_buffer("table", table)

    def forward(self, x):
        if x.size(1) > self.max_length:
            raise ValueError(f"{x.size(1)} > {self.max_length}")
        rows = self.table[: x.size(1)].expand_as(x).to(dtype=x.dtype, device=x.device)
        return torch.add(x, rows)
