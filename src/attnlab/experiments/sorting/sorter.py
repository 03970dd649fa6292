"""The sorter from start to finish: train, judge, trace, say what holds."""

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from attnlab import seeds
from attnlab.errors import WrongUsage
from attnlab.experiments.experiment import Findings, Run
from attnlab.experiments.sorting.config import NAME, SortingConfig
from attnlab.experiments.sorting.document import make_document, trace_prompts, traces_to_show
from attnlab.experiments.sorting.judging import answers, exact_loss, judge_all, judge_claims, row_losses
from attnlab.look.trace import Trace
from attnlab.models.decoder import Decoder
from attnlab.tasks.sequences import SequenceTask
from attnlab.train.loop import Judgement, Trained, train

__all__ = ["build_model", "prompt_words", "run", "trace_text"]


def build_model(config: SortingConfig, seed: int) -> Decoder:
    """Make the model with its initial weights."""
    with seeds.isolated(seed, NAME, "model"):
        return Decoder(config.model_config())


def run(config: SortingConfig, context: Run) -> Findings:
    """Train, judge, trace, and say what holds."""
    task = config.sequence_task()
    model = build_model(config, context.seed)
    context.start(model)
    trained = _trained(model, task, config, context)
    with torch.no_grad():
        judged = judge_all(model, task, config, context.seed)
        loss = float(exact_loss(model, task.rows(judged.prompts)))
    traces = traces_to_show(model, task, judged)
    claims = judge_claims(model, task, config, judged, loss=loss, seed=context.seed)
    document = make_document(model, task, config, context, trained=trained, judged=judged, loss=loss, traces=traces)
    return Findings(model, claims, document)


def prompt_words(config: SortingConfig) -> str:
    """Say what a person may type."""
    task = config.sequence_task()
    return f"{task.prompt_length} letters from a to {task.vocabulary[-1]}, such as {task.example}"


def trace_text(model: nn.Module, config: SortingConfig, text: str, *, folder: Path | None = None) -> Trace:
    """Trace the model on an input that a person typed."""
    if not isinstance(model, Decoder):
        raise WrongUsage(f"sorting traces a Decoder; got {type(model).__name__}.")
    task = config.sequence_task()
    return trace_prompts(model, task, task.parse(text).unsqueeze(0))[0]


def make_batch_loss(task: SequenceTask, batch_size: int) -> Callable[[nn.Module, torch.Generator], Tensor]:
    """Return the loss of a training step: the mean over a batch of rows drawn from the generator."""
    if task.num_prompts > batch_size or not task.is_listable:
        return lambda model, generator: exact_loss(model, task.rows(task.sample(batch_size, generator)))
    rows = task.rows(task.all_prompts())

    def loss(model: nn.Module, generator: torch.Generator) -> Tensor:
        # The batch holds few distinct rows, each several times: the same mean loss from each once, times its count.
        drawn = torch.randint(len(rows), (batch_size,), generator=generator)
        counts = torch.bincount(drawn, minlength=len(rows))
        return (row_losses(model, rows) * counts).sum() / batch_size

    return loss


def _trained(model: Decoder, task: SequenceTask, config: SortingConfig, context: Run) -> Trained:
    fixed, _ = task.prompts_to_judge(min(config.most_judged, 2_000), seeds.generator(context.seed, NAME, "watch"))
    fixed_rows = task.rows(fixed)

    def judge(model: nn.Module) -> Judgement:
        accuracy = float((answers(model, task, fixed)[0] == task.answer(fixed)).all(-1).double().mean())
        loss = float(exact_loss(model, fixed_rows))
        return Judgement((accuracy, -loss), {"accuracy": accuracy, "domain_loss": loss})

    return train(
        model,
        config.train_config(),
        loss=make_batch_loss(task, config.batch_size),
        judge=judge,
        generator=seeds.generator(context.seed, NAME, "data"),
        observer=context.observer,
        folder=context.checkpoints,
        record=context.record,
        num_threads=1 if config.d_model <= 64 else None,
    )
