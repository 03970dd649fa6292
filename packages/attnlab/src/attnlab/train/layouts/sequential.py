"""One after the other: each member by itself, through torch's own autograd and optimisers. Anything
goes here: dropout, running statistics, batches of any shape, Python that looks at the numbers.
"""

import math
from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor, nn

from attnlab import seeds
from attnlab.train.config import TrainConfig
from attnlab.train.layouts.layout import Batch, Batches, Loss, StepResults

_KEYS = {"first": "exp_avg", "second": "exp_avg_sq"}
"""Torch's names of the moments."""


class Sequential:
    """Members that are trained one after another, in place."""

    name, is_compiled = "sequential", False

    def __init__(
        self,
        models: Sequence[nn.Module],
        configs: Sequence[TrainConfig],
        loss: Loss,
        noise: Sequence[int],
    ) -> None:
        """Begin with the models' weights.

        Args:
            models: the members, trained in place, with their `configs` and `noise`, seeds of
                dropout.
            loss: of one model on one batch.
        """
        self._models, self._loss, self._noise = models, loss, noise
        self._clips = [config.clip for config in configs]
        self._optimisers = []
        for model, config in zip(models, configs, strict=True):
            self._optimisers.append(make_optimiser(model.parameters(), config))
        self._is_noisy = any(map(makes_noise, models[0].modules()))
        self._is_alive = [True] * len(models)

    def advance(
        self, batches: Sequence[Batches], rates: Tensor, first: int, should_stop: Callable[[], bool]
    ) -> StepResults:
        """Take the steps; it may stop after every step of every member."""
        losses, norms = [], []
        for index, row in enumerate(rates.tolist()):
            results = []
            for member, rate in enumerate(row):
                batch = batch_of(batches[member], index)
                results.append(self._step(member, batch, rate, first + index))
            own_losses, own_norms = zip(*results, strict=True)
            losses.append(torch.stack(own_losses))
            norms.append(torch.stack(own_norms))
            if should_stop() or not any(self._is_alive):
                break
        return StepResults(torch.stack(losses), torch.stack(norms))

    def _step(self, member: int, batch: Batch, rate: float, step: int) -> tuple[Tensor, Tensor]:
        if not self._is_alive[member]:
            return torch.tensor(math.nan), torch.tensor(math.nan)
        model, optimiser = self._models[member], self._optimisers[member]
        model.train()
        for group in optimiser.param_groups:
            group["lr"] = rate
        optimiser.zero_grad(set_to_none=True)
        if self._is_noisy:
            with seeds.isolated(self._noise[member], "noise", step):
                loss = self._loss(model, *batch)
        else:
            loss = self._loss(model, *batch)
        loss.backward()  # type: ignore[no-untyped-call]
        norm = nn.utils.clip_grad_norm_(model.parameters(), self._clips[member], foreach=True)
        self._is_alive[member] = bool(torch.isfinite(norm) & torch.isfinite(loss))
        if self._is_alive[member]:
            optimiser.step()
        return loss.detach().cpu(), norm.detach().cpu()

    def parameters(self) -> dict[str, Tensor]:
        """Return every parameter and persistent buffer by name: (member, …)."""
        states = [model.state_dict() for model in self._models]
        stacked_state = {}
        for name, value in states[0].items():
            if len(states) == 1:
                stacked_state[name] = value.detach().unsqueeze(0)
            else:
                stacked_state[name] = torch.stack([state[name].detach() for state in states])
        return stacked_state

    def state(self) -> dict[str, Tensor]:
        """Return copies of the complete state."""
        state = {f"model.{name}": value.clone() for name, value in self.parameters().items()}
        names = [name for name, _ in self._models[0].named_parameters()]
        kept = [optimiser.state_dict()["state"] for optimiser in self._optimisers]
        for part, key in _KEYS.items():
            for index, name in enumerate(names):
                # A parameter without a gradient has no moments.
                if any(key in member_state.get(index, {}) for member_state in kept):
                    blank = torch.zeros_like(state[f"model.{name}"][0])
                    moments = [member_state.get(index, {}).get(key, blank) for member_state in kept]
                    stack = [moment.to(blank.device) for moment in moments]
                    state[f"{part}.{name}"] = torch.stack(stack)
        steps = []
        for member_state in kept:
            counts = [int(moments.get("step", 0)) for moments in member_state.values()]
            steps.append(max(counts, default=0))
        state["steps"] = torch.tensor(steps)
        state["is_alive"] = torch.tensor(self._is_alive)
        return state

    @torch.no_grad()
    def load_state(self, state: dict[str, Tensor]) -> None:
        """Restore a state."""
        self._is_alive = state["is_alive"].tolist()
        for member, steps in enumerate(state["steps"].tolist()):
            model, optimiser = self._models[member], self._optimisers[member]
            kept = {}
            for name, value in model.state_dict().items():
                value.copy_(state[f"model.{name}"][member])
            for index, (name, _) in enumerate(model.named_parameters()):
                if f"first.{name}" in state and steps:
                    kept[index] = {"step": torch.tensor(float(steps))}
                    for part, key in _KEYS.items():
                        kept[index][key] = state[f"{part}.{name}"][member].clone()
            groups = optimiser.state_dict()["param_groups"]
            optimiser.load_state_dict({"state": kept, "param_groups": groups})


def make_optimiser(parameters: Iterable[Tensor], config: TrainConfig) -> torch.optim.Optimizer:
    """Make the optimiser that a config names."""
    if config.optimiser == "sgd":
        return torch.optim.SGD(parameters, lr=config.learning_rate)
    return torch.optim.AdamW(
        parameters, lr=config.learning_rate, weight_decay=config.weight_decay, fused=True
    )


def batch_of(batches: Batches, index: int) -> Batch:
    """Return one step's batch."""
    return batches[index] if isinstance(batches, list) else tuple(part[index] for part in batches)


def makes_noise(part: nn.Module) -> bool:
    """Does a part draw random numbers?"""
    if isinstance(part, nn.modules.dropout._DropoutNd):
        return part.p > 0.0
    rate = getattr(part, "dropout", 0.0)
    return isinstance(rate, float) and rate > 0.0
