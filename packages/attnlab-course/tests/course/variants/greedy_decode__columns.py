import torch


def greedy_decode(model, source, start, end, most):
    """Return the tokens written for each source."""
    batch = source.size(0)
    ys = torch.tensor([[start]] * batch)
    results = [[] for _ in range(batch)]
    finished = [False] * batch
    steps = 0
    while steps < most and not all(finished):
        next_ids = model(source, ys).softmax(-1)[:, -1].topk(1).indices
        for b, token in enumerate(next_ids[:, 0].tolist()):
            finished[b] = finished[b] or token == end
            if not finished[b]:
                results[b].append(token)
        ys = torch.hstack([ys, next_ids])
        steps += 1
    return results
