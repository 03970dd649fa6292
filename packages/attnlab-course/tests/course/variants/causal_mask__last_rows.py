import torch


def causal_mask(queries, keys=None):
    keys = keys or queries
    whole = torch.triu(torch.ones(keys, keys), diagonal=1) == 0
    return whole[keys - queries :]


def causal_weights(scores):
    queries, keys = scores.shape[-2], scores.shape[-1]
    weights = torch.zeros_like(scores)
    for q in range(queries):
        seen = q + keys - queries + 1
        weights[..., q, :seen] = torch.softmax(scores[..., q, :seen], dim=-1)
    return weights
