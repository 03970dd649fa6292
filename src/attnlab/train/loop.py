"""The training loop: draw, predict, differentiate, clip, step; look now and then; keep the best and the last.

It knows neither tasks nor reports: the caller gives a loss, a judge, and places to write to.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from attnlab.configs import Config, option
from attnlab.errors import CouldNotRun, WrongUsage
from attnlab.train.checkpoint import write_checkpoint
from attnlab.train.schedule import learning_rate

__all__ = [
    "Judgement",
    "Observer",
    "Silent",
    "TrainConfig",
    "Trained",
    "make_optimiser",
    "set_rate",
    "train",
    "using_threads",
]

_LOG_EVERY = 50


@dataclass(frozen=True, kw_only=True)
class TrainConfig(Config):
    """How a model is trained."""

    steps: int = option(1_000, "optimiser steps", low=1, high=100_000_000)
    optimiser: Literal["adamw", "sgd"] = option("adamw", "which rule makes a step of a gradient")
    learning_rate: float = option(1e-3, "peak learning rate", low=0.0, high=100.0)
    warmup_steps: int = option(0, "steps of linear warm-up", low=0, high=100_000_000)
    final_share: float = option(0.1, "share of the peak rate that the cosine ends at", low=0.0, high=1.0)
    weight_decay: float = option(0.01, "decoupled weight decay of AdamW; sgd has none", low=0.0, high=100.0)
    clip: float = option(1.0, "largest norm of the whole gradient", low=1e-9, high=1e9)
    evaluate_every: int = option(500, "steps between two judgements", low=1, high=100_000_000)

    def validate(self) -> None:
        """Check what one field alone cannot tell."""
        if self.warmup_steps >= self.steps and self.warmup_steps > 0:
            raise WrongUsage(f"warmup_steps must be below steps; got {self.warmup_steps} and {self.steps}.")


class Judgement(NamedTuple):
    """What a judge says of a model: `score` decides which is best (greater is better), `figures` are written down."""

    score: tuple[float, ...]
    figures: Mapping[str, float]


class Observer(Protocol):
    """Who watches a training; the command line's progress bar is one."""

    def stage(self, name: str) -> None:
        """Take note of what begins now."""
        ...

    def step(self, step: int, steps: int, figures: Mapping[str, float]) -> None:
        """Take note of a step (some of them, in order) and its figures."""
        ...


class Silent:
    """An observer that does nothing."""

    def stage(self, name: str) -> None:
        """Do nothing."""

    def step(self, step: int, steps: int, figures: Mapping[str, float]) -> None:
        """Do nothing."""


class Trained(NamedTuple):
    """What a training leaves: the model holds the best weights."""

    best_step: int
    judgement: Judgement
    metrics: list[dict[str, Any]]


