"""`prove`: one name for all proofs, of designs, of compiled programs and of what was learned."""

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from attnlab import design
from attnlab.design import Proof
from attnlab.display import Card, displayed
from attnlab.errors import WrongUsage, type_words
from attnlab.experiments.opener import open
from attnlab.experiments.population.population import Population
from attnlab.experiments.report import Report
from attnlab.models import Decoder, Encoder
from attnlab.programs import CompiledProgram, ModelProof, Program, prove_program, prove_task
from attnlab.programs.proof import save_model_and_task, write_certificate
from attnlab.tasks.sequences import SequenceTask
from attnlab.tasks.vectors import VectorTask

Asked = VectorTask | SequenceTask | Program | str | None


@displayed
@dataclass(frozen=True)
class PopulationProof:
    """A proof of each member of a population.

    Attributes:
        name: of the experiment.
        proofs: by the member's name, such as "17".
    """

    name: str
    proofs: Mapping[str, ModelProof]

    @property
    def holds(self) -> bool:
        """Is every member right on every input?"""
        return all(proof.holds for proof in self.proofs.values())

    @property
    def proved(self) -> list[str]:
        """The members that are right by more than rounding can change."""
        return [name for name, proof in self.proofs.items() if proof.is_sure]

    @property
    def failed(self) -> dict[str, ModelProof]:
        """The members that are wrong somewhere; each proof has its counter-example."""
        return {name: proof for name, proof in self.proofs.items() if not proof.holds}

    def to_mapping(self) -> dict[str, object]:
        """Return every proof as plain values for JSON."""
        return {name: proof.to_mapping() for name, proof in self.proofs.items()}

    def _card(self) -> Card:
        rows = []
        for name, proof in self.proofs.items():
            example = proof.counterexample or ""
            if not example and not proof.is_sure:
                example = "rounding may exceed"
            numbers = [f"{proof.margin:.3g}", f"{proof.sure:.3g}"]
            rows.append([name, proof.failures, *numbers, str(example)])
        return Card(
            str(self), columns=("seed", "failures", "margin", "left after rounding", ""), rows=rows
        )

    def __str__(self) -> str:
        number, proved, failed = len(self.proofs), len(self.proved), len(self.failed)
        inputs, unsure = next(iter(self.proofs.values())).inputs, number - proved - failed
        words = f"{self.name}: {proved} of {number} models proved on all {inputs:,} inputs"
        if unsure:
            words += f"; {unsure} right, but not certified: rounding may exceed the margin"
        if failed:
            words += f"; {failed} fail"
        return words


def prove(
    subject: Any, task: Asked = None, *, dtype: torch.dtype | None = None, **options: Any
) -> Proof | ModelProof | PopulationProof:
    """Prove a model right on every input by more than rounding can change, or find the first that
    fails.

    Args:
        subject: a design or a `SingleHead`; a compiled program; a decoder; or a run or a population
            of sorting, or its folder.
        task: what is right: a `VectorTask` or its name (a design knows its own), the `Program`, or
            a `SequenceTask` (a run knows its own).
        dtype: of the arithmetic, float32 or float64; None for the subject's own.
        options: `tolerance` of a design or a head (see `attnlab.design.prove`); `longest`, `most`,
            `progress` and `state` of a program, the last three of a sequence task too (see
            `attnlab.programs.prove_program`).

    Returns:
        the `Proof` of a design, the `ModelProof` of a program or a model, or the `PopulationProof`
        of a population: `holds`, `inputs`, the `counterexample` if there is one.

    Raises:
        WrongUsage: subject and task do not belong together, or no proof can be had of this model.

    >>> from attnlab.programs import compile_program, library
    >>> program = library.hist("ab")
    >>> print(prove(compile_program(program, 3), program))  # doctest: +ELLIPSIS
    hist: proved on all 14 inputs of up to 3 tokens
    ...
    """
    if isinstance(subject, str | Path):
        subject = open(subject)
    if isinstance(subject, Report):
        return prove_run(subject, dtype=dtype, **options)
    if isinstance(subject, Population):
        return prove_population(subject, dtype=dtype, **options)
    if isinstance(task, Program):
        return prove_program(_compiled_in(subject, dtype), task, **options)
    if isinstance(task, SequenceTask):
        if not isinstance(subject, Decoder):
            raise WrongUsage(f"{task.rule} is proved of a decoder; got {type_words(subject)}.")
        return prove_task(in_arithmetic(subject, dtype), task, **options)
    if isinstance(subject, Encoder):
        raise WrongUsage(
            "an encoder by itself does not know what its ids mean; prove the compiled program that "
            "it is the model of, with its Program."
        )
    wanted = {CompiledProgram: "the Program", Decoder: 'SequenceTask("sort", 3, 3)'}
    for kind, right in wanted.items():
        if isinstance(subject, kind):
            raise WrongUsage(f"say what is right as the second argument: {right}; got {task!r}.")
    return design.prove(subject, task, dtype=dtype, **options)


