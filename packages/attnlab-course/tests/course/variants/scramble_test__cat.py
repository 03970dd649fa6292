import itertools

import torch


def scramble_test(model, source, target):
    """Return the numbers of orders, of the same outputs and of the same logits."""
    n = (source != PAD).sum().item()
    counts = [0, 0, 0]
    want = model(source[None], target[None])
    for p in itertools.permutations(source[:n]):
        s = torch.cat([torch.stack(p), source[n:]])
        got = model(s[None], target[None])
        counts[0] += 1
        if decode(model, s) == decode(model, source):
            counts[1] += 1
        if (got - want).abs().max() <= 1e-6:
            counts[2] += 1
    return tuple(counts)
