"""The sorter as a notebook would write and train it: one small model in plain PyTorch, row after
row, step after step.

Same size and same training as `sorting` by default: 3 letters, 480 parameters, batch 128, warm-up
and cosine, clipping at 1, AdamW. It knows nothing of attnlab.
"""

import math
import random
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

__all__ = ["Sorter", "notebook_steps"]

_LETTERS, _LENGTH, _SEPARATOR = 3, 3, 0


class Gated(nn.Module):
    """A projection of all heads: softmax(A B) times a free matrix."""

    def __init__(self, d_model: int, num_heads: int, rank: int) -> None:
        super().__init__()
        width = d_model // num_heads
        self.a = nn.Parameter(torch.randn(num_heads, d_model, rank) * rank**-0.5)
        self.b = nn.Parameter(torch.randn(num_heads, rank, width) * width**-0.5)
        self.base = nn.Parameter(torch.randn(num_heads, d_model, width) * d_model**-0.5)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, length, d_model) -> (batch, head, length, width)."""
        weight = F.softmax(self.a @ self.b, dim=-1) * self.base
        return x.unsqueeze(1) @ weight


class Sorter(nn.Module):
    """A pre-norm decoder of one block with a tied output."""

    def __init__(self, d_model: int = 6, num_heads: int = 2, d_ff: int = 6, rank: int = 3) -> None:
        super().__init__()
        length = 2 * _LENGTH + 1
        self.tokens = nn.Embedding(_LETTERS + 1, d_model)
        self.positions = nn.Embedding(length, d_model)
        self.norm_attention, self.norm_feed_forward, self.norm = (
            nn.LayerNorm(d_model) for _ in range(3)
        )
        self.query, self.key, self.value = (Gated(d_model, num_heads, rank) for _ in range(3))
        self.output = nn.Linear(d_model, d_model, bias=False)
        self.inner, self.outer = (
            nn.Linear(d_model, d_ff, bias=False),
            nn.Linear(d_ff, d_model, bias=False),
        )
        self.register_buffer("mask", torch.tril(torch.ones(length, length)))

    def forward(self, ids: Tensor) -> Tensor:
        """(batch, length) -> logits (batch, length, vocabulary)."""
        batch, length = ids.shape
        x = self.tokens(ids) + self.positions(torch.arange(length))
        read = self.norm_attention(x)
        query, key, value = self.query(read), self.key(read), self.value(read)
        scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])
        scores = scores.masked_fill(self.mask[:length, :length] == 0, float("-inf"))
        heads = F.softmax(scores, dim=-1) @ value
        x = x + self.output(heads.transpose(1, 2).reshape(batch, length, -1))
        x = x + self.outer(F.relu(self.inner(self.norm_feed_forward(x))))
        return self.norm(x) @ self.tokens.weight.T


def notebook_steps(*, steps: int = 15_000, batch_size: int = 128) -> Callable[[int], None]:
    """Return what takes so many steps of the training, going on where it stopped."""
    torch.manual_seed(0)
    model, source = Sorter(), random.Random(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)

    def rate(step: int) -> float:
        if step < 500:
            return (step + 1) / 500
        return 0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * (step - 500) / (steps - 500)))

    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)

    def draw() -> Tensor:
        rows = []
        for _ in range(batch_size):
            letters = [source.randint(1, _LETTERS) for _ in range(_LENGTH)]
            rows.append([*letters, _SEPARATOR, *sorted(letters)])
        return torch.tensor(rows)

    def take(count: int) -> None:
        for _ in range(count):
            rows = draw()
            logits = model(rows[:, :-1])
            loss = F.cross_entropy(logits.reshape(-1, _LETTERS + 1), rows[:, 1:].reshape(-1))
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()

    return take
