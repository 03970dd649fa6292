import torch
from torch import nn
from torch.nn import functional as F

PAD = 0


# Given: leave this cell as it is. The checks start from known parameters.
class TinyModel(nn.Module):
    """Give each token logits by itself. In training mode `drop` blanks every second column.

    `asked` counts how often it was asked.
    """

    def __init__(self, vocab_size, width, drop=False):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, width)
        self.output = nn.Linear(width, vocab_size)
        self.drop = drop
        self.asked = 0

    def forward(self, ids):
        """Return logits (batch, length, vocabulary) for ids (batch, length)."""
        self.asked += 1
        hidden = self.embedding(ids)
        if self.training and self.drop:
            hidden = hidden * (torch.arange(hidden.shape[-1]) % 2)
        return self.output(hidden)


def take_steps(model, ids, targets, max_norm, rate, steps, left_over=False):
    """Take some steps with your function; return what came of them.

    These are the losses, the parameters afterwards, and how often the model was asked.
    """
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    if left_over:
        model(ids).square().sum().backward()
    model.asked = 0
    losses = [training_step(model, optimizer, ids, targets, max_norm) for _ in range(steps)]
    losses = [float(torch.as_tensor(loss).detach()) for loss in losses]
    return losses, dict(model.named_parameters()), model.asked


def training_step(model, optimizer, ids, targets, max_norm):
    """Take one step and return the loss before it."""
    optimizer.zero_grad()
    loss = F.cross_entropy(model(ids).transpose(1, 2), targets, ignore_index=PAD)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), max_norm)
    optimizer.step()
    return loss.item()
