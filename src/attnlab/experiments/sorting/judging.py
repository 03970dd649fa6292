"""Judging the sorter: its loss, its answers on every input, and what may be claimed."""

from typing import Any, NamedTuple

import torch.nn.functional as F
from torch import Tensor, nn

from attnlab import seeds
from attnlab.experiments.claims import Claim
from attnlab.experiments.sorting.config import NAME, SortingConfig
from attnlab.look.causality import largest_leak
from attnlab.models.decoder import Decoder
from attnlab.models.generation import generate
from attnlab.models.parameters import count_from_config, count_from_model
from attnlab.tasks.sequences import SEPARATOR, SequenceTask

__all__ = ["Judged", "answers", "exact_loss", "judge_all", "judge_claims", "row_losses", "with_separator"]

_LOSS_TOLERANCE = 0.05


class Judged(NamedTuple):
    """The model on the inputs it is judged by."""

    prompts: Tensor
    answers: Tensor
    expected: Tensor
    confidences: Tensor
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
    return row_losses(model, rows).mean()


def with_separator(prompts: Tensor) -> Tensor:
    """Write SEP after each prompt."""
    return F.pad(prompts, (0, 1), value=SEPARATOR)


def answers(model: Any, task: SequenceTask, prompts: Tensor, *, use_cache: bool = True) -> tuple[Tensor, Tensor]:
    """Answer each prompt greedily: ids (batch, answer_length), and the least probability among its choices."""
    found = generate(model, with_separator(prompts), task.answer_length, forbidden=[SEPARATOR], use_cache=use_cache)
    return found.tokens[:, task.prompt_length + 1 :], found.probabilities.amax(-1).amin(-1)


def judge_all(model: Decoder, task: SequenceTask, config: SortingConfig, seed: int) -> Judged:
    """Put the model to every input of the domain, or to a sample where there are too many."""
    prompts, are_all = task.prompts_to_judge(config.most_judged, seeds.generator(seed, NAME, "judge"))
    found, confidences = answers(model, task, prompts)
    return Judged(prompts, found, task.answer(prompts), confidences, are_all)


def judge_claims(model: Decoder, task: SequenceTask, config: SortingConfig, judged: Judged, loss: float) -> list[Claim]:
    """Say what holds, and by how much."""
    total, right = len(judged.prompts), int(judged.correct.sum())
    which = f"every one of the {total:,} inputs" if judged.are_all else f"every one of {total:,} inputs drawn at random"
    floor = task.loss_floor
    # A sampled domain has a sampled floor: what the draw could have made easier is not a leak.
    slack = 1e-5 if judged.are_all else 0.02
    sample = task.rows(judged.prompts[:64])[:, :-1]
    leak = largest_leak(model, sample)
    by_config, by_model = count_from_config(config.model_config()), count_from_model(model)
    slow, _ = answers(model, task, judged.prompts[:1_000], use_cache=False)
    different = int((slow != judged.answers[:1_000]).any(-1).sum())
    return [
        Claim(
            "all_inputs_right",
            f"{which} is answered right by greedy generation (task: {config.task})",
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
            f"no output depends on a later token: largest derivative over {len(sample)} inputs",
            f"{leak:g}",
            "exactly 0",
            leak == 0.0,
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
            f"generation with a key/value cache gives the same answers as without ({len(slow):,} inputs)",
            f"{different:,} different",
            "0 different",
            different == 0,
        ),
    ]
