"""What a run of the sorter shows: the report's sections, its traces and its figures."""

from typing import Any

import torch
from torch import Tensor

from attnlab.experiments.experiment import Run
from attnlab.experiments.sections import parameters_section, settings_section
from attnlab.experiments.sorting.config import NAME, SortingConfig
from attnlab.experiments.sorting.judging import Judged, with_separator
from attnlab.look.trace import Trace, trace
from attnlab.models.decoder import Decoder
from attnlab.models.parameters import count_from_model
from attnlab.tasks.sequences import SEPARATOR, SequenceTask
from attnlab.train.loop import Trained

__all__ = ["make_document", "trace_prompts", "traces_to_show"]

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


def traces_to_show(model: Decoder, task: SequenceTask, judged: Judged) -> list[Trace]:
    """Trace the inputs that the page shows."""
    weights_each = model.config.num_layers * model.config.num_heads * task.row_length**2 // 2
    indices = shown_indices(judged)
    return trace_prompts(model, task, judged.prompts[indices[: max(1, _MOST_WEIGHTS // weights_each)]])


def shown_indices(judged: Judged) -> Tensor:
    """Choose the inputs that a page can hold: all, or as many wrong as right ones as far as there are."""
    wrong, right = (~judged.correct).nonzero().flatten(), judged.correct.nonzero().flatten()
    num_wrong = min(len(wrong), max(_MOST_TRACES // 2, _MOST_TRACES - len(right)))
    return torch.cat((wrong[:num_wrong], right[: _MOST_TRACES - num_wrong])).sort().values


def make_document(
    model: Decoder,
    task: SequenceTask,
    config: SortingConfig,
    context: Run,
    *,
    trained: Trained,
    judged: Judged,
    held_out: Judged | None,
    loss: float,
    traces: list[Trace],
) -> dict[str, Any]:
    """Lay out the report."""
    total, right = len(judged.prompts), int(judged.correct.sum())
    counts = count_from_model(model)
    x, y = _curve(trained, "loss")
    x_domain, y_domain = _curve(trained, "domain_loss")
    kept_out = "" if held_out is None else f"; kept out of training, {_right_of(held_out)}"
    inputs = "inputs" if judged.are_all else "sampled inputs"
    inputs += " trained on" if held_out is not None else ""
    return {
        "title": NAME if config.task == "sort" else f"{NAME}: {config.task}",
        "subtitle": (
            f"A decoder of {sum(counts.values()):,} parameters learns the task “{config.task}” over {config.letters} "
            f"letters; {right:,} of {total:,} {inputs} come out right{kept_out}."
        ),
        "facts": [
            ["seed", str(context.seed)],
            ["input", f"{task.prompt_length} of {config.letters} letters"],
            ["parameters", f"{sum(counts.values()):,}"],
            ["projections", config.projections],
            ["positions", config.positions],
            ["steps", f"{config.train_config().steps:,} (best at {trained.best_step:,})"],
            ["loss", f"{loss:.4f} nats"],
            ["least possible", f"{task.loss_floor:.4f} nats"],
            *([] if held_out is None else [["kept out of training", _right_of(held_out)]]),
        ],
        "sections": [
            {
                "kind": "trace",
                "figure": "attention",
                "figure_input": list(task.example),
                "title": "Step by step",
                "caption": (
                    "Choose an input and step through its answer. At each step the model looks back from the last "
                    "token it knows; each head spreads one unit of weight over the tokens so far (a row of its "
                    "picture), and the next token is the likeliest."
                ),
                "traces": [each.to_mapping() for each in traces],
            },
            _verdicts_section(task, judged, "Inputs" if held_out is None else "Inputs trained on"),
            *([] if held_out is None else [_verdicts_section(task, held_out, "Inputs kept out of training")]),
            {
                "kind": "lines",
                "figure": "loss",
                "title": "Loss",
                "caption": (
                    "Mean cross-entropy over all positions. The letters before SEP are random, and no model can "
                    "predict them; their entropy is the floor that no loss can go below."
                ),
                "x_label": "step",
                "y_label": "loss (nats per token)",
                "series": [
                    {"name": "training (mean of 50 steps)", "x": x, "y": y},
                    {"name": "whole domain" if judged.are_all else "fixed sample", "x": x_domain, "y": y_domain},
                ],
                "levels": [{"name": f"least possible {task.loss_floor:.4f}", "y": task.loss_floor}],
                "y_log": False,
            },
            parameters_section(model),
            settings_section(config),
        ],
    }


def _right_of(judged: Judged) -> str:
    return f"{int(judged.correct.sum()):,} of {len(judged.prompts):,} inputs right"


def _verdicts_section(task: SequenceTask, judged: Judged, title: str) -> dict[str, Any]:
    shown, total = shown_indices(judged).tolist(), len(judged.prompts)
    is_whole = judged.are_all and total == len(shown)
    return {
        "kind": "verdicts",
        "title": f"All {total:,} {title[0].lower()}{title[1:]}" if is_whole else title,
        "caption": _verdicts_caption(judged, len(shown)),
        "items": [
            {
                "input": task.tokens(judged.prompts[index]),
                "output": task.tokens(judged.answers[index]),
                "expected": task.tokens(judged.expected[index]),
                "correct": bool(judged.correct[index]),
                "confidence": float(judged.probabilities[index].min()),
            }
            for index in shown
        ],
    }


def _verdicts_caption(judged: Judged, num_shown: int) -> str:
    total = len(judged.prompts)
    if judged.are_all and num_shown == total:
        return "Every one of them, with the model's answer and the least probability among its choices."
    which = "all of them" if judged.are_all else "a random sample"
    return (
        f"{int(judged.correct.sum()):,} of the {total:,} inputs judged ({which}) came out right; "
        f"here are {num_shown:,}, as many wrong as right ones as far as there are."
    )


def _curve(trained: Trained, figure: str) -> tuple[list[int], list[float]]:
    lines = [line for line in trained.metrics if figure in line]
    return [line["step"] for line in lines], [line[figure] for line in lines]
