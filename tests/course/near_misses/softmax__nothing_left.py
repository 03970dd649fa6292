import torch


def softmax(x, dim=-1):
    top = x.max(dim=dim, keepdim=True)[0]
    powers = torch.exp(x - top)
    return powers / powers.sum(dim=dim, keepdim=True)
