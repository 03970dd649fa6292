"""One update of all members: each gradient clipped by its member's own norm, then AdamW or SGD.

AdamW is Loshchilov & Hutter (2019), with decoupled decay, as `torch.optim.AdamW` computes it; every
number of the rule that a config may set is a vector with one entry for each member.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from attnlab.train.config import TrainConfig

__all__ = ["BETAS", "EPS", "Rule", "State", "update"]

BETAS = (0.9, 0.999)
EPS = 1e-8

_LONG = 4_096  # from so many numbers on, a member is worth a call of PyTorch's fused AdamW


class Rule(NamedTuple):
    """The parameters of an update from the configs: decay and largest norm, (member,) each,
    float64."""

    is_sgd: bool
    decay: Tensor
    clip: Tensor

    @classmethod
    def of(cls, configs: Sequence[TrainConfig], device: torch.device) -> "Rule":
        """Read the rule from the members' configs, which name one optimizer."""
        numbers = torch.tensor(
            [[config.weight_decay, config.clip] for config in configs], dtype=torch.float64
        )
        return cls(configs[0].optimiser == "sgd", *numbers.to(device).unbind(1))

    def rows(self, members: Tensor) -> "Rule":
        """Return the rule of some members."""
        return self._replace(decay=self.decay[members], clip=self.clip[members])


class State(NamedTuple):
    """The numbers that an update changes in place.

    parameters, first, second: (member, numbers); the moments are (member, 0) for SGD. steps:
    updates so far, (member,). is_alive: who has met nothing but finite numbers, (member,) boolean;
    the others are left alone.
    """

    parameters: Tensor
    first: Tensor
    second: Tensor
    steps: Tensor
    is_alive: Tensor

    @classmethod
    def fresh(cls, parameters: Tensor, *, is_sgd: bool) -> "State":
        """Start with moments of zero."""
        first, second = (
            torch.zeros_like(parameters[:, :0] if is_sgd else parameters) for _ in range(2)
        )
        count, device = len(parameters), parameters.device
        return cls(
            parameters,
            first,
            second,
            torch.zeros(count, dtype=torch.int64, device=device),
            torch.ones(count, dtype=torch.bool, device=device),
        )

    def rows(self, members: Tensor | slice) -> "State":
        """Return some members: a copy, or for a slice a view."""
        return State(*(each[members] for each in self))


@torch.no_grad()
def update(state: State, gradients: Tensor, losses: Tensor, rates: Tensor, rule: Rule) -> Tensor:
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
    is_long = gradients.shape[1] >= _LONG and gradients.stride(1) == 1
    if is_long and gradients.device.type == "cpu" and not rule.is_sgd:
        _one_by_one(state, gradients, factors, rates, rule)
    elif bool(is_good.all()):
        _all_at_once(state, gradients, factors, rates, rule)
    else:
        before = [each.clone() for each in state[:3]]
        _all_at_once(state, gradients, factors, rates, rule)
        for each, old in zip(state[:3], before, strict=True):
            each.copy_(torch.where(is_good.unsqueeze(1), each, old))
    return norms


def _all_at_once(
    state: State, gradients: Tensor, factors: Tensor, rates: Tensor, rule: Rule
) -> None:
    def column(numbers: Tensor) -> Tensor:
        return numbers.to(gradients.dtype).unsqueeze(1)

    gradients.mul_(column(factors))
    if rule.is_sgd:
        state.parameters.sub_(gradients.mul_(column(rates)))
        return
    steps = state.steps.clamp(min=1).double()
    state.first.lerp_(gradients, 1 - BETAS[0])
    state.second.mul_(BETAS[1]).addcmul_(gradients, gradients, value=1 - BETAS[1])
    spread = (
        torch.sqrt(state.second, out=gradients)
        .div_(column((1 - BETAS[1] ** steps).sqrt()))
        .add_(EPS)
    )
    change = torch.div(state.first, spread, out=spread).mul_(
        column(rates / (1 - BETAS[0] ** steps))
    )
    state.parameters.mul_(column(1 - rates * rule.decay)).sub_(change)


def _one_by_one(
    state: State, gradients: Tensor, factors: Tensor, rates: Tensor, rule: Rule
) -> None:
    numbers = torch.stack([factors, rates, rule.decay], 1).tolist()
    for member, (factor, rate, decay) in enumerate(numbers):
        if not state.is_alive[member]:
            continue
        if factor < 1.0:
            gradients[member].mul_(factor)
        torch._fused_adamw_(
            [state.parameters[member]],
            [gradients[member]],
            [state.first[member]],
            [state.second[member]],
            [],
            [state.steps[member].float()],
            lr=rate,
            beta1=BETAS[0],
            beta2=BETAS[1],
            weight_decay=decay,
            eps=EPS,
            amsgrad=False,
            maximize=False,
        )
