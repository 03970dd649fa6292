import torch


def rotate_half(x):
    x1, x2 = x.chunk(2, dim=-1)
    return torch.cat((-x2, x1), dim=-1)


def rotate(x, offset=0, base=10000.0):
    T, d = x.size(-2), x.size(-1)
    inv_freq = 1.0 / base ** (torch.arange(0, d, 2).float() / d)
    t = torch.arange(T).float() + offset
    freqs = torch.outer(t, inv_freq)
    emb = torch.cat((freqs, freqs), dim=-1)
    return x * emb.cos().to(x.dtype) + rotate_half(x) * emb.sin().to(x.dtype)
