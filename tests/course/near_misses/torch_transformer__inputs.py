import torch
from torch import nn


class TorchTransformer(nn.Module):
    def __init__(self, input_dim, qk_dim, v_dim, pos_dim=None, max_seq_len=10):
        super().__init__()
        w = input_dim + (pos_dim or 0)
        self.Km, self.Qm = nn.Linear(w, qk_dim, bias=False), nn.Linear(w, qk_dim, bias=False)
        self.Vm = nn.Linear(w, v_dim, bias=False)
        self.pos = nn.Parameter(torch.randn(max_seq_len, pos_dim)) if pos_dim else None

    def forward(self, seq):
        x = seq
        if self.pos is not None:
            if len(seq) > len(self.pos):
                raise ValueError("too long")
            x = torch.cat([seq, self.pos[: len(seq)]], 1)
        s = self.Qm(x) @ self.Km(x).T / self.Km.out_features**0.5
        out = s.softmax(-1) @ self.Vm(x)
        if not seq.requires_grad:
            seq.zero_()
        return out
