import torch


def padding_mask(lengths, longest=None):
    lengths = lengths.tolist()
    if longest is None:
        longest = max(lengths)
    mask = torch.zeros(len(lengths), longest, dtype=torch.bool)
    for row, length in enumerate(lengths):
        mask[row, :length] = True
    return mask


def joined_mask(lengths, longest=None):
    keys = padding_mask(lengths, longest)
    joined = keys.unsqueeze(1).repeat(1, keys.shape[1], 1)
    for query in range(keys.shape[1]):
        joined[:, query, query + 1 :] = False
    return joined
