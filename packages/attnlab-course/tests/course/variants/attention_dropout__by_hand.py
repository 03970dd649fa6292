import math

import torch


def attention(query, key, value, mask=None, dropout=0.0):
    dtype = query.dtype
    q, k, v = query.double(), key.double(), value.double()
    scores = torch.matmul(q, k.mT) / math.sqrt(q.shape[-1])
    if mask is None:
        mask = torch.ones(1, 1, dtype=torch.bool)
    mask = mask.expand(scores.shape)
    highest = scores.masked_fill(~mask, -1e300).amax(-1, keepdim=True)
    grown = torch.exp((scores - highest).clamp(max=0)) * mask
    total = grown.sum(-1, keepdim=True)
    weights = grown / total.clamp(min=1e-300)
    used = weights
    if dropout >= 1:
        used = torch.zeros_like(weights)
    elif dropout > 0:
        keep = torch.rand(weights.shape) > dropout
        used = weights * keep / (1 - dropout)
    return (used @ v).to(dtype), weights.to(dtype)
