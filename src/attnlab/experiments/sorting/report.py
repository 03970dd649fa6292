"""The report of `sorting`: its sections and traces."""

import torch
from torch import Tensor

from attnlab.draw.sections import (
    Level,
    Lines,
    ReportContent,
    ShownTrace,
    Traces,
    Verdict,
    Verdicts,
)
from attnlab.experiments.experiment import Run
from attnlab.experiments.sections import metric_series, parameters_section, settings_section
from attnlab.experiments.sorting.config import NAME, SortingConfig
from attnlab.experiments.sorting.sorting_claims import EvaluatedInputs, with_separator
from attnlab.look.trace import Trace, trace
from attnlab.models.decoder import Decoder
from attnlab.models.parameters import count_from_model
from attnlab.tasks.sequences import SEPARATOR, SequenceTask
from attnlab.train.loop import Trained

_MOST_TRACES = 200
_MOST_WEIGHTS = 500_000  # attention weights that a page holds in all


def trace_prompts(model: Decoder, task: SequenceTask, prompts: Tensor) -> list[Trace]:
    """Trace the model on each prompt (without its separator)."""
    return trace(
        model,
        with_separator(prompts),
        task.answer_length,
        task.vocabulary,
        forbidden=[SEPARATOR],
        num_input=task.prompt_length,
    )


def traces_to_show(model: Decoder, task: SequenceTask, evaluated: EvaluatedInputs) -> list[Trace]:
    """Trace the inputs that the page shows."""
    weights_each = model.config.num_layers * model.config.num_heads * task.row_length**2 // 2
    indices = shown_indices(evaluated)[: max(1, _MOST_WEIGHTS // weights_each)]
    return trace_prompts(model, task, evaluated.prompts[indices])


def shown_indices(evaluated: EvaluatedInputs) -> Tensor:
    """Choose the inputs that a page can hold: all, or as many wrong as right ones if possible."""
    wrong, right = (~evaluated.correct).nonzero().flatten(), evaluated.correct.nonzero().flatten()
    num_wrong = min(len(wrong), max(_MOST_TRACES // 2, _MOST_TRACES - len(right)))
    return torch.cat((wrong[:num_wrong], right[: _MOST_TRACES - num_wrong])).sort().values


def make_content(
    model: Decoder,
    task: SequenceTask,
    config: SortingConfig,
    context: Run,
    *,
    trained: Trained,
    evaluated: EvaluatedInputs,
    held_out: EvaluatedInputs | None,
    loss: float,
    traces: list[Trace],
) -> ReportContent:
    """Make the report's content."""
    total, right = len(evaluated.prompts), int(evaluated.correct.sum())
    counts = count_from_model(model)
    kept_out = "" if held_out is None else f"; held out of training, {_right_of(held_out)}"
    inputs, judged = "sampled inputs", "fixed sample"
    if evaluated.are_all:
        inputs, judged = "inputs", "whole domain"
    inputs += " trained on" if held_out is not None else ""
    held_out_sections = []
    if held_out is not None:
        held_out_sections = [_verdicts_section(task, held_out, "Inputs held out of training")]
    return ReportContent(
        title=NAME if config.task == "sort" else f"{NAME}: {config.task}",
        subtitle=f"A decoder of {sum(counts.values()):,} parameters learns the task "
        f"“{config.task}” over {config.letters} letters; {right:,} of {total:,} {inputs} are "
        f"answered right{kept_out}.",
        facts=[
            ("seed", str(context.seed)),
            ("input", f"{task.prompt_length} of {config.letters} letters"),
            ("parameters", f"{sum(counts.values()):,}"),
            ("projections", config.projections),
            ("positions", config.positions),
            ("steps", f"{config.train_config().steps:,} (best at {trained.best_step:,})"),
            ("loss", f"{loss:.4f} nats"),
            ("least possible", f"{task.loss_floor:.4f} nats"),
            *([] if held_out is None else [("held out of training", _right_of(held_out))]),
        ],
        sections=[
            Traces(
                figure="attention",
                figure_input=list(task.example),
                title="Step by step",
                caption="Choose an input and step through its answer. At each step the model looks "
                "back from the last token it knows; each head spreads one unit of weight "
                "over the tokens so far (a row of its picture), and the next token is the "
                "likeliest.",
                traces=[ShownTrace.of(each) for each in traces],
            ),
            _verdicts_section(
                task, evaluated, "Inputs" if held_out is None else "Inputs trained on"
            ),
            *held_out_sections,
            Lines(
                figure="loss",
                title="Loss",
                caption="Mean cross-entropy over all positions. The letters before SEP are random, "
                "so no model can predict them, and their entropy is the least possible loss.",
                x_label="step",
                y_label="loss (nats per token)",
                series=[
                    metric_series("training (mean of 50 steps)", trained.metrics, "loss"),
                    metric_series(judged, trained.metrics, "domain_loss"),
                ],
                levels=[Level(name=f"least possible {task.loss_floor:.4f}", y=task.loss_floor)],
            ),
            parameters_section(model),
            settings_section(config),
        ],
    )


def _right_of(evaluated: EvaluatedInputs) -> str:
    return f"{int(evaluated.correct.sum()):,} of {len(evaluated.prompts):,} inputs right"


def _verdicts_section(task: SequenceTask, evaluated: EvaluatedInputs, title: str) -> Verdicts:
    shown, total = shown_indices(evaluated).tolist(), len(evaluated.prompts)
    is_whole = evaluated.are_all and total == len(shown)
    return Verdicts(
        title=f"All {total:,} {title[0].lower()}{title[1:]}" if is_whole else title,
        caption=_verdicts_caption(evaluated, len(shown)),
        items=[
            Verdict(
                input=task.tokens(evaluated.prompts[index]),
                output=task.tokens(evaluated.answers[index]),
                expected=task.tokens(evaluated.expected[index]),
                correct=bool(evaluated.correct[index]),
                confidence=float(evaluated.probabilities[index].min()),
            )
            for index in shown
        ],
    )


def _verdicts_caption(evaluated: EvaluatedInputs, num_shown: int) -> str:
    total = len(evaluated.prompts)
    if evaluated.are_all and num_shown == total:
        return "Every input, with the model's answer and the least probability among its choices."
    which = "all of them" if evaluated.are_all else "a random sample"
    return (
        f"{int(evaluated.correct.sum()):,} of the {total:,} inputs evaluated ({which}) are right; "
        f"shown are {num_shown:,}, as many wrong as right ones if possible."
    )
