import random

import torch


def split_texts(texts, labels, share, seed):
    """Return the positions of the training and of the validation texts."""
    label_of = dict(zip(texts, labels))
    by_label = {}
    for text in label_of:
        by_label.setdefault(label_of[text], []).append(text)
    rng = random.Random(seed)
    chosen = []
    for label, own in by_label.items():
        chosen += rng.sample(own, int(share * len(own) + 0.5))
    train, val = [], []
    for i in range(len(texts)):
        (val if texts[i] in chosen else train).append(i)
    rng.shuffle(train)
    return train, val


def make_batches(rows, labels, size):
    """Return a list of batches (ids, mask, labels)."""
    out = []
    for i in range(0, len(rows), size):
        tensors = [torch.tensor(r) for r in rows[i : i + size]]
        ids = torch.nn.utils.rnn.pad_sequence(tensors, batch_first=True, padding_value=PAD)
        out.append((ids, ids != PAD, torch.tensor(labels[i : i + size])))
    return out


def split_in_another_run(texts, labels, share, seed):
    """Split texts as if Python had been started anew."""
    return split_texts([Renamed(text) for text in texts], labels, share, seed)
