import torch
from torch import nn
from torch.nn import functional as F


def training_step(model, optimizer, ids, targets, max_norm):
    """Take one step and return the loss before it."""
    model.train()
    for p in model.parameters():
        p.grad = None
    log_p = model(ids).log_softmax(-1)
    picked = log_p.gather(-1, targets[..., None]).squeeze(-1)
    loss = -picked[targets != PAD].mean()
    loss.backward()
    norm = torch.sqrt(sum((p.grad**2).sum() for p in model.parameters()))
    if norm > max_norm:
        for p in model.parameters():
            p.grad *= max_norm / norm
    optimizer.step()
    return float(loss.detach())
