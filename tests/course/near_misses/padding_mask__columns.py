import torch


def padding_mask(lengths, longest=None):
    most = int(lengths.max())
    mask = torch.arange(most) < lengths[:, None]
    return mask[:, :longest]


def joined_mask(lengths, longest=None):
    keys = padding_mask(lengths, longest)
    size = keys.shape[-1]
    return keys[:, None] & torch.ones(size, size, dtype=torch.bool).tril()
