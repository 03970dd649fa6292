import torch


def greedy_decode(model, source, start, end, most):
    """Return the tokens written for each source."""
    texts = []
    for row in source:
        ids = [start]
        while len(ids) <= most:
            logits = model(row[None], torch.tensor([ids]))
            token = logits[0, -1].argmax().item()
            if token == end:
                break
            ids.append(token)
        texts.append(ids[1:])
    return texts
