"""Proofs: a model is run on every input of a program or a task, shortest first.

An output counts as right only if it is right by more than rounding can change, in any order of
summation; `attnlab.programs.check` computes that bound. Certificates are checked again with NumPy
alone: a program's by `check_program`, which shares no line with this module, a decoder's by
`check`.
"""

import hashlib
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import numpy as np
import torch

from attnlab.core.store import StateFolder, refusing_damage, write_json, write_text
from attnlab.display import Card, displayed
from attnlab.errors import CouldNotRun, WrongUsage, not_none
from attnlab.models import Decoder
from attnlab.models.storage import describe_model, save_model
from attnlab.programs import check, check_program
from attnlab.programs.compiled_program import CompiledProgram
from attnlab.programs.interpreter import Codes
from attnlab.programs.language import Program
from attnlab.programs.proof_inputs import (
    Numbers,
    ProgramInputs,
    ProofBatch,
    ProofInputs,
    TaskInputs,
    WrongAnswer,
    task_mapping,
)
from attnlab.tasks.sequences import SequenceTask

ProofProgress = Callable[[int, int], None]

_MAX_INPUTS = 2_000_000  # that are tried one by one by default
_SECONDS_BETWEEN_SAVES = 2.0  # seconds


@displayed
@dataclass(frozen=True)
class ModelProof:
    """The result of checking a model on every input of a program or a task.

    Attributes:
        name: of the program or the task.
        shortest: tokens of the shortest inputs.
        longest: tokens of the longest inputs.
        proved_to: every input of up to this many tokens was tried.
        inputs: the number of these inputs.
        searched: the number of longer inputs tried at random, which is no proof.
        failures: the number of all inputs with a wrong output.
        counterexample: the first wrong answer; None if there is none.
        margin: the tolerance less the largest error of a number, or the smallest lead of a right
            logit; below 0 where an input fails.
        sure: the margin less the bound on rounding: above 0, the verdict is the same on every
            machine.
        dtype: of the model's arithmetic.
        outputs: SHA-256 of the right outputs, as numbers of logits or values.
    """

    name: str
    shortest: int
    longest: int
    proved_to: int
    inputs: int
    searched: int
    failures: int
    counterexample: WrongAnswer | None
    margin: float
    sure: float
    dtype: str
    outputs: str

    @property
    def holds(self) -> bool:
        """Is every input right?"""
        return self.failures == 0

    @property
    def is_sure(self) -> bool:
        """Is every input right by more than rounding can change, in any order of summation?"""
        return self.holds and self.inputs > 0 and self.sure > 0

    def to_mapping(self) -> dict[str, object]:
        """Return the proof as plain values for JSON, None for numbers that are not finite."""
        mapping = {**vars(self), "holds": self.holds, "is_sure": self.is_sure}
        for name in ("margin", "sure"):
            if not math.isfinite(mapping[name]):
                mapping[name] = None
        if self.counterexample is not None:
            mapping["counterexample"] = str(self.counterexample)
        return mapping

    def _card(self) -> Card:
        margin = f"left after rounding: {self.sure:.3g}"
        if self.holds and not self.sure > 0:
            margin = f"{self.margin:.3g}, and rounding may change {self.margin - self.sure:.3g}"
        facts = [("margin", f"{margin} ({self.dtype})")]
        if self.searched:
            least = max(self.proved_to + 1, self.shortest)
            words = f"{self.searched:,} of {least} to {self.longest} tokens, at random"
            facts.append(("searched", words))
        if self.counterexample is not None:
            facts.append(("first failure", str(self.counterexample)))
        return Card(f"{self.name}: {self._verdict()}", facts)

    def _verdict(self) -> str:
        bound = "of" if self.shortest == self.longest else "of up to"
        words = f"all {self.inputs:,} inputs {bound} {self.proved_to} tokens"
        if self.failures:
            return f"{self.failures:,} of {self.inputs + self.searched:,} inputs fail"
        if not self.inputs:
            return f"right on {self.searched:,} inputs, drawn at random; no proof"
        if self.is_sure:
            return f"proved on {words}"
        return f"right on {words}, but not certified: rounding may exceed the margin"

    def __str__(self) -> str:
        card = self._card()
        return "\n".join([card.title, *(f"  {name:13} {value}" for name, value in card.facts)])


