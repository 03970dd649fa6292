"""Programs: say in Python what attention should do, and get a model that does it, proved."""

from attnlab.programs.compiled import Compiled, open_compiled
from attnlab.programs.compiler import compile_program
from attnlab.programs.interpreter import interpret, steps_of
from attnlab.programs.language import (
    Program,
    ProgramError,
    aggregate,
    apply,
    best,
    everything,
    indices,
    select,
    selector_width,
    tokens,
    total,
    where,
)
from attnlab.programs.proof import ProgramProof, prove_program

__all__ = [
    "Compiled", "Program", "ProgramError", "ProgramProof", "aggregate", "apply", "best",
    "compile_program", "everything", "indices", "interpret", "open_compiled", "prove_program",
    "select", "selector_width", "steps_of", "tokens", "total", "where",
]  # fmt: skip
