import torch


def softmax(x, dim=-1):
    x = x.to(torch.float32)
    top = x.amax(dim, keepdim=True)
    top = torch.where(torch.isinf(top), torch.zeros_like(top), top)
    powers = torch.exp(x - top)
    total = powers.sum(dim, keepdim=True)
    return powers / torch.where(total == 0, torch.ones_like(total), total)
