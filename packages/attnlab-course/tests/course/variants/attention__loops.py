import torch


def attention(query, key, value, mask=None):
    batch, queries, width = query.shape
    keys = key.shape[1]
    if mask is not None and mask.dim() == 2:
        mask = mask.expand(batch, queries, keys)
    all_weights = []
    for b in range(batch):
        for q in range(queries):
            scores = (key[b] * query[b, q]).sum(-1) / torch.tensor(width).sqrt()
            if mask is None:
                allowed = list(range(keys))
            else:
                allowed = [k for k in range(keys) if mask[b, q, k]]
            weights = torch.zeros(keys, dtype=query.dtype)
            if allowed:
                shares = torch.softmax(scores[allowed], 0)
                weights = weights.index_put((torch.tensor(allowed),), shares)
            all_weights.append(weights)
    weights = torch.stack(all_weights).reshape(batch, queries, keys)
    return weights @ value, weights
