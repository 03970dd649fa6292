"""A trial before a training begins: does a layout compute the gradient that PyTorch computes?

What records, rewrites or compiles a step could get it wrong in silence. So each such layout takes one step first, on
the first batch; the first member's loss and gradient are held against autograd's, and the step is taken back.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from attnlab.parts.attend import trusted_numbers
from attnlab.train.config import TrainConfig
from attnlab.train.layouts.layout import Batch, Layout, Loss, NotExpressible
from attnlab.train.layouts.update import BETAS

__all__ = ["tried"]

_TOLERANCE = {torch.float64: 1e-8}  # of the gradient's norm
_TOLERANCE_ELSE = 1e-3


def tried(
    layout: Layout, models: Sequence[nn.Module], configs: Sequence[TrainConfig], loss: Loss, batch: Batch
) -> Layout:
    """Return the layout, as it was, if its first step is right.

    Raises:
        NotExpressible: it is not.
    """
    value, gradients = _by_autograd(models[0], loss, batch)
    norm = torch.cat([each.flatten() for each in gradients.values()]).double().norm()
    if not bool(torch.isfinite(value) & torch.isfinite(norm)):
        return layout  # the training itself will say so
    before = layout.state()
    batches = [tuple(part.unsqueeze(0) for part in batch)] * len(models)
    rates = torch.ones(1, len(models), dtype=torch.float64)
    progress = layout.advance(batches, rates, 0, lambda: False)
    after = layout.state()
    layout.load_state(before)
    factor = min(1.0, configs[0].clip / (float(norm) + 1e-6))
    apart = torch.zeros((), dtype=torch.float64)
    for name, gradient in gradients.items():
        if configs[0].optimiser == "sgd":
            found = before[f"model.{name}"][0] - after[f"model.{name}"][0]
        else:
            found = after[f"first.{name}"][0] / (1 - BETAS[0])
        apart += (found.double() - gradient.double() * factor).square().sum()
    allowed = _TOLERANCE.get(value.dtype, _TOLERANCE_ELSE)
    difference = float(apart.sqrt() / (norm * factor + 1e-6))
    off = abs(float(progress.losses[0, 0]) - float(value)) / (abs(float(value)) + 1e-6)
    if not max(difference, off) <= allowed:
        raise NotExpressible(
            f"its first step differs from PyTorch's (loss by {off:.1e}, gradient by {difference:.1e}), "
            "which is a fault of attnlab's own"
        )
    return layout


def _by_autograd(model: nn.Module, loss: Loss, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
    was_training = model.training
    model.train()
    named = dict(model.named_parameters())
    with torch.enable_grad(), trusted_numbers():
        value = loss(model, *batch)
        found = torch.autograd.grad(value, list(named.values()), allow_unused=True)
    model.train(was_training)
    gradients = {
        name: torch.zeros_like(p) if each is None else each
        for (name, p), each in zip(named.items(), found, strict=True)
    }
    return value.detach(), gradients
