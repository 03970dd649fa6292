import math

import torch


def entropy(weights):
    return torch.special.entr(weights).sum(dim=-1)


def measure(query, key):
    answer = {}
    for name, divisor in (("", math.sqrt(query.shape[-1])), (" unscaled", 1)):
        weights = torch.softmax(query @ key.transpose(1, 2) / divisor, dim=2)
        answer["largest" + name] = torch.max(weights, dim=2)[0].mean()
        answer["entropy" + name] = entropy(weights).mean()
    return answer


def scaling(draws):
    result = {"width": [], "largest": [], "entropy": []}
    result["largest unscaled"] = []
    result["entropy unscaled"] = []
    for query, key in draws:
        numbers = measure(query, key)
        numbers["width"] = query.shape[2]
        for name in result:
            result[name].append(numbers[name])
    return result
