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
from attnlab.experiments.sorting.config import NAME, SortingConfig
from attnlab.look.causality import largest_change, largest_leak
from attnlab.models.decoder import Decoder
from attnlab.models.generation import generate
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
class SorterEvaluation:
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


def answers(model: Any, task: SequenceTask, prompts: Tensor) -> tuple[Tensor, Tensor]:
    """Answer each prompt greedily, SEP forbidden; return ids and their probabilities.

    Both are (batch, answer_length).
    """
    tokens, probabilities = [], []
    for part in prompts.split(_CHUNK):  # type: ignore[no-untyped-call]
        generated = generate(model, with_separator(part), task.answer_length, forbidden=[SEPARATOR])
        tokens.append(generated.tokens[:, task.prompt_length + 1 :])
        probabilities.append(generated.probabilities.amax(-1))
    return torch.cat(tokens), torch.cat(probabilities)


@torch.no_grad()
def evaluate(model: Decoder, config: SortingConfig, seed: int) -> SorterEvaluation:
    """Evaluate the model on its inputs, or on a sample of them if there are too many."""
    task, most, held_out = config.sequence_task(), config.most_judged, None
    prompts = evaluation_prompts(config, most, seeds.generator(seed, NAME, "judge"))
    evaluated = _evaluate(model, task, *prompts)
    if config.holdout:
        generator = seeds.generator(0, NAME, "judge held out")
        held_out = _evaluate(model, task, *_some_of(config.split().held_out, most, generator))
    loss = float(exact_loss(model, task.rows(evaluated.prompts)))
    return SorterEvaluation(model, config, seed, evaluated, held_out, loss)


def evaluation_prompts(
    config: SortingConfig, most: int, generator: torch.Generator
) -> tuple[Tensor, bool]:
    """Return the inputs of training, or a sample of `most` of them, and whether they are all."""
    if not config.holdout:
        return config.sequence_task().prompts_to_evaluate(most, generator)
    return _some_of(config.split().trained, most, generator)


def _some_of(prompts: Tensor, most: int, generator: torch.Generator) -> tuple[Tensor, bool]:
    if len(prompts) <= most:
        return prompts, True
    return prompts[torch.randperm(len(prompts), generator=generator)[:most].sort().values], False


def _evaluate(
    model: Decoder, task: SequenceTask, prompts: Tensor, are_all: bool
) -> EvaluatedInputs:
    answered, probabilities = answers(model, task, prompts)
    return EvaluatedInputs(prompts, answered, task.answer(prompts), probabilities, are_all)


def evaluate_claims(result: SorterEvaluation) -> list[Claim]:
    """Make the claims."""
    claims = [_all_inputs_right(result)]
    if result.held_out is not None:
        claims.append(_most_held_out_right(result.held_out))
    order = seeds.generator(result.seed, NAME, "claims")
    shuffled = torch.randperm(result.evaluated.total, generator=order)
    return [*claims, *_loss_claims(result), _causal(result, shuffled[:64])]


def _all_inputs_right(result: SorterEvaluation) -> Claim:
    evaluated = result.evaluated
    inputs = f"{evaluated.total:,} inputs drawn at random"
    if evaluated.are_all:
        inputs = f"the {evaluated.total:,} inputs"
    if result.held_out is not None:
        inputs += " among those trained on"
    return Claim(
        "all_inputs_right",
        f"every one of {inputs} is answered right by greedy generation, SEP forbidden (task: "
        f"{result.config.task})",
        f"{evaluated.right:,}/{evaluated.total:,}",
        f"{evaluated.total:,}/{evaluated.total:,}",
        evaluated.right == evaluated.total,
    )


def _most_held_out_right(held_out: EvaluatedInputs) -> Claim:
    share = share_interval(held_out.right, held_out.total)
    return Claim(
        "most_held_out_right",
        "more than half of the inputs held out of training are answered right (share with its "
        "95 % interval, Wilson)",
        f"{held_out.right:,}/{held_out.total:,}, {share.value:.0%} ({share.low:.0%} to "
        f"{share.high:.0%})",
        "interval above 50 %",
        is_above(share, 0.5),
    )


def _loss_claims(result: SorterEvaluation) -> list[Claim]:
    task = result.config.sequence_task()
    floor = least = task.loss_floor
    slack = 1e-5
    # A model that learns which inputs were held out may go below the floor of all inputs.
    if result.held_out is not None:
        least = least_loss(task, result.config.split().trained)
    if not result.evaluated.are_all:
        slack = 0.02  # a sample has a floor of its own, which may be lower by chance
    return [
        Claim(
            "loss_near_floor",
            f"the mean loss is within {_LOSS_TOLERANCE} nats of the least possible (the letters "
            "before SEP are random)",
            f"{result.loss:.4f} nats, {result.loss - floor:+.4f} from the floor",
            f"at most {floor + _LOSS_TOLERANCE:.4f} nats",
            result.loss <= floor + _LOSS_TOLERANCE,
        ),
        Claim(
            "loss_not_below_floor",
            "the mean loss is not below the least possible, as it would be if later tokens leaked "
            "in",
            f"{result.loss:.4f} nats",
            f"at least {least:.4f} nats",
            result.loss >= least - slack,
        ),
    ]


def _causal(result: SorterEvaluation, chosen: Tensor) -> Claim:
    rows = result.config.sequence_task().rows(result.evaluated.prompts[chosen])[:, :-1]
    leak, change = largest_leak(result.model, rows), largest_change(result.model, rows)
    return Claim(
        "causal",
        "no output depends on a later token: largest derivative, and largest change when the later "
        f"tokens are exchanged, over {len(rows)} inputs",
        f"{leak:g} and {change:g}",
        "exactly 0",
        leak == 0.0 and change == 0.0,
        is_self_check=True,
    )


def least_loss(task: SequenceTask, prompts: Tensor) -> float:
    """Return the least possible mean loss on these prompts, drawn uniformly."""
    shares = torch.bincount(prompts[:, 0]).double() / len(prompts)
    first_letter = float(torch.special.entr(shares).sum())
    return (math.log(len(prompts)) - first_letter) / (task.row_length - 1)
