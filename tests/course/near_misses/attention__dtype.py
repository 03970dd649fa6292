import math

import torch


def attention(query, key, value, mask=None):
    query, key, value = query.float(), key.float(), value.float()
    if mask is None:
        mask = torch.ones(query.shape[1], key.shape[1], dtype=torch.bool)
    scores = query @ key.mT / math.sqrt(query.shape[-1])
    weights = scores.masked_fill(~mask, -3e38).softmax(-1).masked_fill(~mask, 0)
    return weights @ value, weights
