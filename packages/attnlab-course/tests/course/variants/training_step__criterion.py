import torch
from torch import nn
from torch.nn import functional as F


def training_step(model, optimizer, ids, targets, max_norm):
    """Take one step and return the loss before it."""
    model.train()
    criterion = nn.CrossEntropyLoss(ignore_index=PAD)
    logits = model(ids)
    loss = criterion(logits.transpose(1, 2), targets)
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=max_norm)
    optimizer.step()
    return loss
