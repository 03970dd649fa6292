"""The sections that the reports of all experiments share: problem, parameters, settings."""

from collections.abc import Sequence
from typing import Any

from torch import nn

from attnlab.configs import Config
from attnlab.experiments.experiment import ProblemDescription
from attnlab.models.parameters import count_from_model

__all__ = ["parameters_section", "problem_section", "settings_section"]

_MOST_PROBLEMS = 4


def parameters_section(model: nn.Module) -> dict[str, Any]:
    """List the parameters of a model by part, and their sum."""
    counts = count_from_model(model)
    return {
        "kind": "table",
        "title": "Parameters",
        "caption": (
            "Counted in the model, part by part; arithmetic from the settings gives the same."
        ),
        "columns": ["part", "parameters"],
        "rows": [*([part, count] for part, count in counts.items()), ["all", sum(counts.values())]],
    }


def problem_section(problems: Sequence[ProblemDescription]) -> dict[str, Any]:
    """Describe each problem once: its task, and when a model counts as having solved it."""
    different = list(dict.fromkeys(problems))
    paragraphs = [
        f"{_sentence(problem.task)} Solved means: {_sentence(problem.solved, 0)}"
        for problem in different[:_MOST_PROBLEMS]
    ]
    if len(different) > _MOST_PROBLEMS:
        paragraphs.append(
            f"And {len(different) - _MOST_PROBLEMS:,} more, which differ in their settings."
        )
    return {"kind": "text", "title": "The task", "text": "\n\n".join(paragraphs)}


def _sentence(words: str, start: int = 1) -> str:
    return f"{words[:start].upper()}{words[start:]}."


def settings_section(config: Config) -> dict[str, Any]:
    """List every setting of the run with its value and meaning."""
    values = config.to_mapping()
    return {
        "kind": "table",
        "title": "Settings",
        "caption": "Change any of them with --set name=value.",
        "columns": ["setting", "value", "meaning"],
        "rows": [[each.name, _word(values[each.name]), each.comment] for each in config.options()],
    }


def _word(value: Any) -> str:
    return "none" if value is None else str(value)
