import random

import torch

PAD = 0


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
    for i in range(len(rows) // size):
        part = rows[i * size : (i + 1) * size]
        n = max(map(len, part))
        ids = torch.tensor([r + [PAD] * (n - len(r)) for r in part])
        result.append((ids, ids != PAD, torch.tensor(labels[i * size : (i + 1) * size])))
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
