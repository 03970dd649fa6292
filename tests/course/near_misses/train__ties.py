import copy
import math

import torch
from torch import nn
from torch.nn import functional as F


# Given: leave this cell as it is. The model notes how it was asked.
class TextModel(nn.Module):
    """Classify texts by the mean of their embeddings."""

    def __init__(self, vocab_size, width, classes):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, width)
        self.output = nn.Linear(width, classes)
        self.asked = []

    def forward(self, ids):
        """Return logits (batch, classes) for ids (batch, length)."""
        self.asked.append([self.training, torch.is_grad_enabled()])
        return self.output(self.embedding(ids).mean(dim=1))

    def load_state_dict(self, *args, **settings):
        """Load parameters, and note that some were loaded."""
        self.is_loaded = True
        return super().load_state_dict(*args, **settings)


def run_training(model, training, validation, epochs, rate):
    """Call your function; return its history, the parameters and how the model was used."""
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    model.is_loaded = False
    history = train(model, optimizer, training, validation, epochs)
    return history, dict(model.named_parameters()), model.asked, model.is_loaded


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
        if val_loss <= best[0]:
            best = (val_loss, {k: v.clone() for k, v in model.state_dict().items()})
    model.load_state_dict(best[1])
    return history
