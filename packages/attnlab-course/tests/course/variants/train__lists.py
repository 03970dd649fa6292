import copy
import math

import torch
from torch import nn
from torch.nn import functional as F


def train(model, optimizer, training, validation, epochs):
    """Train, keep the best weights in the model, and return the history."""
    criterion = nn.CrossEntropyLoss(reduction="none")
    history = []
    best = (float("inf"), None)
    for epoch in range(epochs):
        model.train()
        losses = []
        for ids, labels in training:
            each = criterion(model(ids), labels)
            optimizer.zero_grad()
            each.mean().backward()
            optimizer.step()
            losses += each.tolist()
        model.eval()
        val_losses, hits = [], []
        with torch.inference_mode():
            for ids, labels in validation:
                logits = model(ids)
                val_losses += criterion(logits, labels).tolist()
                hits += (logits.argmax(1) == labels).tolist()
        val_loss = sum(val_losses) / len(val_losses)
        history.append(
            dict(
                training_loss=sum(losses) / len(losses),
                validation_loss=val_loss,
                validation_accuracy=sum(hits) / len(hits),
            )
        )
        if val_loss < best[0]:
            best = (val_loss, {k: v.clone() for k, v in model.state_dict().items()})
    model.load_state_dict(best[1])
    return history
