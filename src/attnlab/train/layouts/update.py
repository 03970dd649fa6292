"""One update of all members: each gradient clipped by its member's own norm, then AdamW or SGD.

AdamW is Loshchilov & Hutter (2019), with decoupled decay, as `torch.optim.AdamW` computes it; every
number of the rule that a config may set is a vector with one entry for each member.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from attnlab.train.config import TrainConfig

BETAS = (0.9, 0.999)
EPS = 1e-8


@dataclass(frozen=True)
class Rule:
    """The parameters of an update from the configs: decay and largest norm, (member,) each,
    float64."""

    is_sgd: bool
    decay: Tensor
    clip: Tensor

    @classmethod
    def of(cls, configs: Sequence[TrainConfig], device: torch.device) -> "Rule":
        """Read the rule from the members' configs, which name one optimizer."""
        decay = torch.tensor([config.weight_decay for config in configs], dtype=torch.float64)
        clip = torch.tensor([config.clip for config in configs], dtype=torch.float64)
        return cls(configs[0].optimiser == "sgd", decay.to(device), clip.to(device))

    def rows(self, members: Tensor) -> "Rule":
        """Return the rule of some members."""
        return Rule(self.is_sgd, self.decay[members], self.clip[members])


@dataclass(frozen=True)
class State:
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
        moments = torch.zeros_like(parameters[:, :0] if is_sgd else parameters)
        steps = torch.zeros(len(parameters), dtype=torch.int64, device=parameters.device)
        return cls(parameters, moments, moments.clone(), steps, torch.ones_like(steps).bool())

    def tensors(self) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Return all of them."""
        return self.parameters, self.first, self.second, self.steps, self.is_alive

    def rows(self, members: Tensor, parameters: Tensor) -> "State":
        """Return copies of some members' numbers, but for their parameters, which are given; the
        moments lie in memory as these do."""
        first, second = self.first[members], self.second[members]
        if parameters.stride(0) == 1:  # members innermost
            first, second = first.T.contiguous().T, second.T.contiguous().T
        return State(parameters, first, second, self.steps[members], self.is_alive[members])


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
    if bool(is_good.all()):
        _step(state, gradients, factors, rates, rule)
    else:
        numbers = (state.parameters, state.first, state.second)
        before = [each.clone() for each in numbers]
        _step(state, gradients, factors, rates, rule)
        for each, old in zip(numbers, before, strict=True):
            each.copy_(torch.where(is_good.unsqueeze(1), each, old))
    return norms


def _step(state: State, gradients: Tensor, factors: Tensor, rates: Tensor, rule: Rule) -> None:
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
