import torch


def normalize_rms(x, weight, eps=1e-6):
    wide = x.to(torch.float64)
    length = torch.linalg.vector_norm(wide, dim=-1, keepdim=True)
    root = torch.sqrt(length * length / x.shape[-1] + eps)
    return (wide / root * weight.double()).type_as(x)
