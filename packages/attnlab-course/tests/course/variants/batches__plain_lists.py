import random

import torch


def split_texts(texts, labels, share, seed):
    """Return the positions of the training and of the validation texts."""
    g = torch.Generator().manual_seed(seed)
    validation_texts = set()
    for label in set(labels):
        own = []
        for text, l in zip(texts, labels):
            if l == label and text not in own:
                own.append(text)
        order = torch.randperm(len(own), generator=g).tolist()
        for n in order[: round(len(own) * share)]:
            validation_texts.add(own[n])
    val = [i for i, t in enumerate(texts) if t in validation_texts]
    return [i for i in range(len(texts)) if i not in set(val)], val


def make_batches(rows, labels, size):
    """Return a list of batches (ids, mask, labels)."""
    result = []
    i = 0
    while i < len(rows):
        part = rows[i : i + size]
        n = max(map(len, part))
        lengths = torch.tensor([len(r) for r in part])
        ids = torch.tensor([r + [PAD] * (n - len(r)) for r in part])
        mask = torch.arange(n)[None] < lengths[:, None]
        result.append([ids, mask, torch.LongTensor(labels[i : i + size])])
        i += size
    return result


def split_in_another_run(texts, labels, share, seed):
    """Split texts as if Python had been started anew."""
    return split_texts([Renamed(text) for text in texts], labels, share, seed)
