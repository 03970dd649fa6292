import torch
import torch.nn as nn
import torch.nn.functional as F


class TorchTransformer(nn.Module):
    def __init__(self, input_dim, qk_dim, v_dim, pos_dim=None, max_seq_len=10):
        super(TorchTransformer, self).__init__()
        self.max_seq_len = max_seq_len
        self.qk_dim = qk_dim
        if pos_dim:
            self.pos = nn.Parameter(torch.empty(max_seq_len, pos_dim))
            nn.init.normal_(self.pos)
        else:
            self.pos = None
            pos_dim = 0
        self.Qm = nn.Linear(input_dim + pos_dim, qk_dim, bias=False)
        self.Km = nn.Linear(input_dim + pos_dim, qk_dim, bias=False)
        self.Vm = nn.Linear(input_dim + pos_dim, v_dim, bias=False)

    def forward(self, seq):
        T, _ = seq.shape
        if self.pos is not None:
            if T > self.max_seq_len:
                raise ValueError("sequence too long")
            seq = torch.cat((seq, self.pos[:T, :]), dim=-1)
        Q, K, V = self.Qm(seq), self.Km(seq), self.Vm(seq)
        att = F.softmax(torch.matmul(Q, K.transpose(0, 1)) / (self.qk_dim**0.5), dim=-1)
        return torch.matmul(att, V)
