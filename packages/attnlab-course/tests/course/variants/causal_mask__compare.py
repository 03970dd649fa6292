import torch


def causal_mask(queries, keys=None):
    if keys is None:
        keys = queries
    query_place = torch.arange(keys - queries, keys)[:, None]
    key_place = torch.arange(keys)[None, :]
    return key_place <= query_place


def causal_weights(scores):
    allowed = causal_mask(scores.size(-2), scores.size(-1))
    masked = torch.where(allowed, scores, torch.tensor(float("-inf"), dtype=scores.dtype))
    return masked.softmax(-1)
