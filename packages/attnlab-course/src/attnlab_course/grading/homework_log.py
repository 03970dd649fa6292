"""The `submission_log.json` of the homework on hand-designed attention, as answers of the course.

The log holds matrices as flat lists without shapes, under keys such as `attention_by_content_Q`,
and the source of the two methods of a PyTorch class. Its homework asks for three things, so a log
answers three exercises, and what it lacks is a blank answer. Shapes follow from the lengths: values
are 3 numbers wide. The values that it says were computed are left alone.
"""

import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnlab_course.grading.record import CLASS, IMPORTS, RecordAnswer

HOMEWORK_LOG = "submission_log"
"""How the homework names the file, without its ending."""

_PROGRAM = "torch_transformer"
_PARTS = {
    "identity": tuple(f"attention_by_content_{name}" for name in ("K", "Q", "V")),
    "copy_first": tuple(f"attention_by_position_{name}" for name in ("K", "Q", "V", "pos")),
    _PROGRAM: ("torch_transformer_init", "torch_transformer_forward"),
}
"""The keys of a log, by the exercises that they answer."""

_V_DIM = 3  # of both designs: the letters A, B and C
_GIVEN_CLASS = "PytorchTransformer"  # as the homework calls it

# The homework keeps positions in an embedding, and names no error for too many tokens.
_ADAPTER = """


class {exercise_class}(nn.Module):
    def __init__(self, *sizes, written={log_class}):
        super().__init__()
        self.__dict__["written"] = written(*sizes)
        for name, part in self.written.named_children():
            if name == "pos" and isinstance(part, nn.Embedding):
                self.pos = part.weight
            else:
                self.add_module(name, part)
        for name, parameter in self.written.named_parameters(recurse=False):
            self.register_parameter(name, parameter)

    def train(self, mode=True):
        self.written.train(mode)
        return super().train(mode)

    def forward(self, seq):
        try:
            return self.written(seq)
        except Exception as error:
            table = getattr(self, "pos", None)
            if table is not None and len(seq) > len(table):
                raise ValueError("there are more tokens than positions") from error
            raise
"""


def is_homework_log(record: Any) -> bool:
    """Whether a JSON value is a log of the homework."""
    if not isinstance(record, Mapping):
        return False
    starts = ("attention_by_content", "attention_by_position", "torch_transformer_")
    return any(isinstance(key, str) and key.startswith(starts) for key in record)


def answers_of_log(log: Mapping[str, Any]) -> tuple[dict[str, RecordAnswer], list[str]]:
    """Return what a log answers, by the names of the exercises, and what it lacks in sentences.

    A part that is not there at all is an answer without anything in it.
    """
    answers: dict[str, RecordAnswer] = {}
    problems: list[str] = []
    for exercise, keys in _PARTS.items():
        parts = _written_parts(log, keys, str if exercise == _PROGRAM else list)
        missing = [key for key in keys if key not in parts]
        if missing:
            problems.append(f"{exercise}: the log lacks {', '.join(missing)}")
        answers[exercise] = {}
        if parts and exercise == _PROGRAM:
            answers[exercise] = _program(list(parts.values()))
        elif parts:
            matrices = _matrices({key: parts.get(key) for key in keys})
            answers[exercise] = {"weights": list(matrices.values())}
            problems += _misfits(exercise, matrices)
    return answers, problems


def _written_parts(log: Mapping[str, Any], keys: Iterable[str], kind: type) -> dict[str, Any]:
    """Return the parts of a log that are there, of the right kind and not empty."""
    return {key: log[key] for key in keys if isinstance(log.get(key), kind) and log[key]}


def _matrices(flat: Mapping[str, Any]) -> dict[str, NDArray[np.float64] | None]:
    """Give the flat lists of a design their shapes; one that fits none stays flat, and is wrong."""
    matrices = {key: _numbers(value) for key, value in flat.items()}
    values = matrices[_values_key(matrices)]
    width = 0 if values is None else values.size // _V_DIM
    shapes = {"V": (-1, _V_DIM), "pos": (-1, width - _V_DIM)}
    for key, matrix in matrices.items():
        if matrix is not None and matrix.ndim == 1:
            with suppress(ValueError):
                matrices[key] = matrix.reshape(shapes.get(key.rpartition("_")[2], (width, -1)))
    return matrices


def _misfits(exercise: str, matrices: Mapping[str, NDArray[np.float64] | None]) -> Iterator[str]:
    """Say which lists of a design have no length of a matrix: V, or what does not fit to it."""
    flat = {}
    for key, matrix in matrices.items():
        if matrix is not None and matrix.ndim != 2:
            flat[key] = matrix.size
    values = _values_key(matrices)
    if matrices[values] is None:
        return
    for key in [values] if values in flat else flat:
        rule = "V has rows of 3 numbers, and K, Q and pos fit to it"
        yield f"{exercise}: {key} has {flat[key]} numbers, which make no matrix: {rule}"


def _values_key(keys: Iterable[str]) -> str:
    return next(key for key in keys if key.endswith("_V"))


def _numbers(value: Any) -> NDArray[np.float64] | None:
    """Read a list of numbers, flat or in rows; None where it is none."""
    if value is None:
        return None
    try:
        return np.array(value, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        return None


def _program(methods: list[str]) -> RecordAnswer:
    """Write a program that defines the class, and what connects it with the exercise.

    The homework computes in float32 and the exercise in float64, so that is made the default.
    """
    body = "\n\n".join(_indented(text).rstrip() for text in methods)
    named = re.search(r"super\(\s*([A-Za-z_]\w*)\s*,", body)
    name = named[1] if named else _GIVEN_CLASS
    source = f"{IMPORTS}\n\nclass {name}(nn.Module):\n{body}\n"
    adapter = _ADAPTER.format(exercise_class=CLASS, log_class=name)
    return {"source": source, "adapter": f"\n\ntorch.set_default_dtype(torch.float64){adapter}"}


def _indented(text: str) -> str:
    """Return a method as it stands in a class; one that stands so already is left as it is."""
    text = text.lstrip("\r\n")
    if text[:1].isspace():
        return text
    return textwrap.indent(text, "    ")
