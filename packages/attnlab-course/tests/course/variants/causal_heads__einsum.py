import torch
import torch.nn.functional as F


def causal_heads(x, query, key, value, output, heads):
    length, width = x.shape[-2], x.shape[-1]
    batch = x.shape[:-2]
    flat = x.reshape(-1, length, width)
    q = F.linear(flat, query).reshape(-1, length, heads, width // heads)
    k = F.linear(flat, key).reshape(-1, length, heads, width // heads)
    v = F.linear(flat, value).reshape(-1, length, heads, width // heads)
    s = torch.einsum("bqhd,bkhd->bhqk", q, k) / (width // heads) ** 0.5
    future = torch.full((length, length), float("-inf"), dtype=x.dtype).triu(1)
    s = s + future
    s = s - s.amax(-1, keepdim=True)
    w = s.exp() / s.exp().sum(-1, keepdim=True)
    mixed = torch.einsum("bhqk,bkhd->bqhd", w, v).flatten(2)
    return F.linear(mixed, output).reshape(*batch, length, width)
