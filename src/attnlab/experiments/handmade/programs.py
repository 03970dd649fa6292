"""The three tasks as programs, compiled and proved: what a hand-made head does, said in a line."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from attnlab.design import Design
from attnlab.draw.json_form import Scalar
from attnlab.draw.sections import Heatmap, MapChoice, Maps, Table
from attnlab.experiments.handmade.cohorts import Cohort
from attnlab.experiments.handmade.config import WORDS
from attnlab.experiments.handmade.panels import INPUTS, numbered
from attnlab.look import record
from attnlab.parts.numpy_transformer import NumpyTransformer
from attnlab.programs import (
    Compiled,
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
    compiled: Compiled
    proof: ModelProof


def compile_task(task: VectorTask, tolerance: float) -> CompiledTask:
    """Compile the program of a task, and prove it."""
    least, largest = _TOLERANCES
    program = Program(PROGRAMS[task.rule], _LETTERS[: task.letters], task.rule)
    compiled = compile_program(program, task.longest, tolerance=min(max(tolerance, least), largest))
    return CompiledTask(task, program, compiled, prove_program(compiled, program))


def certificate_files(compiled: Sequence[CompiledTask]) -> dict[str, bytes]:
    """Return the folder of each model with its certificate, as files by path."""
    found = {}
    with TemporaryDirectory() as folder:
        for each in compiled:
            path = each.compiled.save(Path(folder) / "programs" / each.task.rule)
            if each.proof.is_sure:
                write_certificate(each.proof, path)
        for file in sorted(Path(folder).rglob("*.*")):
            found[str(file.relative_to(folder))] = file.read_bytes()
    return found


def programs_section(compiled: Sequence[CompiledTask]) -> Table:
    """Show the program of each task, what it is made into, and its proof."""
    records: list[dict[str, Scalar]] = []
    for each in compiled:
        config = each.compiled.model.config
        records.append(
            {
                "task": each.task.rule,
                "program": repr(each.program.output),
                "heads": len(each.compiled.heads),
                "width of the stream": config.d_model,
                "hidden units": config.inner_width,
                "inputs": each.proof.inputs,
                "failures": each.proof.failures,
                "margin, less rounding": f"{each.proof.sure:.4g}",
            }
        )
    return Table.of_records(records=records, **WORDS.texts("programs"))


def program_maps(compiled: Sequence[CompiledTask], pairs: Sequence[tuple[Design, Cohort]]) -> Maps:
    """Show where the hand-made, a learned and the compiled head look, on some inputs."""
    choices = []
    for each, (design, cohort) in zip(compiled, pairs, strict=True):
        choices += [_choice(each, design, cohort, text) for text in INPUTS[design.task.rule]]
    return Maps(choices=choices, **WORDS.texts("program_maps"))


def _choice(each: CompiledTask, design: Design, cohort: Cohort, text: str) -> MapChoice:
    task = each.task
    ids = task.parse(text)
    x = task.vectors(ids, torch.float64).numpy()
    heads = {"by hand": design.reference()}
    if cohort.finite:
        heads["learned"] = NumpyTransformer(*cohort.finite[0].matrices())
    names = numbered(task.tokens(ids), task)
    maps = [
        Heatmap.of_weights(who, head.panels(x).attention.tolist(), names, names)
        for who, head in heads.items()
    ]
    with record(each.compiled.model, "layers.*.attention.weights") as recording:
        each.compiled.logits(each.compiled.ids([text]))
    names = [*["BOS"] * each.compiled.has_bos, *text]
    for name in each.compiled.heads:
        layer, head = name.split(".")
        weights = recording[f"layers.{layer}.attention.weights"][0, int(head)].tolist()
        title = f"compiled, head {name}"
        maps.append(Heatmap.of_weights(title, weights, names, names))
    return MapChoice(label=f"{task.rule}: {text}", note=repr(each.program.output), maps=maps)
