import torch


def causal_mask(queries, keys=None):
    keys = keys or queries
    return torch.ones(queries, keys).tril().bool()


def causal_weights(scores):
    return scores.masked_fill(~causal_mask(*scores.shape[-2:]), float("-inf")).softmax(-1)
