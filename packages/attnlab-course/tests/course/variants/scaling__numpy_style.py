import torch


def entropy(weights):
    safe = torch.where(weights > 0, weights, torch.ones_like(weights))
    return -(weights * torch.log(safe)).sum(-1)


def _means(scores):
    weights = scores.softmax(-1)
    return weights.max(-1).values.mean().item(), entropy(weights).mean().item()


def measure(query, key):
    scores = torch.einsum("dqw,dkw->dqk", query, key)
    largest, mean_entropy = _means(scores * query.shape[-1] ** -0.5)
    bare_largest, bare_entropy = _means(scores)
    return {
        "largest unscaled": bare_largest,
        "entropy unscaled": bare_entropy,
        "largest": largest,
        "entropy": mean_entropy,
    }


def scaling(draws):
    names = ["largest", "entropy", "largest unscaled", "entropy unscaled"]
    every = [measure(*pair) for pair in draws]
    return {
        "width": [query.size(2) for query, _ in draws],
        **{name: [each[name] for each in every] for name in names},
    }
