"""The three tasks as programs, compiled and proved: what a hand-made head does, said in a line."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor

from attnlab.design import Design
from attnlab.draw.json_form import Scalar
from attnlab.draw.sections import Heatmap, MapChoice, Maps, Table, Texts
from attnlab.experiments.handmade import panels
from attnlab.experiments.handmade.cohorts import Cohort
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
            "margin, less rounding": f"{task.proof.sure:.4g}",
        }
        records.append(record)
    return Table.of_records(records=records, **WORDS.texts("programs"))


def program_maps(compiled: Sequence[CompiledTask], pairs: Sequence[tuple[Design, Cohort]]) -> Maps:
    """Show where the hand-made, a learned and the compiled head look, on some inputs."""
    choices = []
    for task, (design, cohort) in zip(compiled, pairs, strict=True):
        choices += [_choice(task, design, cohort, text) for text in panels.INPUTS[design.task.rule]]
    return Maps(choices=choices, **WORDS.texts("program_maps"))


def _choice(compiled_task: CompiledTask, design: Design, cohort: Cohort, text: str) -> MapChoice:
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


def _certificate_text(task: CompiledTask) -> str:
    proof = task.proof
    if not proof.is_sure:
        return f"No certificate: {proof}."
    return (
        f"Certificate: all {proof.inputs:,} inputs of up to {proof.proved_to} letters are right by "
        f"{proof.sure:.3g} more than rounding can change ({proof.dtype}); outputs sha256 "
        f"{proof.outputs[:12]}…; programs/{task.task.rule}/check.py checks it again."
    )


def program_weights(
    compiled: Sequence[CompiledTask], pairs: Sequence[tuple[Design, Cohort]]
) -> Maps:
    """Show the matrices of the hand-made, a learned and the compiled head of each task."""
    choices = []
    for task, (design, cohort) in zip(compiled, pairs, strict=True):
        note = f"Program: {task.program.output}. {_certificate_text(task)}"
        maps = [*_side_by_side(task, design, cohort), *_beyond_the_head(task)]
        choices.append(MapChoice(label=task.task.rule, note=note, maps=maps))
    return Maps(choices=choices, **WORDS.texts("program_weights"))


def _side_by_side(task: CompiledTask, design: Design, cohort: Cohort) -> list[Heatmap]:
    """Draw Km, Qm and Vm of each head, one beside the other."""
    heads = {"by hand": design.model().matrices()}
    if cohort.finite:
        heads["learned"] = cohort.finite[0].matrices()
    attention: Any = task.compiled.model.layers[0].attention
    maps = []
    for name, part in (("Km", "key"), ("Qm", "query"), ("Vm", "value")):
        for who, matrices in heads.items():
            matrix: Tensor = getattr(matrices, name).double()
            names = panels.feature_names(task.task, len(matrix))
            maps.append(_map(f"{name}, {who}", matrix, names, _numbers(matrix.shape[1])))
        maps.append(_linear_map(f"{name}, compiled", getattr(attention, part), _stream(task)))
    return maps


def _beyond_the_head(task: CompiledTask) -> list[Heatmap]:
    """Draw what a transformer has besides: what the head and the hidden units write, and what is
    read from the stream. Parts that hold nothing but zeros are left out."""
    model, stream = task.compiled.model, _stream(task)
    layer: Any = model.layers[0]
    units = [f"u{number}" for number in _numbers(len(layer.feed_forward.inner.weight))]
    answers = ["number"]
    if task.compiled.numbers is None:
        answers = list(map(str, task.compiled.values))
    parts: list[tuple[str, Any, Texts | None, Texts]] = [
        ("head writes", layer.attention.output, None, stream),
        ("hidden units read", layer.feed_forward.inner, stream, units),
        ("hidden units write", layer.feed_forward.outer, units, stream),
        ("answer", model.head, stream, answers),
    ]
    maps = []
    for name, linear, rows, columns in parts:
        if linear.weight.any() or linear.bias.any():
            maps.append(_linear_map(f"{name}, compiled", linear, rows, columns))
    return maps


def _linear_map(
    title: str, linear: Any, rows: Texts | None, columns: Texts | None = None
) -> Heatmap:
    """Draw a layer as one writes it, x W: its bias is the last row, if it has one."""
    matrix, bias = linear.weight.detach().double().T, linear.bias.detach().double()
    rows = list(rows or _numbers(len(matrix)))
    if bias.any():
        matrix, rows = torch.cat((matrix, bias[None])), [*rows, "bias"]
    return _map(title, matrix, rows, columns or _numbers(matrix.shape[1]))


def _map(title: str, matrix: Tensor, rows: Texts, columns: Texts) -> Heatmap:
    return panels.signed_map(title, matrix, rows, columns, ("from", "to"))


def _numbers(count: int) -> list[str]:
    return list(map(str, range(1, count + 1)))


def _stream(task: CompiledTask) -> list[str]:
    """Name the dimensions of the residual stream by what they hold."""
    names = [f"free {number}" for number in _numbers(task.compiled.model.config.d_model)]
    computed = itertools.count(1)
    for block, first, last in task.compiled.stream:
        width = last - first + 1
        if block == "tokens":
            rows = list(map(str, task.compiled.alphabet))
        elif block == "indices":
            rows = [f"p{number}" for number in _numbers(width)]
        elif block == "bos":
            rows = ["BOS"]
        else:
            rows = [f"r{next(computed)}" for _ in range(width)]
        names[first : last + 1] = rows
    return names
