"""The members of a training, and what it returns of each."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Size, nn

from attnlab.display import displayed
from attnlab.errors import WrongUsage
from attnlab.train.config import TrainConfig
from attnlab.train.history import Evaluation, History, MetricsLine
from attnlab.train.layouts.layout import Batches

Sampler = Callable[[int, int], Batches]
"""sample(first, count) -> the batches of the steps first … first + count - 1: a pure function, the
same whenever asked.

The generator is made from a seed and `first` inside. Every training asks for the same spans, so the
numbers of a step depend on neither layout nor interruptions."""

Evaluator = Callable[[nn.Module], Evaluation]


@dataclass(frozen=True)
class Member:
    """One model and its training data.

    Attributes:
        model: with its initial weights; trained in place.
        config: how; the members of one population differ in learning_rate, weight_decay, clip
            alone.
        sample: its data. evaluate: looks at it now and then (in evaluation mode, without
        gradients). If all members have
            the same evaluator, of torch operations alone, it looks at all of them at once.
        noise: the seed of its dropout.
    """

    model: nn.Module
    config: TrainConfig
    sample: Sampler
    evaluate: Evaluator
    noise: int = 0


@displayed
@dataclass(frozen=True)
class Trained:
    """The result of training one member, whose model holds the best weights."""

    best_step: int
    evaluation: Evaluation
    metrics: list[MetricsLine]


@dataclass(frozen=True)
class TrainResult:
    """The result of training a population.

    members: for each what `train` returns; None for one that broke (it keeps its best weights of
    before). history: the course of all of them. layout: the name of the one that held them.
    """

    members: list[Trained | None]
    history: History
    layout: str


def common_config(members: Sequence[Member]) -> TrainConfig:
    """Return the config common to all members."""
    if not members:
        raise WrongUsage("expected at least one model to train; got none.")
    first = members[0].config
    shapes = _shapes(members[0].model)
    for member in members[1:]:
        for name in ("steps", "optimiser", "evaluate_every"):
            one, other = getattr(first, name), getattr(member.config, name)
            if one != other:
                raise WrongUsage(
                    f"the members of a population have the same {name}; got {one} and {other}."
                )
        if _shapes(member.model) != shapes:
            raise WrongUsage(
                "the members of a population have the same shapes; train other shapes by "
                "themselves."
            )
    return first


def _shapes(model: nn.Module) -> dict[str, Size]:
    return {name: parameter.shape for name, parameter in model.named_parameters()}
