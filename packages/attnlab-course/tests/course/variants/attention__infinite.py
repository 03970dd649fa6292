import math

import torch


def attention(query, key, value, mask=None):
    scores = torch.bmm(query / math.sqrt(query.shape[2]), key.permute(0, 2, 1))
    if mask is not None:
        scores = scores.masked_fill(mask == False, float("-inf"))  # noqa: E712
        dead = ~mask.any(dim=-1, keepdim=True)
        scores = scores.masked_fill(dead, 0.0)
    weights = scores.softmax(dim=2)
    if mask is not None:
        weights = weights.masked_fill(dead, 0.0)
    return torch.bmm(weights, value), weights
