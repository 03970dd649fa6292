"""Takes a score of exactly 0 for a masked one."""

import math

import torch


def attention(query, key, value, mask=None, dropout=0.0):
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])
    if mask is not None:
        scores = scores * mask
        scores = scores.masked_fill(scores == 0, -math.inf)
    weights = torch.softmax(scores, dim=-1).nan_to_num(0.0)
    return torch.nn.functional.dropout(weights, dropout) @ value, weights
