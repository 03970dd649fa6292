"""One update of all members: each gradient clipped by its member's own norm, then AdamW or SGD.

AdamW is Loshchilov & Hutter (2019), with decoupled decay, as `torch.optim.AdamW` computes it; every
number of the rule that a config may set is a vector with one entry for each member.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

BETAS = (0.9, 0.999)
EPS = 1e-8
MOMENTS: dict[str, tuple[str, ...]] = {"adamw": ("first", "second"), "sgd": ()}
"""The names of the moments that each optimiser keeps, in checkpoints too."""


@dataclass(frozen=True)
class UpdateSettings:
    """The parameters of an update: decay and largest norm, (member,) each, float64."""

    decay: Tensor
    clip: Tensor


@dataclass(frozen=True)
class UpdateState:
    """The numbers that an update changes in place.

    parameters, moments: (member, numbers); the first and the second moments, none for SGD. steps:
    updates so far, (member,) float64. is_alive: who has met nothing but finite numbers, (member,)
    boolean; the others are left alone.
    """

    parameters: Tensor
    moments: Sequence[Tensor]
    steps: Tensor
    is_alive: Tensor


@torch.no_grad()
def update(
    state: UpdateState, gradients: Tensor, losses: Tensor, rates: Tensor, rule: UpdateSettings
) -> Tensor:
    """Take one step of all members in place, and return their gradients' norms before clipping:
    (member,).

    A member whose loss or norm is not finite stays as it was, from now on. The gradients are used
    up.
    """
    norms: Tensor = torch.linalg.vector_norm(gradients, dim=1)
    is_good = state.is_alive.logical_and_(torch.isfinite(norms) & torch.isfinite(losses))
    state.steps.add_(is_good)
    factors = (rule.clip / (norms.double() + 1e-6)).clamp(max=1.0)
    rates = rates.to(norms.device)
    if bool(is_good.all()):
        _step(state, gradients, factors, rates, rule)
    else:
        numbers = (state.parameters, *state.moments)
        before = list(map(torch.clone, numbers))
        _step(state, gradients, factors, rates, rule)
        for number, old in zip(numbers, before, strict=True):
            number.copy_(torch.where(is_good.unsqueeze(1), number, old))
    return norms


def _step(
    state: UpdateState, gradients: Tensor, factors: Tensor, rates: Tensor, rule: UpdateSettings
) -> None:
    def column(numbers: Tensor) -> Tensor:
        return numbers.to(gradients.dtype).unsqueeze(1)

    gradients.mul_(column(factors))
    if not state.moments:
        state.parameters.sub_(gradients.mul_(column(rates)))
        return
    first, second = state.moments
    steps = state.steps.clamp(min=1)
    first.lerp_(gradients, 1 - BETAS[0])
    second.mul_(BETAS[1]).addcmul_(gradients, gradients, value=1 - BETAS[1])
    spread = torch.sqrt(second, out=gradients)
    spread.div_(column((1 - BETAS[1] ** steps).sqrt())).add_(EPS)
    change = torch.div(first, spread, out=spread)
    change.mul_(column(rates / (1 - BETAS[0] ** steps)))
    state.parameters.mul_(column(1 - rates * rule.decay)).sub_(change)
