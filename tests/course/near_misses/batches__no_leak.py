import random

import torch

PAD = 0


def split_texts(texts, labels, share, seed):
    """Return the positions of the training and of the validation texts."""
    rng = random.Random(seed)
    held = []
    for label in sorted(set(labels)):
        own = [n for n, l in enumerate(labels) if l == label]
        rng.shuffle(own)
        held += own[: round(share * len(own))]
    inside = set(held)
    return [n for n in range(len(texts)) if n not in inside], held


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


# Given: leave this cell as it is.
class Renamed(str):
    """A text that Python files elsewhere in a set, as it does with any text in another run."""

    def __hash__(self):
        return hash(("another run", str(self)))


def split_in_another_run(texts, labels, share, seed):
    """Split texts as if Python had been started anew."""
    return split_texts([Renamed(text) for text in texts], labels, share, seed)


def rows_after(rows, labels, size):
    """Make batches, and return the rows as they are afterwards."""
    make_batches(rows, labels, size)
    return rows
