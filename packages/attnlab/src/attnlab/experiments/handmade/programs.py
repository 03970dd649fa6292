"""The three tasks as programs, compiled and proved: what a hand-made head does, said in a line."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from attnlab.design import Design
from attnlab.draw.json_form import Scalar
from attnlab.draw.sections import Heatmap, MapChoice, Maps, Table
from attnlab.experiments.handmade import panels
from attnlab.experiments.handmade.cohorts import HeadCohort
from attnlab.experiments.handmade.config import WORDS
from attnlab.look import record
from attnlab.programs import (
    CompiledProgram,
    ModelProof,
    Program,
    aggregate,
    compile_program,
    indices,
    prove_program,
    select,
    selector_width,
    tokens,
)
from attnlab.programs.proof import write_certificate
from attnlab.tasks.vectors import VectorTask

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_TOLERANCES = (1e-9, 0.2)  # least and largest of a compiled program

same = select(tokens, tokens, "==")
PROGRAMS = {
    "identity": aggregate(same, tokens),
    "copy_first": aggregate(select(indices, 0, "=="), tokens),
    "unique": selector_width(same) == 1,
}


@dataclass(frozen=True)
class CompiledTask:
    """The program of a task as a model, and its proof on every input."""

    task: VectorTask
    program: Program
    compiled: CompiledProgram
    proof: ModelProof


def compile_task(task: VectorTask, tolerance: float) -> CompiledTask:
    """Compile the program of a task, and prove it."""
    least, largest = _TOLERANCES
    program = Program(PROGRAMS[task.rule], _LETTERS[: task.letters], task.rule)
    compiled = compile_program(program, task.longest, tolerance=min(max(tolerance, least), largest))
    return CompiledTask(task, program, compiled, prove_program(compiled, program))


def certificate_files(compiled: Sequence[CompiledTask]) -> dict[str, bytes]:
    """Return the folder of each model with its certificate, as files by path."""
    files = {}
    with TemporaryDirectory() as folder:
        for task in compiled:
            path = task.compiled.save(Path(folder) / "programs" / task.task.rule)
            if task.proof.is_sure:
                write_certificate(task.proof, path)
        for file in sorted(Path(folder).rglob("*.*")):
            files[str(file.relative_to(folder))] = file.read_bytes()
    return files


def programs_section(compiled: Sequence[CompiledTask]) -> Table:
    """Show the program of each task, what it is made into, and its proof."""
    records: list[dict[str, Scalar]] = []
    for task in compiled:
        config = task.compiled.model.config
        record: dict[str, Scalar] = {
            "task": task.task.rule,
            "program": repr(task.program.output),
            "heads": len(task.compiled.heads),
            "width of the stream": config.d_model,
            "hidden units": config.inner_width,
            "inputs": task.proof.inputs,
            "failures": task.proof.failures,
            "margin left after rounding": f"{task.proof.sure:.4g}",
        }
        records.append(record)
    return Table.of_records(records=records, **WORDS.texts("programs"))


def program_maps(
    compiled: Sequence[CompiledTask], pairs: Sequence[tuple[Design, HeadCohort]]
) -> Maps:
    """Show where the hand-made, a learned and the compiled head look, on some inputs."""
    choices = []
    for task, (design, cohort) in zip(compiled, pairs, strict=True):
        choices += [_choice(task, design, cohort, text) for text in panels.INPUTS[design.task.rule]]
    return Maps(choices=choices, **WORDS.texts("program_maps"))


def _choice(
    compiled_task: CompiledTask, design: Design, cohort: HeadCohort, text: str
) -> MapChoice:
    task = compiled_task.task
    names, maps = panels.numbered(task.tokens(task.parse(text)), task), []
    for who, kept in panels.panels_of(design, cohort, text).items():
        maps.append(Heatmap.of_weights(who, kept.attention.tolist(), names, names))
    with record(compiled_task.compiled.model, "layers.*.attention.weights") as recording:
        compiled_task.compiled.logits(compiled_task.compiled.ids([text]))
    names = [*["BOS"] * compiled_task.compiled.has_bos, *text]
    for name in compiled_task.compiled.heads:
        layer, number = name.split(".")
        weights = recording[f"layers.{layer}.attention.weights"][0, int(number)].tolist()
        title = f"compiled, head {name}"
        maps.append(Heatmap.of_weights(title, weights, names, names))
    return MapChoice(
        label=f"{task.rule}: {text}", note=repr(compiled_task.program.output), maps=maps
    )
