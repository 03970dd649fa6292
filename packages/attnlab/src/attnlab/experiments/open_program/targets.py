"""The programs to learn, the part of each that is compiled, and a decoy of the same shape.

A decoy takes as many heads, hidden units and values as the part, and computes something else from
the same tokens and places. What a part saves beyond its decoy is what it knows, and not its size.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from attnlab.models.encoder import EncoderConfig
from attnlab.programs import (
    CompiledProgram,
    Program,
    aggregate,
    compile_program,
    indices,
    library,
    select,
    selector_width,
    tokens,
)
from attnlab.programs.interpreter import Meaning, every_input
from attnlab.programs.language import Sequence
from attnlab.programs.open_model import config_around
from attnlab.programs.values import Value

LETTERS = "abc"

same = select(tokens, tokens, "==")
before = select(indices, indices, "<")
place = selector_width(select(tokens, tokens, "<") | (same & before))
after = select(indices, indices, ">")
yet_to_come = selector_width(after | (same & select(indices, indices - 1, "==")))
how_often = selector_width(same)
how_far = selector_width(select(indices, indices, "<="))


def _letter_before(by: int) -> Sequence:
    return aggregate(select(indices, indices - by, "=="), tokens, library.FILLER)


@dataclass(frozen=True)
class Source:
    """A program to learn, what is compiled of it, the decoy, and both in words.

    best, is_of_use: what the claims say, as 20 seeds of another run showed: which of the kinds
    with the part is the quicker, and whether it does more for that than a decoy.
    """

    program: Callable[[str], Program]
    part: Sequence
    decoy: Sequence
    part_words: str
    decoy_words: str
    best: str = "frozen"
    is_of_use: bool = True


SOURCES = {
    "sort": Source(
        library.sort,
        place.map(str),
        yet_to_come.map(str),
        "the place of each letter in order",
        "how many letters follow, and one more where the letter before is the same",
        is_of_use=False,
    ),
    "induction": Source(
        library.induction,
        _letter_before(1),
        _letter_before(3),
        "the letter before each",
        "the letter three before",
        best="trainable",
    ),
    "sort_by_frequency": Source(
        library.sort_by_frequency,
        how_often.map(str),
        how_far.map(str),
        "how often each letter occurs",
        "how many positions there are so far",
    ),
}


@dataclass(frozen=True)
class Domain:
    """Every input, padded to the longest: ids with BOS first, which are real, the right answers as
    numbers of the values, and which count; (input, position) each."""

    ids: Tensor
    real: Tensor
    answers: Tensor
    counted: Tensor


@dataclass(frozen=True)
class Target:
    """A program to learn, compiled whole, its part and its decoy; all over one domain."""

    name: str
    source: Source
    whole: CompiledProgram
    part: CompiledProgram
    decoy: CompiledProgram
    config: EncoderConfig
    domain: Domain


def target_of(name: str, length: int) -> Target:
    """Compile what belongs to a program.

    The part and the decoy have one config, which has room for both: 2 free heads in each layer, and
    a layer after the part's last.
    """
    source = SOURCES[name]
    program = source.program(LETTERS)
    whole = compile_program(program, length)
    compiled = partial(compile_program, longest=length, dtype=torch.float32)
    part = compiled(Program(source.part, LETTERS, "part"))
    decoy = compiled(Program(source.decoy, LETTERS, "decoy"))
    config = config_around([part, decoy], whole.values)
    domain = domain_of(program, part, whole.values, length)
    return Target(name, source, whole, part, decoy, config, domain)


def domain_of(
    program: Program, reader: CompiledProgram, values: tuple[Value, ...], length: int
) -> Domain:
    """List every input of up to `length` letters, as `reader` reads it."""
    ids, real, answers = [], [], []
    places = {value: place for place, value in enumerate(values)}
    for size in range(1, length + 1):
        padding = ((0, 0), (0, length - size))
        for letters in every_input(program, size):
            meaning = Meaning(program, letters).of(program.output)
            codes = np.array([places[value] for value in meaning.values])[meaning.codes]
            rows = reader.with_bos(torch.from_numpy(letters)).numpy()
            first = ((0, 0), (int(reader.has_bos), 0))
            ids.append(np.pad(rows, padding))
            real.append(np.pad(np.ones(rows.shape, np.bool_), padding))
            answers.append(np.pad(np.pad(codes, first), padding))
    is_real = torch.from_numpy(np.concatenate(real))
    counted = is_real.clone()
    counted[:, : int(reader.has_bos)] = False
    return Domain(
        torch.from_numpy(np.concatenate(ids)),
        is_real,
        torch.from_numpy(np.concatenate(answers)),
        counted,
    )
