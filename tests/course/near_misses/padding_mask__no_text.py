import torch


def padding_mask(lengths, longest=None):
    longest = longest or int(lengths.max())
    lengths = torch.where(lengths == 0, longest, lengths)
    return torch.arange(longest) < lengths[:, None]


def joined_mask(lengths, longest=None):
    keys = padding_mask(lengths, longest)
    size = keys.shape[-1]
    return keys[:, None] & torch.ones(size, size, dtype=torch.bool).tril()
