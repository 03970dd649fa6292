"""Every input of a program as one batch, with the right answers."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from attnlab.programs.compiled_program import CompiledProgram
from attnlab.programs.interpreter import ProgramValues, every_input
from attnlab.programs.language import Program
from attnlab.programs.values import Value


def whole_domain(
    program: Program, reader: CompiledProgram, values: Sequence[Value], ignored: int = -100
) -> tuple[dict[str, Tensor], Tensor]:
    """Return every input up to the longest, and the right answers.

    Args:
        program: gives the answers.
        reader: says how inputs are read: with BOS or without, and the longest.
        values: the answers that there are.
        ignored: stands where nothing is asked.

    Returns: {"tokens": (input, position), "real": likewise}, shorter inputs padded; and for each
    position the place of the right answer among the values.
    """
    rows, real, answers = [], [], []
    places = {value: place for place, value in enumerate(values)}
    for length in range(1, reader.longest + 1):
        for ids in every_input(program, length):
            meaning = ProgramValues(program, ids).of(program.output)
            codes = np.array([places[value] for value in meaning.values])
            extra = ((0, 0), (0, reader.longest - length))
            rows.append(np.pad(ids, extra))
            real.append(np.pad(np.ones_like(ids), extra))
            answers.append(np.pad(codes[meaning.codes], extra, constant_values=ignored))
    tokens, is_real, right = map(np.concatenate, (rows, real, answers))
    if reader.has_bos:
        front = ((0, 0), (1, 0))
        tokens = np.pad(tokens, front, constant_values=len(program.alphabet))
        is_real = np.pad(is_real, front, constant_values=1)
        right = np.pad(right, front, constant_values=ignored)
    inputs = {"tokens": torch.from_numpy(tokens), "real": torch.from_numpy(is_real).bool()}
    return inputs, torch.from_numpy(right)
