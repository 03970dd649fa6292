import torch
from torch import nn


class TorchTransformer(nn.Module):
    def __init__(self, input_dim, qk_dim, v_dim, pos_dim=None, max_seq_len=10):
        super().__init__()
        self.longest = max_seq_len
        w = input_dim + (pos_dim or 0)
        self.Km, self.Qm = nn.Linear(w, qk_dim, bias=False), nn.Linear(w, qk_dim, bias=False)
        self.Vm = nn.Linear(w, v_dim, bias=False)
        self.pos = nn.Parameter(torch.randn(max_seq_len, pos_dim)) if pos_dim else None

    def forward(self, seq):
        if seq.shape[0] > self.longest:
            raise ValueError("too long")
        if self.pos is not None:
            seq = torch.cat([seq, self.pos[: len(seq)]], 1)
        s = self.Qm(seq) @ self.Km(seq).T / self.Km.out_features**0.5
        return s.softmax(-1) @ self.Vm(seq)
