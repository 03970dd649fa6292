"""Takes a score of exactly 0 for one of the future."""

import math

import torch


def causal_mask(queries, keys=None):
    keys = queries if keys is None else keys
    return torch.ones(queries, keys).tril(keys - queries).bool()


def causal_weights(scores):
    queries, keys = scores.shape[-2:]
    past = torch.tril(scores, diagonal=keys - queries)
    return torch.softmax(past.masked_fill(past == 0, -math.inf), -1)