def train(
    model: nn.Module,
    config: TrainConfig,
    *,
    loss: Callable[[nn.Module, torch.Generator], Tensor],
    judge: Callable[[nn.Module], Judgement],
    generator: torch.Generator,
    stop: Callable[[Judgement], bool] | None = None,
    observer: Observer | None = None,
    folder: Path | None = None,
    record: Callable[[dict[str, Any]], None] | None = None,
    num_threads: int | None = None,
) -> Trained:
    """Train a model, leaving it with its best weights.

    Args:
        model: trained in place.
        config: how.
        loss: draws a batch from the generator and returns the mean loss, in nats.
        judge: looks at the model now and then (in evaluation mode, without gradients).
        generator: the randomness of the data.
        stop: says of each judgement whether it is enough; the training then ends early.
        observer: is told of progress.
        folder: where `best.safetensors` and `last.safetensors` are kept; None keeps the best in memory only.
        record: is handed each line of metrics as it comes.
        num_threads: torch's threads meanwhile; 1 is quickest for tiny models.

    Raises:
        CouldNotRun: the loss is no longer finite; the last good checkpoint is kept.
    """
    observer = observer or Silent()
    optimiser = make_optimiser(model.parameters(), config)
    metrics: list[dict[str, Any]] = []

    def note(line: dict[str, Any]) -> None:
        metrics.append(line)
        if record is not None:
            record(line)

    best: tuple[int, Judgement, dict[str, Tensor]] | None = None
    since_log: list[Tensor] = []
    with using_threads(num_threads):
        model.train()
        for step in range(config.steps):
            rate = set_rate(optimiser, config, step)
            optimiser.zero_grad(set_to_none=True)
            current = loss(model, generator)
            current.backward()  # type: ignore[no-untyped-call]
            norm = nn.utils.clip_grad_norm_(model.parameters(), config.clip, foreach=True)
            optimiser.step()
            since_log.append(current.detach())
            done = step + 1
            is_judged = done % config.evaluate_every == 0 or done == config.steps
            if is_judged or done % _LOG_EVERY == 0:
                mean = float(torch.stack(since_log).mean())
                if not (math.isfinite(mean) and bool(torch.isfinite(norm))):
                    raise _no_longer_finite(
                        done - len(since_log) + 1, done, f"loss {mean}, gradient norm {float(norm)}"
                    )
                since_log.clear()
                line = {"step": done, "loss": mean, "learning_rate": rate, "gradient_norm": float(norm)}
                note(line)
                observer.step(done, config.steps, {"loss": mean})
            if is_judged:
                judgement = _judged(model, judge)
                if not all(math.isfinite(figure) for figure in judgement.figures.values()):
                    raise _no_longer_finite(done, done, f"judged {dict(judgement.figures)}")
                note({"step": done, **judgement.figures})
                observer.step(done, config.steps, judgement.figures)
                if best is None or judgement.score > best[1].score:
                    best = (done, judgement, _copy(model))
                    if folder is not None:
                        write_checkpoint(folder / "best.safetensors", model, None, None, _facts(done, judgement))
                if folder is not None:
                    facts = {**_facts(done, judgement), "best_step": best[0]}
                    write_checkpoint(folder / "last.safetensors", model, optimiser, generator, facts)
                if stop is not None and stop(judgement):
                    break
    assert best is not None
    best_step, judgement, weights = best
    model.load_state_dict(weights)
    model.eval()
    return Trained(best_step, judgement, metrics)


def make_optimiser(parameters: Iterable[Tensor], config: TrainConfig) -> torch.optim.Optimizer:
    """Make the optimiser that a config names."""
    if config.optimiser == "sgd":
        return torch.optim.SGD(parameters, lr=config.learning_rate)
    return torch.optim.AdamW(parameters, lr=config.learning_rate, weight_decay=config.weight_decay, fused=True)


def set_rate(optimiser: torch.optim.Optimizer, config: TrainConfig, step: int) -> float:
    """Set and return the learning rate of a step, counted from 0."""
    rate = learning_rate(
        step,
        peak=config.learning_rate,
        steps=config.steps,
        warmup_steps=config.warmup_steps,
        final_share=config.final_share,
    )
    for group in optimiser.param_groups:
        group["lr"] = rate
    return rate


def _no_longer_finite(first: int, last: int, found: str) -> CouldNotRun:
    where = f"at step {last}" if first == last else f"between steps {first} and {last}"
    return CouldNotRun(
        f"the training was no longer finite {where} ({found}); the last good checkpoint is kept. "
        "Try a smaller learning_rate."
    )


def _judged(model: nn.Module, judge: Callable[[nn.Module], Judgement]) -> Judgement:
    model.eval()
    with torch.no_grad():
        judgement = judge(model)
    model.train()
    return judgement


def _copy(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def _facts(step: int, judgement: Judgement) -> dict[str, Any]:
    return {"step": step, "score": list(judgement.score), "figures": dict(judgement.figures)}


@contextmanager
def using_threads(number: int | None) -> Iterator[None]:
    """Let torch use so many threads inside the `with`; None leaves it as it is."""
    before = torch.get_num_threads()
    if number is not None:
        torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
