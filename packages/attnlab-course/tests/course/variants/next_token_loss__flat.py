import numpy as np
import torch


def next_token_loss(logits, tokens, padding=None):
    V = logits.size(-1)
    flat = logits[:, :-1, :].reshape(-1, V)
    target = tokens[:, 1:].reshape(-1)
    if padding is None:
        keep = torch.full(target.shape, True)
    else:
        keep = target.ne(padding)
    flat, target = flat[keep], target[keep]
    if target.numel() == 0:
        return logits.sum() * 0
    top = flat.max(dim=1, keepdim=True).values
    lse = (flat - top).exp().sum(1).log() + top[:, 0]
    return (lse - flat[torch.arange(len(target)), target]).mean()


def loss_floor(num_letters, num_free, row_length):
    return float(np.log(num_letters)) * (num_free - 1) / (row_length - 1)