def prove_run(report: Report, *, dtype: torch.dtype | None = None, **options: Any) -> ModelProof:
    """Prove the model of a run with a sequence task."""
    task = _task_of(report.experiment, report.reader.config)
    return prove_task(in_arithmetic(_decoder(report.model), dtype), task, **options)


def prove_population(
    population: Population,
    *,
    dtype: torch.dtype | None = None,
    out: Path | None = None,
    **options: Any,
) -> PopulationProof:
    """Prove every member of a population that did not diverge.

    out: a folder; each member that is proved gets one in it, with its certificate.
    """
    proofs = {}
    for index in range(len(population)):
        name = population.name(index)
        if name in population.faults:
            continue
        task = _task_of(population.experiment, population.config)
        model = in_arithmetic(_decoder(population.model_at(index)), dtype)
        proofs[name] = prove_task(model, task, **options)
        if out is not None and proofs[name].is_sure:
            save_model_and_task(model, task, out / name)
            write_certificate(proofs[name], out / name)
    if not proofs:
        raise WrongUsage("every member of this population diverged; there is nothing to prove.")
    return PopulationProof(population.experiment, proofs)


def certify_run(report: Report, proof: ModelProof, folder: Path) -> None:
    """Write the model of a run, its task and its certificate into a folder.

    Raises:
        CouldNotRun: the proof does not hold, or rounding may exceed its margin.
    """
    dtype = getattr(torch, proof.dtype)
    model = in_arithmetic(_decoder(report.model), dtype)
    save_model_and_task(model, _task_of(report.experiment, report.reader.config), folder)
    write_certificate(proof, folder)


def in_arithmetic(model: Any, dtype: torch.dtype | None) -> Any:
    """Return a model that computes in a dtype (None: as it is)."""
    if dtype is None or next(model.parameters()).dtype == dtype:
        return model
    return copy.deepcopy(model).to(dtype)


def _compiled_in(subject: Any, dtype: torch.dtype | None) -> CompiledProgram:
    if not isinstance(subject, CompiledProgram):
        raise WrongUsage(
            "what a program says is compared with a compiled program, which knows what ids and "
            f"logits mean; got {type_words(subject)}. A learned model takes its place by "
            "dataclasses.replace(compiled, model=model)."
        )
    return CompiledProgram(**{**vars(subject), "model": in_arithmetic(subject.model, dtype)})


def _task_of(experiment: str, config: Any) -> SequenceTask:
    if not hasattr(config, "sequence_task"):
        raise WrongUsage(
            f"{experiment} has no sequence task; proofs of what was learned are for runs of "
            "sorting."
        )
    task: SequenceTask = config.sequence_task()
    return task


def _decoder(model: nn.Module) -> Decoder:
    assert isinstance(model, Decoder)
    return model.eval()
