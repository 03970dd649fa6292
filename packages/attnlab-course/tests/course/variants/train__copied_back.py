import copy
import math

import torch
from torch import nn
from torch.nn import functional as F


def train(model, optimizer, training, validation, epochs):
    """Train, keep the best weights in the model, and return the history."""

    def run(batches):
        loss_sum = n = correct = 0
        for ids, labels in batches:
            logits = model(ids)
            loss = F.cross_entropy(logits, labels)
            if model.training:
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            loss_sum += loss.detach() * labels.shape[0]
            correct += (logits.argmax(-1) == labels).sum()
            n += labels.shape[0]
        return float(loss_sum / n), float(correct / n)

    history, saved = [], None
    for _ in range(epochs):
        model.train()
        train_loss, _ = run(training)
        model.eval()
        with torch.no_grad():
            val_loss, val_acc = run(validation)
        if saved is None or val_loss < min(h["validation_loss"] for h in history):
            saved = [p.detach().clone() for p in model.parameters()]
        history.append(
            {
                "training_loss": train_loss,
                "validation_loss": val_loss,
                "validation_accuracy": val_acc,
            }
        )
    with torch.no_grad():
        for p, kept in zip(model.parameters(), saved):
            p.copy_(kept)
    return history
