"""Takes a score of exactly 0 for a masked one."""

import math

import torch


def attention(query, key, value, mask=None):
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])
    if mask is None:
        weights = scores.softmax(-1)
    else:
        scores = scores * mask
        scores = scores.masked_fill(scores == 0, -math.inf)
        dead = torch.isinf(scores).all(-1, keepdim=True)
        weights = scores.masked_fill(dead, 0).softmax(-1).masked_fill(dead, 0)
    return weights @ value, weights
