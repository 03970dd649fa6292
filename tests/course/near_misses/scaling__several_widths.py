import math

import torch


def entropy(weights):
    return -torch.xlogy(weights, weights).sum(-1)


def measure(query, key):
    scores = query @ key.mT
    scaled = (scores / math.sqrt(query.shape[-1])).softmax(-1)
    bare = scores.softmax(-1)
    return {
        "largest": scaled.amax(-1).mean().item(),
        "entropy": entropy(scaled).mean().item(),
        "largest unscaled": bare.amax(-1).mean().item(),
        "entropy unscaled": entropy(bare).mean().item(),
    }


def scaling(draws):
    rows = {q.shape[-1]: measure(q, k) for q, k in draws}
    answer = {"width": sorted(rows)}
    for name in ("largest", "entropy", "largest unscaled", "entropy unscaled"):
        answer[name] = [rows[width][name] for width in sorted(rows)]
    return answer
