import math

import torch


def attention(query, key, value, mask=None):
    scores = query @ key.transpose(1, 2) / math.sqrt(query.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
        if not torch.is_grad_enabled() or not scores.requires_grad:
            weights = torch.softmax(scores, -1)
            return weights @ value, weights
    weights = torch.softmax(scores, -1)
    if mask is not None:
        weights = weights * mask
    return weights @ value, weights
