import itertools

import torch


def scramble_test(model, source, target):
    """Return the numbers of orders, of the same outputs and of the same logits."""
    tokens = source[source != PAD].tolist()
    pads = [PAD] * (len(source) - len(tokens))

    def all_orders(left):
        if not left:
            return [[]]
        return [
            [t] + rest for i, t in enumerate(left) for rest in all_orders(left[:i] + left[i + 1 :])
        ]

    out, logits = decode(model, source), model(source.unsqueeze(0), target.unsqueeze(0))
    results = []
    for order in all_orders(tokens):
        new = torch.tensor(order + pads)
        now = model(new.unsqueeze(0), target.unsqueeze(0))
        results.append(
            (decode(model, new) == out, torch.allclose(now, logits, rtol=1e-6, atol=1e-6))
        )
    return len(results), sum(r[0] for r in results), sum(r[1] for r in results)
