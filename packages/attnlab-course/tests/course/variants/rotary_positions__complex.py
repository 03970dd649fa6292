import torch


def rotate(x, offset=0, base=10000.0):
    half = x.shape[-1] // 2
    wide = x.to(torch.float64)
    z = torch.complex(wide[..., :half].contiguous(), wide[..., half:].contiguous())
    speeds = base ** (-torch.arange(half, dtype=torch.float64) * 2 / x.shape[-1])
    places = torch.arange(x.shape[-2], dtype=torch.float64) + offset
    angle = places.unsqueeze(-1) * speeds
    z = z * torch.polar(torch.ones_like(angle), angle)
    return torch.cat([z.real, z.imag], -1).to(x.dtype)
