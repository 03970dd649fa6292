"""The claims about the sorter: its loss, and its answers on every input."""

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnlab import seeds
from attnlab.core.stats import is_above, share_interval
from attnlab.experiments.claims import Claim
from attnlab.experiments.sorting.config import NAME, WORDS, SortingConfig
from attnlab.experiments.words import Numbers
from attnlab.look.causality import largest_change, largest_leak
from attnlab.models.decoder import Decoder
from attnlab.models.generation import generate
from attnlab.models.parameters import count_from_config, count_from_model
from attnlab.tasks.sequences import SEPARATOR, SequenceTask

_LOSS_TOLERANCE = 0.05
_CHUNK = 2_000  # inputs answered at once


@dataclass(frozen=True)
class EvaluatedInputs:
    """The model's answers to the inputs of its evaluation."""

    prompts: Tensor
    answers: Tensor
    expected: Tensor
    probabilities: Tensor
    are_all: bool

    @property
    def correct(self) -> Tensor:
        """Which inputs are answered right: (inputs,) boolean."""
        return (self.answers == self.expected).all(-1)

    @property
    def right(self) -> int:
        """The number of inputs answered right."""
        return int(self.correct.sum())

    @property
    def total(self) -> int:
        """The number of inputs."""
        return len(self.prompts)


@dataclass(frozen=True)
class Result:
    """A trained sorter on the inputs of training, and on those held out, if any."""

    model: Decoder
    config: SortingConfig
    seed: int
    evaluated: EvaluatedInputs
    held_out: EvaluatedInputs | None
    loss: float


def row_losses(model: nn.Module, rows: Tensor) -> Tensor:
    """Return each row's mean next-token cross-entropy over all its positions: (rows,) nats."""
    logits = model(rows[:, :-1])
    return F.cross_entropy(logits.transpose(1, 2), rows[:, 1:], reduction="none").mean(-1)


def exact_loss(model: nn.Module, rows: Tensor) -> Tensor:
    """Return the mean next-token cross-entropy of whole rows, nats per token."""
    if len(rows) <= _CHUNK:
        return row_losses(model, rows).mean()
    return torch.cat([row_losses(model, part) for part in rows.split(_CHUNK)]).mean()  # type: ignore[no-untyped-call]


def with_separator(prompts: Tensor) -> Tensor:
    """Append SEP to each prompt."""
    return F.pad(prompts, (0, 1), value=SEPARATOR)


def answers(
    model: Any, task: SequenceTask, prompts: Tensor, *, use_cache: bool = True
) -> tuple[Tensor, Tensor]:
    """Answer each prompt greedily, SEP forbidden; return ids and their probabilities.

    Both are (batch, answer_length).
    """
    tokens, probabilities = [], []
    for part in prompts.split(_CHUNK):  # type: ignore[no-untyped-call]
        found = generate(
            model,
            with_separator(part),
            task.answer_length,
            forbidden=[SEPARATOR],
            use_cache=use_cache,
        )
        tokens.append(found.tokens[:, task.prompt_length + 1 :])
        probabilities.append(found.probabilities.amax(-1))
    return torch.cat(tokens), torch.cat(probabilities)


@torch.no_grad()
def evaluate(model: Decoder, config: SortingConfig, seed: int) -> Result:
    """Evaluate the model on its inputs, or on a sample of them if there are too many."""
    task, most, held_out = config.sequence_task(), config.most_judged, None
    prompts = evaluation_prompts(config, most, seeds.generator(seed, NAME, "judge"))
    evaluated = _evaluate(model, task, *prompts)
    if config.holdout:
        generator = seeds.generator(0, NAME, "judge held out")
        held_out = _evaluate(model, task, *_some_of(config.split().held_out, most, generator))
    loss = float(exact_loss(model, task.rows(evaluated.prompts)))
    return Result(model, config, seed, evaluated, held_out, loss)


def evaluation_prompts(
    config: SortingConfig, most: int, generator: torch.Generator
) -> tuple[Tensor, bool]:
    """Return the inputs of training, or a sample of `most` of them, and whether they are all."""
    if not config.holdout:
        return config.sequence_task().prompts_to_judge(most, generator)
    return _some_of(config.split().trained, most, generator)


def _some_of(prompts: Tensor, most: int, generator: torch.Generator) -> tuple[Tensor, bool]:
    if len(prompts) <= most:
        return prompts, True
    return prompts[torch.randperm(len(prompts), generator=generator)[:most].sort().values], False


def _evaluate(
    model: Decoder, task: SequenceTask, prompts: Tensor, are_all: bool
) -> EvaluatedInputs:
    found, probabilities = answers(model, task, prompts)
    return EvaluatedInputs(prompts, found, task.answer(prompts), probabilities, are_all)


def evaluate_claims(result: Result) -> list[Claim]:
    """Make the claims."""
    model, config, evaluated = result.model, result.config, result.evaluated
    task = config.sequence_task()
    floor = task.loss_floor
    # A model that learns which inputs were held out may go below the floor of all inputs.
    least, slack = floor, 1e-5
    if result.held_out is not None:
        least = least_loss(task, config.split().trained)
    if not evaluated.are_all:
        slack = 0.02  # a sample has a floor of its own, which may be lower by chance
    order = torch.randperm(evaluated.total, generator=seeds.generator(result.seed, NAME, "claims"))
    sample = task.rows(evaluated.prompts[order[:64]])[:, :-1]
    leak, change = largest_leak(model, sample), largest_change(model, sample)
    by_config, by_model = count_from_config(config.model_config()), count_from_model(model)
    chosen = order[: max(50, 20_000 // task.row_length)]
    slow, slow_probabilities = answers(model, task, evaluated.prompts[chosen], use_cache=False)
    different = int((slow != evaluated.answers[chosen]).any(-1).sum())
    difference = float((slow_probabilities - evaluated.probabilities[chosen]).abs().max())
    numbers: Numbers = {
        "result": result,
        "floor": floor,
        "most": floor + _LOSS_TOLERANCE,
        "least": least,
        "leak": leak,
        "change": change,
        "num_sampled": len(sample),
        "held": by_model,
        "counted": by_config,
        "num_slow": len(slow),
        "different": different,
        "difference": difference,
    }
    passed: dict[str, bool | None] = {"all_inputs_right": evaluated.right == evaluated.total}
    if result.held_out is not None:
        numbers["share"] = share = share_interval(result.held_out.right, result.held_out.total)
        passed["most_held_out_right"] = is_above(share, 0.5)
    passed |= {
        "loss_near_floor": result.loss <= floor + _LOSS_TOLERANCE,
        "loss_not_below_floor": result.loss >= least - slack,
        "causal": leak == 0.0 and change == 0.0,
        "parameters_counted": by_config == by_model,
        "cache_changes_nothing": different == 0 and difference <= 1e-5,
    }
    return WORDS.claims(numbers, passed)


def least_loss(task: SequenceTask, prompts: Tensor) -> float:
    """Return the least possible mean loss on these prompts, drawn uniformly."""
    shares = torch.bincount(prompts[:, 0]).double() / len(prompts)
    first_letter = float(torch.special.entr(shares).sum())
    return (math.log(len(prompts)) - first_letter) / (task.row_length - 1)
