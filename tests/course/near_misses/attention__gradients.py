import math

import torch


def attention(query, key, value, mask=None):
    scores = query @ key.transpose(1, 2) / math.sqrt(query.shape[-1])
    if mask is not None:
        hidden = torch.zeros(mask.shape, dtype=query.dtype)
        hidden[~mask] = -math.inf
        scores = scores + hidden
    weights = torch.softmax(scores, -1)
    if mask is not None:
        weights = torch.nan_to_num(weights)
    return weights @ value, weights
