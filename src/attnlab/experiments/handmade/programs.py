"""The three tasks as programs, compiled and proved: what a hand-made head does, said in a line."""

from collections.abc import Iterable

from attnlab.draw.json_form import Scalar
from attnlab.draw.sections import Table
from attnlab.experiments.handmade.config import WORDS
from attnlab.programs import (
    Program,
    aggregate,
    compile_program,
    indices,
    prove_program,
    select,
    selector_width,
    tokens,
)
from attnlab.tasks.vectors import VectorTask

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_TOLERANCES = (1e-9, 0.2)  # least and largest of a compiled program

same = select(tokens, tokens, "==")
PROGRAMS = {
    "identity": aggregate(same, tokens),
    "copy_first": aggregate(select(indices, 0, "=="), tokens),
    "unique": selector_width(same) == 1,
}


def programs_section(tasks: Iterable[VectorTask], tolerance: float) -> Table:
    """Compile and prove the program of each task, and show both in a table."""
    least, largest = _TOLERANCES
    records: list[dict[str, Scalar]] = []
    for task in tasks:
        program = Program(PROGRAMS[task.rule], _LETTERS[: task.letters], task.rule)
        compiled = compile_program(
            program, task.longest, tolerance=min(max(tolerance, least), largest)
        )
        proof = prove_program(compiled, program)
        config = compiled.model.config
        records.append(
            {
                "task": task.rule,
                "program": repr(program.output),
                "heads": len(compiled.heads),
                "width of the stream": config.d_model,
                "hidden units": config.inner_width,
                "inputs": proof.inputs,
                "failures": proof.failures,
                "margin, less rounding": f"{proof.sure:.4g}",
            }
        )
    return Table.of_records(records=records, **WORDS.texts("programs"))
