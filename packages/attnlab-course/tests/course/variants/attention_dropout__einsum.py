import torch
import torch.nn.functional as F


def attention(query, key, value, mask=None, dropout=0.0):
    d_k = query.size(-1)
    scores = torch.einsum("...qd,...kd->...qk", query, key) / d_k**0.5
    if mask is not None:
        scores = torch.where(mask, scores, torch.tensor(float("-inf"), dtype=scores.dtype))
    weights = F.softmax(scores, dim=-1)
    if mask is not None:
        weights = torch.where(mask.any(dim=-1, keepdim=True), weights, torch.zeros_like(weights))
    dropped = F.dropout(weights, p=dropout, training=True)
    return torch.matmul(dropped, value), weights
