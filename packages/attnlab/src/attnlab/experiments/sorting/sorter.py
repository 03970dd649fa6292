"""The sorter from start to finish: train, evaluate, trace, make claims."""

from collections.abc import Callable, Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnlab import seeds
from attnlab.display import plural
from attnlab.errors import WrongUsage, not_none
from attnlab.experiments.experiment import Findings, Problem, ProblemDescription, RunContext
from attnlab.experiments.sorting.config import NAME, WORDS, SortingConfig
from attnlab.experiments.sorting.report import make_content
from attnlab.experiments.sorting.sorting_claims import (
    evaluate,
    evaluate_claims,
    evaluation_prompts,
    exact_loss,
    row_losses,
    with_separator,
)
from attnlab.look.questions import Continuation
from attnlab.look.recording import record
from attnlab.models.decoder import Decoder
from attnlab.tasks.sequences import SEPARATOR, SequenceTask
from attnlab.train import Evaluation, Member, Trained
from attnlab.train.loop import Sampler

VARYING = frozenset(
    {"learning_rate", "weight_decay", "clip", "warmup_steps", "temperature", "initial_scale"}
)
"""The fields in which the members of one population may differ."""

_MOST_WATCHED = 2_000  # inputs of an evaluation during training


def build_model(config: SortingConfig, seed: int) -> Decoder:
    """Make the model with its initial weights."""
    with seeds.isolated(seed, NAME, "model"):
        model = Decoder(config.model_config())
    if config.initial_scale != 1.0:
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.dim() > 1:  # matrices and embeddings, not norms and biases
                    parameter.mul_(config.initial_scale)
    return model


def run(config: SortingConfig, context: RunContext) -> Findings:
    """Train, evaluate, trace, and make claims."""
    sorting_problem = problem([config], [context.seed])
    model = sorting_problem.members[0].model
    context.start(model)
    warning = config.too_small()
    if warning is not None:
        context.tell(warning)
    num_threads = 1 if config.d_model <= 64 else None
    result = context.train(
        NAME,
        sorting_problem.members,
        sorting_problem.loss,
        record=lambda member, line: context.record(line),
        num_threads=num_threads,
    )
    return conclude(model, not_none(result.members[0]), config, context)


def describe_problem(config: SortingConfig) -> ProblemDescription:
    """Describe what the model learns, and when it counts as solved."""
    task = config.sequence_task()
    last = task.vocabulary[-1]
    number, most = task.num_prompts, min(config.most_judged, _MOST_WATCHED)
    if config.holdout:
        number = len(config.split().trained)
    is_all = number <= most and task.is_listable
    if not is_all:
        number = most
    numbers = {
        "letters": f"{task.length:,} {plural(task.length, 'letter')} from a to {last}",
        "length": task.length,
        "last": last,
        "digit": task.letters - 1,
    }
    inputs = f"all {number:,} inputs" if is_all else f"all of {number:,} random inputs"
    if config.holdout:
        inputs += " among those trained on"
    meanings = tuple(WORDS.texts("meanings").items())
    rule_words = WORDS.text(f"tasks.{task.rule}", numbers)
    solved = f"{inputs} answered right at one evaluation"
    return ProblemDescription(rule_words, solved, meanings=meanings)


def problem(configs: Sequence[SortingConfig], seeds_: Sequence[int]) -> Problem:
    """Make a member for each config and seed."""
    first, prompts, members = configs[0], None, []
    task, evaluate = first.sequence_task(), make_evaluator(first)
    if first.holdout:
        prompts = first.split().trained
    for config, seed in zip(configs, seeds_, strict=True):
        model, sample = (
            build_model(config, seed),
            make_sampler(task, config.batch_size, seed, prompts),
        )
        noise = seeds.stream_seed(seed, NAME, "dropout")
        members.append(Member(model, config.train_config(), sample, evaluate, noise=noise))
    labels = [f"in {number}" for number in range(1, task.prompt_length + 1)]
    answered = [f"out {number}" for number in range(1, task.answer_length + 1)]
    return Problem(
        members,
        make_loss(task, first.batch_size, prompts),
        None,
        is_solved=lambda evaluation: evaluation.score[0] == 1.0,
        positions=[*labels, "SEP", *answered],
    )


def conclude(
    model: nn.Module, trained: Trained, config: SortingConfig, context: RunContext
) -> Findings:
    """Evaluate a trained model on every input, trace it, and make claims."""
    assert isinstance(model, Decoder)
    result = evaluate(model, config, context.seed)
    return Findings(model, evaluate_claims(result), make_content(result, trained))


def prompt_words(config: SortingConfig) -> str:
    """Describe the texts that the model answers."""
    task = config.sequence_task()
    return f"{task.prompt_length} letters from a to {task.vocabulary[-1]}, such as {task.example}"


