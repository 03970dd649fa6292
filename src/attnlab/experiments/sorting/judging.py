"""Judging the sorter: its loss, its answers on every input, and what may be claimed."""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnlab import seeds
from attnlab.experiments.claims import Claim
from attnlab.experiments.sorting.config import NAME, SortingConfig
from attnlab.look.causality import largest_change, largest_leak
from attnlab.models.decoder import Decoder
from attnlab.models.generation import generate
from attnlab.models.parameters import count_from_config, count_from_model
from attnlab.tasks.sequences import SEPARATOR, SequenceTask

__all__ = ["Judged", "answers", "exact_loss", "judge_all", "judge_claims", "row_losses", "with_separator"]

_LOSS_TOLERANCE = 0.05
_CHUNK = 2_000  # inputs answered at once


class Judged(NamedTuple):
    """The model on the inputs it is judged by."""

    prompts: Tensor
    answers: Tensor
    expected: Tensor
    probabilities: Tensor
    are_all: bool

    @property
    def correct(self) -> Tensor:
        """Which inputs came out right: (inputs,) boolean."""
        return (self.answers == self.expected).all(-1)


def row_losses(model: nn.Module, rows: Tensor) -> Tensor:
    """Return each row's mean next-token cross-entropy over all its positions: (rows,) nats."""
    logits = model(rows[:, :-1])
    return F.cross_entropy(logits.transpose(1, 2), rows[:, 1:], reduction="none").mean(-1)


def exact_loss(model: nn.Module, rows: Tensor) -> Tensor:
    """Return the mean next-token cross-entropy of whole rows, nats a token."""
    if len(rows) <= _CHUNK:
        return row_losses(model, rows).mean()
    return torch.cat([row_losses(model, part) for part in rows.split(_CHUNK)]).mean()  # type: ignore[no-untyped-call]


def with_separator(prompts: Tensor) -> Tensor:
    """Write SEP after each prompt."""
    return F.pad(prompts, (0, 1), value=SEPARATOR)


def answers(model: Any, task: SequenceTask, prompts: Tensor, *, use_cache: bool = True) -> tuple[Tensor, Tensor]:
    """Answer each prompt greedily, SEP forbidden: ids (batch, answer_length), and the probability of each choice."""
    tokens, probabilities = [], []
    for part in prompts.split(_CHUNK):  # type: ignore[no-untyped-call]
        found = generate(model, with_separator(part), task.answer_length, forbidden=[SEPARATOR], use_cache=use_cache)
        tokens.append(found.tokens[:, task.prompt_length + 1 :])
        probabilities.append(found.probabilities.amax(-1))
    return torch.cat(tokens), torch.cat(probabilities)


def judge_all(model: Decoder, task: SequenceTask, config: SortingConfig, seed: int) -> Judged:
    """Put the model to every input of the domain, or to a sample where there are too many."""
    prompts, are_all = task.prompts_to_judge(config.most_judged, seeds.generator(seed, NAME, "judge"))
    found, probabilities = answers(model, task, prompts)
    return Judged(prompts, found, task.answer(prompts), probabilities, are_all)


def judge_claims(
    model: Decoder, task: SequenceTask, config: SortingConfig, judged: Judged, *, loss: float, seed: int
) -> list[Claim]:
    """Say what holds, and by how much."""
    total, right = len(judged.prompts), int(judged.correct.sum())
    which = f"every one of the {total:,} inputs" if judged.are_all else f"every one of {total:,} inputs drawn at random"
    floor = task.loss_floor
    # A sampled domain has a sampled floor: what the draw could have made easier is not a leak.
    slack = 1e-5 if judged.are_all else 0.02
    order = torch.randperm(total, generator=seeds.generator(seed, NAME, "claims"))
    sample = task.rows(judged.prompts[order[:64]])[:, :-1]
    leak, change = largest_leak(model, sample), largest_change(model, sample)
    by_config, by_model = count_from_config(config.model_config()), count_from_model(model)
    chosen = order[: max(50, 20_000 // task.row_length)]
    slow, slow_probabilities = answers(model, task, judged.prompts[chosen], use_cache=False)
    different = int((slow != judged.answers[chosen]).any(-1).sum())
    difference = float((slow_probabilities - judged.probabilities[chosen]).abs().max())
    return [
        Claim(
            "all_inputs_right",
            f"{which} is answered right by greedy generation, SEP forbidden (task: {config.task})",
            f"{right:,}/{total:,}",
            f"{total:,}/{total:,}",
            right == total,
        ),
        Claim(
            "loss_near_floor",
            "the mean loss comes within 0.05 nats of the least that is possible (the letters before SEP are random)",
            f"{loss:.4f} nats, {loss - floor:+.4f} from the floor",
            f"at most {floor + _LOSS_TOLERANCE:.4f} nats",
            loss <= floor + _LOSS_TOLERANCE,
        ),
        Claim(
            "loss_not_below_floor",
            "the mean loss is not below the least that is possible, as it would be if the future leaked in",
            f"{loss:.4f} nats",
            f"at least {floor:.4f} nats",
            loss >= floor - slack,
        ),
        Claim(
            "causal",
            f"no output depends on a later token: largest derivative, and largest change when the later tokens are "
            f"exchanged, over {len(sample)} inputs",
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
            f"generation with a key/value cache gives the same answers, and probabilities to 1e-5, as without "
            f"({len(slow):,} inputs)",
            f"{different:,} different, at most {difference:.0e} apart",
            "0 different, 1e-05",
            different == 0 and difference <= 1e-5,
        ),
    ]
