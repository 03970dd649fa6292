"""The `submission_log.json` of the homework on hand-designed attention, as answers of the course.

The log holds matrices as flat lists without shapes, under keys such as `attention_by_content_Q`,
and the source of the two methods of a PyTorch class. Its homework asks for three things, so a log
answers three exercises, and what it lacks is a blank answer. Shapes follow from the lengths: values
are 3 numbers wide. The values that it says were computed are left alone.
"""

import re
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnlab_course.grading.record import CLASS, IMPORTS, RecordAnswer

HOMEWORK_LOG = "submission_log"
"""How the homework names the file, without its ending."""

_DESIGNS = {
    "identity": ("attention_by_content", ("K", "Q", "V")),
    "copy_first": ("attention_by_position", ("K", "Q", "V", "pos")),
}
_METHODS = ("torch_transformer_init", "torch_transformer_forward")
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
    for exercise, (key, names) in _DESIGNS.items():
        flat = {name: log.get(f"{key}_{name}") for name in names}
        missing = [f"{key}_{name}" for name, numbers in flat.items() if numbers is None]
        if missing:
            problems.append(f"{exercise}: the log lacks {', '.join(missing)}")
        answers[exercise] = {}
        if len(missing) < len(names):
            matrices = _matrices(flat)
            answers[exercise] = {"weights": list(matrices.values())}
            problems += _misfits(f"{exercise}: {key}", matrices)
    methods = {name: log.get(name) for name in _METHODS}
    texts = [text for text in methods.values() if isinstance(text, str) and text.strip()]
    answers["torch_transformer"] = _program(texts) if texts else {}
    if len(texts) < len(methods):
        missing = [name for name, text in methods.items() if text not in texts]
        problems.append(f"torch_transformer: the log lacks {', '.join(missing)}")
    return answers, problems


def _matrices(flat: Mapping[str, Any]) -> dict[str, NDArray[np.float64] | None]:
    """Give the flat lists of a design their shapes; one that fits none stays flat, and is wrong."""
    matrices = {name: _numbers(value) for name, value in flat.items()}
    values = matrices["V"]
    if values is None or not values.size or values.size % _V_DIM:
        return matrices
    width = values.size // _V_DIM
    for name, matrix in matrices.items():
        if matrix is None or matrix.ndim != 1:
            continue
        if name == "pos":
            matrices[name] = _shaped(matrix, width - _V_DIM, (-1, width - _V_DIM))
        else:
            matrices[name] = _shaped(matrix, width, (width, -1))
    return matrices


def _shaped(
    numbers: NDArray[np.float64], divisor: int, shape: tuple[int, int]
) -> NDArray[np.float64]:
    if divisor < 1 or not numbers.size or numbers.size % divisor:
        return numbers
    return numbers.reshape(shape)


def _misfits(key: str, matrices: Mapping[str, NDArray[np.float64] | None]) -> Iterator[str]:
    """Say which lists of a design have no length of a matrix: V, or what does not fit to it."""
    values = matrices["V"]
    if values is None:
        return
    if values.ndim != 2:
        matrices = {"V": values}
    for name, matrix in matrices.items():
        if matrix is not None and matrix.ndim != 2:
            rule = "V has rows of 3 numbers, and K, Q and pos fit to it"
            yield f"{key}_{name} has {matrix.size} numbers, which make no matrix: {rule}"


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
