import torch


def softmax(x, dim=-1):
    """exp(x - log sum exp x), with the log of the sum written out."""
    top = x.max(dim, keepdim=True).values.detach()
    top = torch.where(torch.isinf(top), torch.zeros_like(top), top)
    log_total = top + (x - top).exp().sum(dim, keepdim=True).log()
    shares = (x - log_total).exp()
    everything_masked = torch.isinf(x).all(dim, keepdim=True)
    return torch.where(everything_masked, torch.zeros_like(shares), shares)
