import torch
from torch import nn


class TorchTransformer(nn.Module):
    def __init__(self, input_dim, qk_dim, v_dim, pos_dim=None, max_seq_len=10):
        super().__init__()
        self.register_parameter("pos", None)
        width = input_dim
        if pos_dim is not None:
            self.pos = nn.Parameter(torch.zeros(max_seq_len, pos_dim))
            width += pos_dim
        for name, size in zip(("Vm", "Km", "Qm"), (v_dim, qk_dim, qk_dim)):
            setattr(self, name, nn.Linear(width, size, bias=False))

    def with_places(self, seq):
        if self.pos is None:
            return seq
        places = torch.arange(seq.size(0))
        if seq.size(0) > self.pos.size(0):
            raise ValueError(f"at most {self.pos.size(0)} tokens")
        return torch.hstack([seq, self.pos.index_select(0, places)])

    def forward(self, seq):
        x = self.with_places(seq)
        scores = torch.einsum("qc,kc->qk", self.Qm(x), self.Km(x)) * self.Qm.out_features**-0.5
        scores = scores - scores.amax(-1, keepdim=True)
        weights = scores.exp()
        weights = weights / weights.sum(-1, keepdim=True)
        return torch.einsum("qk,kv->qv", weights, self.Vm(x))