def prove_program(
    compiled: CompiledProgram,
    program: Program,
    *,
    longest: int | None = None,
    max_inputs: int = _MAX_INPUTS,
    progress: ProofProgress | None = None,
    state: Path | None = None,
) -> ModelProof:
    """Compare a model with a program, on every input of 1 to `longest` tokens.

    Args:
        compiled: the model; its weights may have been changed since, or learned.
        program: the program, over the same alphabet.
        longest: None for the model's own limit.
        max_inputs: the number of inputs, of all lengths together, that are tried one by one; 500
            longer inputs of each length are drawn at random, which is a search and no proof.
        progress: called with the number of inputs done, and of all.
        state: a file for the progress of the proof, from which an interrupted one resumes; it is
            removed at the end.

    Returns:
        the `ModelProof`: `holds`, how many inputs, the margin, the first counterexample.

    Raises:
        WrongUsage: another alphabet, longer inputs than the model takes, or a model for whose
            formulas there are no bounds.

    >>> from attnlab.programs import compile_program, library
    >>> program = library.hist("ab")
    >>> prove_program(compile_program(program, 3), program).holds
    True
    """
    return _prove(ProgramInputs(compiled, program, longest, max_inputs), progress, state)


def prove_task(
    model: Decoder,
    task: SequenceTask,
    *,
    max_inputs: int = _MAX_INPUTS,
    progress: ProofProgress | None = None,
    state: Path | None = None,
) -> ModelProof:
    """Compare a decoder's greedy answers with a task's rule, on every prompt.

    Args:
        model: a decoder that reads the task's prompts.
        task: a `SequenceTask`, which says the right answer to each prompt.
        max_inputs: above so many prompts, 500 are drawn at random, which is a search and no proof.
        progress, state: see `prove_program`.

    Returns:
        the `ModelProof`: `holds`, how many prompts, the margin, the first counterexample.

    Raises:
        WrongUsage: the model takes other tokens or shorter rows, or there are no bounds for its
            formulas.
    """
    return _prove(TaskInputs(model, task, max_inputs), progress, state)


def save_model_and_task(model: Decoder, task: SequenceTask, folder: Path) -> None:
    """Write a model, and `task.json` beside it, for a certificate."""
    save_model(model, folder)
    write_json(folder / "task.json", task_mapping(task))


def write_certificate(proof: ModelProof, folder: Path) -> None:
    """Write `certificate.json` beside a saved model, and `check.py`, which needs NumPy alone.

    It holds only what `check.py` can verify.

    Raises:
        CouldNotRun: the proof does not hold, or rounding may exceed its margin.
    """
    if not proof.is_sure:
        raise CouldNotRun(f"a certificate needs a proof that is sure; got: {proof}")
    fields = {**proof.to_mapping(), **check.hashes_of(folder)}
    for name in ("longest", "searched"):  # a search is no proof
        del fields[name]
    write_text(folder / "certificate.json", check.written(fields))
    script = check_program.__file__
    if (folder / "task.json").exists():
        script = check.__file__
    write_text(folder / "check.py", Path(script).read_text())


def _prove(
    questions: ProofInputs, progress: ProofProgress | None, state: Path | None
) -> ModelProof:
    unknown = check.unknown_in(describe_model(questions.model))
    if unknown:
        raise WrongUsage(
            "proofs are for encoders that answer at each token and for decoders, in float32 or "
            f"float64, with the parts whose rounding is bounded; this model has {unknown}."
        )
    evaluator, saved = _Evaluator(questions), _SavedTally(state, questions)
    tally, first, right = saved.read(), None, ""
    for number, (ids, is_sampled) in enumerate(questions.inputs_in_parts()):
        part = questions.part(ids)
        if number < tally.parts:  # evaluated before the interruption
            right = check.chained(right, part.right)
            if number == tally.parts - 1:
                saved.check_right(tally, right)
        else:
            evaluator.add(tally, part, is_sampled=is_sampled)
            saved.write(tally)
        if tally.first_part == number:
            first = questions.wrong(part, *tally.first)
        if progress is not None:
            progress(tally.inputs, questions.inputs + questions.searched)
    saved.remove()
    return ModelProof(
        name=questions.name,
        shortest=questions.shortest,
        longest=questions.longest,
        proved_to=questions.proved_to,
        inputs=questions.inputs,
        searched=questions.searched,
        failures=tally.failures,
        counterexample=first,
        margin=tally.margin,
        sure=tally.sure,
        dtype=evaluator.described["dtype"],
        outputs=tally.outputs,
    )


@dataclass
class _Tally:
    """The worst margin so far, and the first failure: its part, and input, place and answer."""

    parts: int = 0
    inputs: int = 0
    failures: int = 0
    first_part: int = -1
    first: tuple[int, int, int] = (0, 0, 0)
    margin: float = math.inf
    sure: float = math.inf
    outputs: str = ""
    right: str = ""  # like outputs, with the search included


