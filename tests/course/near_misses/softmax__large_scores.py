import torch


def softmax(x, dim=-1):
    # fine for everything that a float can raise e to, and for low scores through float64
    shift = x.amax(dim, keepdim=True).clamp(max=0)
    shift = torch.where(torch.isinf(shift), torch.zeros_like(shift), shift)
    powers = torch.exp(x - shift)
    total = powers.sum(dim, keepdim=True)
    return powers / torch.where(total == 0, torch.ones_like(total), total)
