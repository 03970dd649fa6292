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


def evaluate_domain(
    model: Decoder, task: SequenceTask, config: SortingConfig, seed: int
) -> EvaluatedInputs:
    """Evaluate the model on every input of training, or on a sample if there are too many."""
    generator = seeds.generator(seed, NAME, "judge")
    return _evaluate(model, task, *evaluation_prompts(config, config.most_judged, generator))


def evaluate_held_out(model: Decoder, task: SequenceTask, config: SortingConfig) -> EvaluatedInputs:
    """Evaluate the model on the held-out inputs, or on a sample if there are too many."""
    prompts, generator = config.split().held_out, seeds.generator(0, NAME, "judge held out")
    return _evaluate(model, task, *_some_of(prompts, config.most_judged, generator))


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


def evaluate_claims(
    model: Decoder,
    task: SequenceTask,
    config: SortingConfig,
    evaluated: EvaluatedInputs,
    held_out: EvaluatedInputs | None = None,
    *,
    loss: float,
    seed: int,
) -> list[Claim]:
    """Make the claims; `evaluated` are inputs of training, `held_out` those kept out, if any."""
    total, right = len(evaluated.prompts), int(evaluated.correct.sum())
    which = f"every one of {total:,} inputs drawn at random"
    if evaluated.are_all:
        which = f"every one of the {total:,} inputs"
    which += " among those trained on" if held_out is not None else ""
    floor = task.loss_floor
    # A model that learns which inputs were held out may go below the floor of all inputs.
    least = floor if held_out is None else least_loss(task, config.split().trained)
    # A sample has a floor of its own, which may be lower by chance.
    slack = 1e-5 if evaluated.are_all else 0.02
    order = torch.randperm(total, generator=seeds.generator(seed, NAME, "claims"))
    sample = task.rows(evaluated.prompts[order[:64]])[:, :-1]
    leak, change = largest_leak(model, sample), largest_change(model, sample)
    by_config, by_model = count_from_config(config.model_config()), count_from_model(model)
    chosen = order[: max(50, 20_000 // task.row_length)]
    slow, slow_probabilities = answers(model, task, evaluated.prompts[chosen], use_cache=False)
    different = int((slow != evaluated.answers[chosen]).any(-1).sum())
    difference = float((slow_probabilities - evaluated.probabilities[chosen]).abs().max())
    return [
        Claim(
            "all_inputs_right",
            f"{which} is answered right by greedy generation, SEP forbidden (task: {config.task})",
            f"{right:,}/{total:,}",
            f"{total:,}/{total:,}",
            right == total,
        ),
        *([] if held_out is None else [_held_out_claim(held_out)]),
        Claim(
            "loss_near_floor",
            "the mean loss is within 0.05 nats of the least possible (the letters before SEP are "
            "random)",
            f"{loss:.4f} nats, {loss - floor:+.4f} from the floor",
            f"at most {floor + _LOSS_TOLERANCE:.4f} nats",
            loss <= floor + _LOSS_TOLERANCE,
        ),
        Claim(
            "loss_not_below_floor",
            "the mean loss is not below the least possible, as it would be if later tokens leaked "
            "in",
            f"{loss:.4f} nats",
            f"at least {least:.4f} nats",
            loss >= least - slack,
        ),
        Claim(
            "causal",
            "no output depends on a later token: largest derivative, and largest change when the "
            f"later tokens are exchanged, over {len(sample)} inputs",
            f"{leak:g} and {change:g}",
            "exactly 0",
            leak == 0.0 and change == 0.0,
        ),
        Claim(
            "parameters_counted",
            "the parameters of each part, counted by arithmetic, are those the model holds",
            f"{sum(by_model.values()):,} in {len(by_model)} parts",
            f"{sum(by_config.values()):,} in {len(by_config)} parts",
            by_config == by_model,
        ),
        Claim(
            "cache_changes_nothing",
            "generation with a key/value cache gives the same answers, and probabilities to "
            f"1e-5, as without ({len(slow):,} inputs)",
            f"{different:,} different, at most {difference:.0e} apart",
            "0 different, 1e-05",
            different == 0 and difference <= 1e-5,
        ),
    ]


def _held_out_claim(held_out: EvaluatedInputs) -> Claim:
    """Claim that most held-out inputs are answered right; few inputs may leave it undecided."""
    total, right = len(held_out.prompts), int(held_out.correct.sum())
    share, low, high = found = share_interval(right, total)
    return Claim(
        "most_held_out_right",
        "more than half of the inputs held out of training are answered right (share with "
        "its 95 % interval, Wilson)",
        f"{right:,}/{total:,}, {share:.0%} ({low:.0%} to {high:.0%})",
        "interval above 50 %",
        is_above(found, 0.5),
    )


def least_loss(task: SequenceTask, prompts: Tensor) -> float:
    """Return the least possible mean loss on these prompts, drawn uniformly."""
    shares = torch.bincount(prompts[:, 0]).double() / len(prompts)
    first_letter = float(torch.special.entr(shares).sum())
    return (math.log(len(prompts)) - first_letter) / (task.row_length - 1)