class _Evaluator:
    """Compares a model's answers with the right ones."""

    def __init__(self, questions: ProofInputs) -> None:
        self.questions = questions
        self.described = describe_model(questions.model)
        state = questions.model.state_dict().items()
        self.weights = {name: value.double().numpy() for name, value in state}

    def add(self, tally: _Tally, part: ProofBatch, *, is_sampled: bool) -> None:
        """Evaluate inputs of one length."""
        of_answers = self.questions.of_answers
        with torch.no_grad():
            outputs = self.questions.model(part.rows).double().numpy()
        value, bound = check.bounded_logits(self.weights, self.described, part.rows.numpy())
        # An edited model computes something else than its weights say.
        bound = np.where(np.abs(outputs - value) <= bound, bound, np.inf)
        logits = of_answers(outputs)
        inside, rounding = self._inside(logits, of_answers(bound), part.right)
        inside = np.where(part.right < 0, -np.inf, inside)
        wrong = ~(inside > 0).all(1)
        if wrong.any() and not tally.failures:
            number, place = map(int, np.argwhere(~(inside > 0))[0])
            tally.first_part = tally.parts
            tally.first = (number, place, self._answer(logits[number, place]))
        tally.failures += int(wrong.sum())
        tally.margin = float(np.minimum(tally.margin, inside.min()))  # which keeps NaN
        tally.sure = float(np.minimum(tally.sure, (inside - rounding).min()))
        tally.parts += 1
        tally.inputs += len(part.rows)
        tally.right = check.chained(tally.right, part.right)
        if not is_sampled:
            tally.outputs = check.chained(tally.outputs, part.right)

    def _inside(self, logits: Numbers, bound: Numbers, right: Codes) -> tuple[Numbers, Numbers]:
        """Return how far within its bound each output is, and the bound on rounding of that:
        (input, answer); NaN counts as outside."""
        numbers = self.questions.numbers
        if numbers is not None:
            tolerance = check.allowed(numbers, self.questions.tolerance)
            return tolerance - np.abs(logits[..., 0] - numbers[right]), bound[..., 0]
        right_logits = np.take_along_axis(logits, right[..., None], -1)[..., 0]
        others = logits.copy()
        np.put_along_axis(others, right[..., None], -np.inf, -1)
        return right_logits - others.max(-1), 2 * bound.max(-1)

    def _answer(self, logits: Numbers) -> int:
        questions = self.questions
        answers, _ = check.read_answers(logits, 0 * logits, questions.numbers, questions.tolerance)
        return int(answers)


class _SavedTally:
    """The file of a tally."""

    def __init__(self, file: Path | None, questions: ProofInputs) -> None:
        self.folder = None
        if file is not None:
            self.folder = StateFolder(file.parent, file.name, "attnlab proof 3", "proof")
        self.written = time.monotonic()
        described = describe_model(questions.model)
        hashed = hashlib.sha256(repr((questions.words, described)).encode())
        for name, value in questions.model.state_dict().items():
            hashed.update(name.encode() + value.numpy().tobytes())
        self.question_hash = hashed.hexdigest()

    def read(self) -> _Tally:
        """Return the saved tally, or a new one.

        Raises:
            CouldNotRun: the file is damaged, or of another proof.
        """
        if self.folder is None or not self.folder.is_there:
            return _Tally()
        stored = self.folder.read()
        path = self.folder.path / self.folder.file
        with refusing_damage(str(path)):
            if stored["question"] != self.question_hash:
                self._refuse("another model, tolerance or program")
            numbers = {name: float(stored[name]) for name in ("margin", "sure")}
            number, place, got = stored["tally"]["first"]
            return _Tally(**{**stored["tally"], **numbers, "first": (number, place, got)})

    def check_right(self, tally: _Tally, right: str) -> None:
        """Refuse a tally that was made with other right answers."""
        if right != tally.right:
            self._refuse("a program with other answers")

    def _refuse(self, other: str) -> NoReturn:
        folder = not_none(self.folder)
        path = folder.path / folder.file
        raise CouldNotRun(
            f"{path} belongs to another proof, of {other}; remove it to start again, or choose "
            "another folder."
        )

    def write(self, tally: _Tally) -> None:
        """Save a tally, every other second at most."""
        if self.folder is None or time.monotonic() < self.written + _SECONDS_BETWEEN_SAVES:
            return
        fields = vars(tally) | {"margin": 0, "sure": 0}  # JSON holds no infinity
        exact = {name: repr(getattr(tally, name)) for name in ("margin", "sure")}
        self.folder.write({"question": self.question_hash, "tally": fields, **exact})
        self.written = time.monotonic()

    def remove(self) -> None:
        """Remove the file: the proof is done."""
        if self.folder is not None:
            (self.folder.path / self.folder.file).unlink(missing_ok=True)
