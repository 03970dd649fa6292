"""The programs to learn, the part of each that is compiled, and a decoy of the same shape.

A decoy takes as many heads, hidden units and values as the part, and computes something else from
the same tokens and places. What a part saves beyond its decoy is what it knows, and not its size.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from attnlab.models.encoder import EncoderConfig
from attnlab.programs import (
    CompiledProgram,
    Program,
    compile_program,
    indices,
    library,
    select,
    selector_width,
    tokens,
)
from attnlab.programs.language import Sequence
from attnlab.programs.library import after, before, how_often, same, shifted, so_far
from attnlab.programs.open_model import config_around
from attnlab.programs.whole_domain import whole_domain

LETTERS = "abc"

place = selector_width(select(tokens, tokens, "<") | (same & before))
yet_to_come = selector_width(after | (same & select(indices, indices - 1, "==")))
how_far = selector_width(so_far)


@dataclass(frozen=True)
class TargetSource:
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
    "sort": TargetSource(
        library.sort,
        place.map(str),
        yet_to_come.map(str),
        "the place of each letter in order",
        "how many letters follow, and one more where the letter before is the same",
        is_of_use=False,
    ),
    "induction": TargetSource(
        library.induction,
        shifted(1),
        shifted(3),
        "the letter before each",
        "the letter three before",
        best="trainable",
    ),
    "sort_by_frequency": TargetSource(
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
class ProgramTarget:
    """A program to learn, compiled whole, its part and its decoy; all over one domain."""

    name: str
    source: TargetSource
    whole: CompiledProgram
    part: CompiledProgram
    decoy: CompiledProgram
    config: EncoderConfig
    domain: Domain


def target_of(name: str, length: int) -> ProgramTarget:
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
    inputs, answers = whole_domain(program, part, whole.values)
    counted = answers >= 0
    domain = Domain(inputs["tokens"], inputs["real"], answers.clamp(min=0), counted)
    return ProgramTarget(name, source, whole, part, decoy, config, domain)
