"""A trial before a training: does a layout compute the losses and the gradient that PyTorch
computes?

What records, rewrites or compiles a step could get it wrong in silence. So each such layout takes
one step first, on the first batch. The loss of every member and the gradient of one are held
against autograd's, and the step is taken back. What a recorded step could not follow (a loss that
differs from call to call, a model that notes something down) is refused before.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from attnlab.errors import WrongUsage
from attnlab.train.config import TrainConfig
from attnlab.train.faults import is_finite
from attnlab.train.layouts.blocks import one_dtype
from attnlab.train.layouts.layout import Batch, Layout, Loss, NotExpressible
from attnlab.train.layouts.update import BETAS
from attnlab.train.layouts.vmap import frame_of

_TOLERANCE = 1e-3  # of the gradient's norm; in float64 another
_TOLERANCE_64 = 1e-8


@dataclass(frozen=True)
class ExpectedGradients:
    """Autograd's results on the first batch: each member's loss, and the gradient of one member,
    with its place.

    place is None if no member's is finite: the training itself will say so.
    """

    losses: Tensor
    place: int | None
    gradients: dict[str, Tensor]


def expected_of(
    models: Sequence[nn.Module], configs: Sequence[TrainConfig], loss: Loss, batch: Batch
) -> ExpectedGradients:
    """Compute the results that every layout must reproduce; the models are left as they are.

    Raises:
        NotExpressible: no layout could follow this loss or these models but one that calls them
            anew each step.
    """
    one_dtype(models)
    frames = list(map(frame_of, models))
    with torch.no_grad():
        losses = torch.stack([loss(frame, *batch) for frame in frames])
        again = loss(frames[0], *batch)
    now = _noted(frames[0])
    for name, value in _noted(models[0]).items():
        if not _same(value, now.get(name)):
            raise NotExpressible(f"the loss changes {name}")
    if not torch.equal(again.nan_to_num(), losses[0].nan_to_num()):
        raise NotExpressible("the loss is not the same when it is computed twice")
    for place, frame in enumerate(frames):
        if not bool(torch.isfinite(losses[place])):
            continue
        gradients = _by_autograd(frame, configs, loss, batch)
        if all(map(is_finite, gradients.values())):
            return ExpectedGradients(losses, place, gradients)
    return ExpectedGradients(losses, None, {})


def tried(
    layout: Layout, configs: Sequence[TrainConfig], batch: Batch, expected: ExpectedGradients
) -> Layout:
    """Return the layout, unchanged, if its first step is right.

    Raises:
        NotExpressible: it is not.
    """
    before = layout.state()
    batches = [tuple(part.unsqueeze(0) for part in batch)] * len(configs)
    rates = torch.ones(1, len(configs), dtype=torch.float64)
    try:
        losses = layout.advance(batches, rates, 0, lambda: False).losses[0].double()
    except WrongUsage as reason:
        raise NotExpressible(str(reason).rstrip(".")) from None
    after = layout.state()
    layout.load_state(before)
    allowed = _TOLERANCE_64 if expected.losses.dtype == torch.float64 else _TOLERANCE
    wanted = expected.losses.cpu().double()
    off = ((losses - wanted).abs() / (wanted.abs() + 1e-6)).where(torch.isfinite(wanted), 0.0)
    off[torch.isfinite(losses) != torch.isfinite(wanted)] = math.inf
    off = off.nan_to_num(math.inf)
    difference = _apart(before, after, configs, expected)
    if not (float(off.max()) <= allowed and difference <= allowed):
        member = int(off.argmax())
        raise NotExpressible(
            f"its first step differs from PyTorch's (loss {float(losses[member]):g} for "
            f"{float(wanted[member]):g} in member {member}, gradient by {difference:.1e}): it is "
            "a fault of attnlab's own, unless the members differ in more than their parameters "
            "and buffers"
        )
    return layout


def _apart(
    before: dict[str, Tensor],
    after: dict[str, Tensor],
    configs: Sequence[TrainConfig],
    expected: ExpectedGradients,
) -> float:
    """Return the difference of the gradient that a step followed from autograd's, as a share of its
    norm."""
    place = expected.place
    if place is None:
        return 0.0
    flat = list(map(torch.flatten, expected.gradients.values()))
    norm = float(torch.cat(flat).double().norm())
    factor = min(1.0, configs[place].clip / (norm + 1e-6))
    apart = torch.zeros((), dtype=torch.float64)
    for name, gradient in expected.gradients.items():
        if configs[0].optimiser == "sgd":
            step_taken = before[f"model.{name}"][place] - after[f"model.{name}"][place]
        else:
            step_taken = after[f"first.{name}"][place] / (1 - BETAS[0])
        apart += (step_taken.double() - gradient.double() * factor).square().sum().cpu()
    return float(apart.sqrt() / (norm * factor + 1e-6))


def _by_autograd(
    frame: nn.Module, configs: Sequence[TrainConfig], loss: Loss, batch: Batch
) -> dict[str, Tensor]:
    named = dict(frame.named_parameters())
    with torch.enable_grad():
        grads = torch.autograd.grad(loss(frame, *batch), list(named.values()), allow_unused=True)
    decays = configs[0].optimiser == "adamw" and any(config.weight_decay for config in configs)
    gradients = dict(zip(named, grads, strict=True))
    for name, gradient in gradients.items():
        if gradient is None and decays:
            # PyTorch's optimisers leave it alone; members side by side would let it decay.
            raise NotExpressible(
                f"the loss does not depend on the parameter {name}, which would decay all the same"
            )
        if gradient is None:
            gradients[name] = torch.zeros_like(named[name])
    return gradients


def _noted(model: nn.Module) -> dict[str, object]:
    """Return what a model could change in a step: its buffers, and the numbers that its parts
    hold."""
    noted: dict[str, object] = {
        f"the buffer {name}": buffer for name, buffer in model.named_buffers()
    }
    for path, part in model.named_modules():
        for name, value in vars(part).items():
            if isinstance(value, int | float) and name != "training":
                noted[f"the attribute {f'{path}.{name}'.lstrip('.')}"] = value
    return noted


def _same(a: object, b: object) -> bool:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return a.shape == b.shape and torch.equal(a.nan_to_num(), b.nan_to_num())
    return a == b
