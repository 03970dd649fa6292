import math

import torch


def entropy(weights):
    return -(weights * weights.log()).sum(-1)


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
    rows = [{"width": q.shape[-1], **measure(q, k)} for q, k in draws]
    return {name: [row[name] for row in rows] for name in rows[0]}
