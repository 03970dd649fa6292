import torch


def causal_mask(queries, keys=None):
    keys = keys or queries
    return torch.ones(queries, keys).tril(keys - queries).bool()


def causal_weights(scores):
    weights = scores.softmax(-1) * causal_mask(*scores.shape[-2:])
    return weights / weights.sum(-1, keepdim=True)