def example(config: SortingConfig) -> str:
    """Return a text that the model answers."""
    return config.sequence_task().example


def ask(
    model: nn.Module, config: SortingConfig, text: str, *, folder: Path | None = None
) -> Continuation:
    """Put a text to the model."""
    if not isinstance(model, Decoder):
        raise WrongUsage(f"sorting asks a Decoder; got {type(model).__name__}.")
    task = config.sequence_task()
    prompt = with_separator(task.parse(text).unsqueeze(0))
    right = task.tokens(task.answer(task.parse(text).unsqueeze(0))[0])
    return Continuation(
        model, prompt, task.answer_length, task.vocabulary, [SEPARATOR], task.prompt_length, right
    )


def counts_rows(task: SequenceTask, batch_size: int) -> bool:
    """Is a batch given as the number of times that each row of the domain occurs in it?"""
    return task.num_prompts <= batch_size and task.is_listable


def make_sampler(
    task: SequenceTask, batch_size: int, seed: int, prompts: Tensor | None = None
) -> Sampler:
    """Return the data of a training: rows sampled uniformly, or their counts in a small domain.

    If the domain is no larger than a batch, a batch holds few distinct rows, each several times, so
    their counts say all. `prompts` are those to sample from; None for the whole domain.
    """
    has_counts, number = counts_rows(task, batch_size), task.num_prompts
    if prompts is not None:
        number = len(prompts)

    def sample(first: int, count: int) -> tuple[Tensor, ...]:
        generator = seeds.generator(seed, NAME, "data", first)
        if not has_counts and prompts is not None:
            chosen = prompts[torch.randint(number, (count * batch_size,), generator=generator)]
            return (task.rows(chosen).view(count, batch_size, -1),)
        if not has_counts:
            rows = task.rows(task.sample(count * batch_size, generator))
            return (rows.view(count, batch_size, -1),)
        chosen = torch.randint(number, (count, batch_size), generator=generator)
        chosen += number * torch.arange(count).unsqueeze(-1)
        return (torch.bincount(chosen.flatten(), minlength=count * number).view(count, -1),)

    return sample


def make_loss(
    task: SequenceTask, batch_size: int, prompts: Tensor | None = None
) -> Callable[[nn.Module, Tensor], Tensor]:
    """Return the loss of a batch of `make_sampler`: the mean over its rows, nats per token."""
    if not counts_rows(task, batch_size):
        return exact_loss
    if prompts is None:
        prompts = task.all_prompts()
    rows = task.rows(prompts)

    def loss(model: nn.Module, counts: Tensor) -> Tensor:
        return (row_losses(model, rows) * counts).sum() / batch_size

    return loss


def make_evaluator(config: SortingConfig) -> Callable[[nn.Module], Evaluation]:
    """Return the evaluation that chooses the best weights: by accuracy, then by loss.

    A greedy answer is right when each of its letters is the likeliest after the right ones before
    it, so one pass over the whole rows gives the accuracy of generation.
    """
    task = config.sequence_task()
    fixed, _ = evaluation_prompts(
        config, min(config.most_judged, _MOST_WATCHED), seeds.generator(0, NAME, "watch")
    )
    rows = task.rows(fixed)

    def evaluate(model: nn.Module) -> Evaluation:
        with record(model, "layers.*.attention.weights") as recording:
            logits = model(rows[:, :-1])
        loss = F.cross_entropy(logits.transpose(1, 2), rows[:, 1:])
        letters = logits[:, task.prompt_length :].narrow(-1, SEPARATOR + 1, task.letters)
        is_right = (letters.argmax(-1) + SEPARATOR + 1 == task.answer(fixed)).all(-1)
        accuracy = is_right.double().mean()
        by_head = [weight_on_next(weights, rows, task) for weights in recording.values()]
        on_next = torch.cat(by_head).amax()
        figures = {"accuracy": accuracy, "domain_loss": loss, "weight_on_next": on_next}
        return Evaluation((accuracy, -loss), figures)  # type: ignore[arg-type]

    return evaluate


def weight_on_next(weights: Tensor, rows: Tensor, task: SequenceTask) -> Tensor:
    """Return each head's weight on the next letter: (batch, head, query, key) -> (head,).

    The mean, over all positions before a letter of the answer, of the weight on the same letter in
    the prompt.
    """
    answer = rows[:, task.prompt_length + 1 :]
    is_next = answer.unsqueeze(-1) == rows[:, : task.prompt_length].unsqueeze(1)
    asking = weights[..., task.prompt_length :, : task.prompt_length]
    return (asking * is_next.unsqueeze(1)).sum(-1).mean((0, 2))
