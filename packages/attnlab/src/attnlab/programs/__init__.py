"""Programs: write in Python what attention computes, and get a model that does it, with a proof."""

from attnlab.programs.compiled_program import CompiledProgram, open_compiled
from attnlab.programs.compiler import compile_program
from attnlab.programs.interpreter import interpret, steps_of
from attnlab.programs.language import (
    Program,
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
from attnlab.programs.lines import ProgramError
from attnlab.programs.open_model import OpenModel, config_around, model_around
from attnlab.programs.proof import ModelProof, prove_program, prove_task

__all__ = [
    "CompiledProgram", "ModelProof", "OpenModel", "Program", "ProgramError",
    "aggregate", "apply", "best", "compile_program", "config_around", "everything",
    "indices", "interpret", "model_around", "open_compiled", "prove_program", "prove_task",
    "select", "selector_width", "steps_of", "tokens", "total", "where",
]  # fmt: skip
