"""The report of `sorting`: its sections and traces."""

import torch
from torch import Tensor

from attnlab.draw.sections import (
    Level,
    Lines,
    ReportContent,
    Traces,
    Verdict,
    Verdicts,
    shown_trace,
)
from attnlab.experiments.sections import metric_series, parameters_section, settings_section
from attnlab.experiments.sorting.config import NAME, WORDS
from attnlab.experiments.sorting.sorting_claims import (
    EvaluatedInputs,
    SorterEvaluation,
    with_separator,
)
from attnlab.look.trace import Trace, trace
from attnlab.models.decoder import Decoder
from attnlab.models.parameters import count_from_model
from attnlab.tasks.sequences import SEPARATOR, SequenceTask
from attnlab.train.loop import Trained

_MOST_TRACES = 200
_MOST_WEIGHTS = 500_000  # attention weights that a page holds in all


def traces_to_show(model: Decoder, task: SequenceTask, evaluated: EvaluatedInputs) -> list[Trace]:
    """Trace the inputs that the page shows."""
    weights_each = model.config.num_layers * model.config.num_heads * task.row_length**2 // 2
    indices = shown_indices(evaluated)[: max(1, _MOST_WEIGHTS // weights_each)]
    traces = trace(
        model,
        with_separator(evaluated.prompts[indices]),
        task.answer_length,
        task.vocabulary,
        forbidden=[SEPARATOR],
        num_input=task.prompt_length,
    )
    return list(map(shown_trace, traces))


def shown_indices(evaluated: EvaluatedInputs) -> Tensor:
    """Choose the inputs that a page can hold: all, or as many wrong as right ones if possible."""
    wrong, right = (~evaluated.correct).nonzero().flatten(), evaluated.correct.nonzero().flatten()
    num_wrong = min(len(wrong), max(_MOST_TRACES // 2, _MOST_TRACES - len(right)))
    return torch.cat((wrong[:num_wrong], right[: _MOST_TRACES - num_wrong])).sort().values


def make_content(result: SorterEvaluation, trained: Trained) -> ReportContent:
    """Make the report's content."""
    config, evaluated, held_out = result.config, result.evaluated, result.held_out
    task = config.sequence_task()
    inputs, judged = "sampled inputs", "fixed sample"
    if evaluated.are_all:
        inputs, judged = "inputs", "whole domain"
    verdicts = [_verdicts_section(task, evaluated, "Inputs")]
    kept_out, subtitle_end = "", "."
    if held_out is not None:
        inputs += " trained on"
        kept_out = f"{held_out.right:,} of {held_out.total:,} inputs right"
        subtitle_end = f"; held out of training, {kept_out}."
        verdicts = [
            _verdicts_section(task, evaluated, "Inputs trained on"),
            _verdicts_section(task, held_out, "Inputs held out of training"),
        ]
    numbers = {
        "result": result,
        "task": task,
        "steps": config.train_config().steps,
        "best_step": trained.best_step,
        "parameters": sum(count_from_model(result.model).values()),
        "held_out": kept_out,
    }
    title = NAME
    if config.task != "sort":
        title += f": {config.task}"
    return ReportContent(
        title=title,
        subtitle=f"A decoder of {numbers['parameters']:,} parameters learns the task "
        f"“{config.task}” over {config.letters} letters; {evaluated.right:,} of "
        f"{evaluated.total:,} {inputs} are answered right{subtitle_end}",
        facts=[fact for fact in WORDS.texts("facts", numbers).items() if fact[1]],
        sections=[
            Traces(
                figure="attention",
                figure_input=list(task.example),
                traces=traces_to_show(result.model, task, evaluated),
                **WORDS.texts("traces"),
            ),
            *verdicts,
            Lines(
                figure="loss",
                series=[
                    metric_series("training (mean of 50 steps)", trained.metrics, "loss"),
                    metric_series(judged, trained.metrics, "domain_loss"),
                ],
                levels=[Level(name=f"least possible {task.loss_floor:.4f}", y=task.loss_floor)],
                **WORDS.texts("loss"),
            ),
            parameters_section(result.model),
            settings_section(config),
        ],
    )


def _verdicts_section(task: SequenceTask, evaluated: EvaluatedInputs, title: str) -> Verdicts:
    items = []
    for index in shown_indices(evaluated).tolist():
        item = Verdict(
            input=task.tokens(evaluated.prompts[index]),
            output=task.tokens(evaluated.answers[index]),
            expected=task.tokens(evaluated.expected[index]),
            correct=bool(evaluated.correct[index]),
            confidence=float(evaluated.probabilities[index].min()),
        )
        items.append(item)
    if evaluated.are_all and evaluated.total == len(items):
        title = f"All {evaluated.total:,} {title[0].lower()}{title[1:]}"
        return Verdicts(title=title, caption=WORDS.text("every_verdict"), items=items)
    drawn = "all of them" if evaluated.are_all else "a random sample"
    caption = (
        f"{evaluated.right:,} of the {evaluated.total:,} inputs evaluated ({drawn}) are right; "
        f"shown are {len(items):,}, as many wrong as right ones if possible."
    )
    return Verdicts(title=title, caption=caption, items=items)
