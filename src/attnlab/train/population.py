"""A population: many models of one architecture trained together, each as if it were alone.

The parameters of all members are stacked, (member, …), and one step computes the losses of all by `torch.func.vmap`;
the gradient of their sum is each member's own, clipping is by each member's own norm, and AdamW and SGD work element
by element. So a member ends where its own training would have ended, but for rounding: a test holds it to that.
"""

import copy
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from attnlab.errors import WrongUsage
from attnlab.train.loop import (
    Judgement,
    Observer,
    Silent,
    TrainConfig,
    Trained,
    make_optimiser,
    set_rate,
    using_threads,
)

__all__ = ["train_population"]

_TELL_EVERY = 20


def train_population(
    models: Sequence[nn.Module],
    config: TrainConfig,
    *,
    draw: Callable[[torch.Generator], tuple[Tensor, ...]],
    loss: Callable[..., Tensor],
    judge: Callable[[nn.Module], Judgement],
    generators: Sequence[torch.Generator],
    stop: Callable[[Judgement], bool] | None = None,
    observer: Observer | None = None,
    num_threads: int | None = None,
) -> list[Trained | None]:
    """Train models together, leaving each with its best weights.

    Args:
        models: of one architecture, without dropout, each with its own initial weights; trained in place.
        config: how, the same for all.
        draw: makes one member's batch from its generator; the tensors of all members have the same shapes.
        loss: called as loss(model, *batch), the mean loss in nats; torch operations alone (it runs under vmap).
        judge: looks at one member now and then (in evaluation mode, without gradients).
        generators: the randomness of each member's data.
        stop: says of a judgement that the member needs no more; the training ends when that is so of all.
        observer: is told of progress.
        num_threads: torch's threads meanwhile.

    Returns:
        what `train` returns, for each member; None for one whose loss was no longer finite: it keeps its best weights
        of before, if it has any, and disturbs nobody.
    """
    if not models or len(models) != len(generators):
        raise WrongUsage(f"expected a generator for each model, at least one; got {len(models)} and {len(generators)}.")
    for part in models[0].modules():
        rate = part.p if isinstance(part, nn.modules.dropout._DropoutNd) else getattr(part, "dropout", 0.0)
        if isinstance(rate, float) and rate > 0.0:
            raise WrongUsage("a population is trained without dropout; build the models with dropout=0.")
        if getattr(part, "running_mean", None) is not None:
            raise WrongUsage(
                f"a population keeps no running statistics, which a {type(part).__name__} needs; "
                "build the models with layer norm."
            )
    members = [_Member(model) for model in models]
    frame = copy.deepcopy(models[0]).to("meta")  # shapes alone: its numbers come from the stack
    stacked, buffers = stack_module_state(list(models))
    parameters = {name: value.detach().requires_grad_() for name, value in stacked.items()}
    optimiser = make_optimiser(parameters.values(), config)

    def member_loss(parameters: dict[str, Tensor], buffers: dict[str, Tensor], *batch: Tensor) -> Tensor:
        return loss(_Called(frame, parameters, buffers), *batch)

    losses_of = vmap(member_loss)
    observer = observer or Silent()
    with using_threads(num_threads):
        for step in range(config.steps):
            rate = set_rate(optimiser, config, step)
            optimiser.zero_grad(set_to_none=True)
            batches = [torch.stack(parts) for parts in zip(*map(draw, generators), strict=True)]
            losses = losses_of(parameters, buffers, *batches)
            losses.sum().backward()  # type: ignore[no-untyped-call]
            norms = _clip(list(parameters.values()), config.clip)
            optimiser.step()
            done = step + 1
            is_judged = done % config.evaluate_every == 0 or done == config.steps
            if is_judged or done % _TELL_EVERY == 0:
                for member, value, norm in zip(members, losses.tolist(), norms.tolist(), strict=True):
                    member.note({"step": done, "loss": value, "learning_rate": rate, "gradient_norm": norm})
                whole = [value for value in losses.tolist() if math.isfinite(value)]
                observer.step(done, config.steps, {"loss": sum(whole) / max(len(whole), 1)})
            if is_judged:
                for index, member in enumerate(members):
                    member.judge({name: value[index] for name, value in parameters.items()}, done, judge)
                if all(member.is_done(stop) for member in members):
                    break
    return [member.finish() for member in members]


class _Called(nn.Module):
    """A model that computes with the parameters it is handed: what `loss` sees."""

    def __init__(self, frame: nn.Module, parameters: dict[str, Tensor], buffers: dict[str, Tensor]) -> None:
        super().__init__()
        # In a tuple, lest the frame and its parameters be registered as parts of this module.
        self._member = (frame, parameters, buffers)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Compute as the member does."""
        frame, parameters, buffers = self._member
        return functional_call(frame, (parameters, buffers), args, kwargs)


class _Member:
    """One model of the population, its metrics, and its best weights so far."""

    def __init__(self, model: nn.Module) -> None:
        self.model, self.metrics = model, list[dict[str, Any]]()
        self.best: tuple[int, Judgement, dict[str, Tensor]] | None = None
        self.last: Judgement | None = None
        self.is_broken = False

    def note(self, line: dict[str, Any]) -> None:
        self.is_broken = self.is_broken or not (math.isfinite(line["loss"]) and math.isfinite(line["gradient_norm"]))
        if not self.is_broken:
            self.metrics.append(line)

    @torch.no_grad()
    def judge(self, values: dict[str, Tensor], step: int, judge: Callable[[nn.Module], Judgement]) -> None:
        if self.is_broken:
            return
        for name, parameter in self.model.named_parameters():
            parameter.copy_(values[name])
        self.model.eval()
        self.last = judgement = judge(self.model)
        self.metrics.append({"step": step, **judgement.figures})
        if not all(math.isfinite(figure) for figure in judgement.figures.values()):
            self.is_broken = True
        elif self.best is None or judgement.score > self.best[1].score:
            self.best = (step, judgement, {name: value.clone() for name, value in values.items()})

    def is_done(self, stop: Callable[[Judgement], bool] | None) -> bool:
        return self.is_broken or (stop is not None and self.last is not None and stop(self.last))

    @torch.no_grad()
    def finish(self) -> Trained | None:
        if self.best is not None:
            for name, parameter in self.model.named_parameters():
                parameter.copy_(self.best[2][name])
        self.model.eval()
        if self.is_broken or self.best is None:
            return None
        return Trained(self.best[0], self.best[1], self.metrics)


@torch.no_grad()
def _clip(parameters: list[Tensor], most: float) -> Tensor:
    """Scale down each member's gradient to a norm of `most`, as `clip_grad_norm_` does for one; return the norms."""
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    squares = [gradient.flatten(1).square().sum(-1) for gradient in gradients]
    norms = torch.stack(squares).sum(0).sqrt()
    factors = (most / (norms + 1e-6)).clamp(max=1.0)
    for gradient in gradients:
        gradient.mul_(factors.view(-1, *[1] * (gradient.dim() - 1)))
    return norms
