import torch


def padding_mask(lengths, longest=None):
    if longest is None:
        longest = lengths.max()
    places = torch.arange(int(longest)).expand(len(lengths), -1)
    return places.lt(lengths.unsqueeze(-1))


def joined_mask(lengths, longest=None):
    keys = padding_mask(lengths, longest)
    place = torch.arange(keys.size(-1))
    past = place.view(1, -1) <= place.view(-1, 1)
    return torch.logical_and(past.unsqueeze(0), keys.unsqueeze(-2))
