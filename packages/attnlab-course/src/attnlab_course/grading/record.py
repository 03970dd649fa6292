"""The submission record of `handmade` as answers to the exercises of the course.

A record (`attnlab.design.submission`) holds the matrices of the three hand designs and the source
of the student's PyTorch class. Its values and proofs are left alone: grading proves the matrices
anew and runs the source again.
"""

import ast
import reprlib
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict, get_args

import numpy as np
from numpy.typing import NDArray

from attnlab.design.submission import METHODS
from attnlab.errors import WrongUsage
from attnlab.models.single_head import SingleHead, SingleHeadConfig
from attnlab.tasks.vectors import VectorRule
from attnlab_course.cells import parse_program

FORM = "attnlab submission 1"
"""The form of the records that are read."""

CLASS = "TorchTransformer"
"""What the exercise calls the class."""

IMPORTS = """\
import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor
"""
"""What a program begins with whose class was cut out of a student's file."""


class RecordAnswer(TypedDict, total=False):
    """An answer that a record holds: matrices [Km, Qm, Vm] or [Km, Qm, Vm, pos], or a program with
    what connects its names to those of the exercise. One without any of them is blank."""

    weights: Sequence[NDArray[np.float64] | None]
    source: str
    adapter: str


def answers_of_record(record: Any) -> dict[str, RecordAnswer]:
    """Return what a record answers, by the names of the exercises.

    `identity`, `copy_first` and `unique` get the matrices of their designs, `torch_transformer` a
    program with the student's class, if Python knew its source when the record was made. The class
    of attnlab itself, which `attnlab run handmade` puts into its record, is no answer.

    Raises:
        WrongUsage: this is no record, two designs are for one task, a design has no matrices, or
            the source is not that of two methods.
    """
    _check_parts(record)
    answers: dict[str, RecordAnswer] = {}
    for design in record["designs"]:
        rule = _rule(design)
        if rule in answers:
            raise WrongUsage(f"the record has two designs for {rule}; keep one of them.")
        answers[rule] = {"weights": _matrices(rule, design)}
    source = _program(record["class"], record["source"])
    if source is not None:
        answers["torch_transformer"] = {"source": source}
    return answers


def _check_parts(record: Any) -> None:
    """Raise unless a record has the form and all its parts."""
    if not isinstance(record, Mapping) or record.get("form") != FORM:
        raise WrongUsage(
            f"expected a record of the form {FORM!r}, or the submission_log.json of the homework "
            f"on hand-designed attention; got {_short(record)}."
        )
    missing = [name for name in ("class", "source", "designs") if name not in record]
    if missing:
        raise WrongUsage(f"the record lacks {', '.join(missing)}; make it again.")
    if not isinstance(record["designs"], list):
        raise WrongUsage(f"designs must be a list of designs; got {_short(record['designs'])}.")


def _rule(design: Any) -> str:
    task = design.get("task") if isinstance(design, Mapping) else None
    rule = task.get("rule") if isinstance(task, Mapping) else None
    if not isinstance(rule, str) or rule not in get_args(VectorRule):
        known = ", ".join(get_args(VectorRule))
        raise WrongUsage(f"a design's task has one of the rules {known}; got {_short(rule)}.")
    return rule


def _matrices(rule: str, design: Mapping[str, object]) -> list[NDArray[np.float64]]:
    """Read the matrices of a design; positions come last, if there are any."""
    names = ["Km", "Qm", "Vm"]
    if design.get("pos") is not None:
        names.append("pos")
    return [_matrix(f"{name} of {rule}", design.get(name)) for name in names]


def _matrix(name: str, value: object) -> NDArray[np.float64]:
    try:
        matrix = np.array(value, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        matrix = np.array(np.nan)
    if matrix.ndim != 2:
        raise WrongUsage(f"{name} must be a matrix, rows of numbers; got {_short(value)}.")
    return matrix


def _program(name: Any, source: Any) -> str | None:
    """Write a program that defines the class; None where a method's source is not known."""
    if not isinstance(name, str) or not name.isidentifier():
        raise WrongUsage(f"class must be the name of a class; got {_short(name)}.")
    if not isinstance(source, Mapping) or set(source) != set(METHODS):
        raise WrongUsage(f"source must hold {' and '.join(METHODS)}; got {_short(source)}.")
    if any(source[method] is None for method in METHODS):
        return None
    if name == SingleHead.__name__ and SingleHeadConfig.__name__ in str(source["__init__"]):
        return None
    body = "\n\n".join(_method(method, source[method]) for method in METHODS)
    return f"{IMPORTS}\n\nclass {name}(nn.Module):\n{body}\n\n\n{CLASS} = {name}\n"


def _method(name: str, text: Any) -> str:
    """Return the source of a method, indented as in a class."""
    if not isinstance(text, str):
        raise WrongUsage(f"the source of {name} must be text; got {_short(text)}.")
    text = textwrap.dedent(text).strip("\n")
    if not _defines(text, name):
        raise WrongUsage(
            f"the source of {name} must be its definition, def {name}(…); got {_short(text)}."
        )
    return textwrap.indent(text, "    ")


def _defines(text: str, method: str) -> bool:
    """Whether a text is one definition of a method and nothing else; it is read, never run."""
    tree = parse_program(text)
    if tree is None or len(tree.body) != 1:
        return False
    (statement,) = tree.body
    return isinstance(statement, ast.FunctionDef) and statement.name == method


def _short(value: Any) -> str:
    text = " ".join(reprlib.repr(value).split())
    if len(text) > 80:
        return text[:80] + " …"
    return text
