import torch


def attention(query, key, value, mask=None):
    width = key.size(-1)
    scores = torch.einsum("bqw,bkw->bqk", query, key) * width**-0.5
    if mask is None:
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool)
    scores = torch.where(mask, scores, torch.full_like(scores, torch.finfo(scores.dtype).min))
    weights = scores.softmax(-1) * mask
    return torch.einsum("bqk,bkv->bqv", weights, value), weights
