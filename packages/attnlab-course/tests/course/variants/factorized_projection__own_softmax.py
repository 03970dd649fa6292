import torch
from torch.nn import Module, Parameter
from torch.nn.functional import linear


class FactorizedProjection(Module):
    def __init__(self, width, head_width, rank, temperature=1.0, gated=True):
        super().__init__()
        shapes = {"A": (width, rank), "B": (rank, head_width)}
        if gated:
            shapes["base"] = (width, head_width)
        for name, shape in shapes.items():
            setattr(self, name, Parameter(torch.nn.init.xavier_uniform_(torch.empty(*shape))))
        self.temperature = temperature

    def weight(self):
        z = (self.A @ self.B) / self.temperature
        z = z - z.max(dim=1, keepdim=True)[0]
        e = z.exp()
        w = e / e.sum(dim=1, keepdim=True)
        return w * getattr(self, "base", 1)

    def forward(self, x):
        return linear(x, self.weight().t())
