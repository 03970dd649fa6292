"""Proofs of programs: a model is put to every input up to a length, shortest first.

An output counts as right only if it is right by more than rounding can change, in any order of
summation; `attnlab.programs.check` computes that bound, and checks a certificate again without
torch.
"""

import hashlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from attnlab.core.store import digest_of, write_json, write_text
from attnlab.display import Card, displayed
from attnlab.errors import CouldNotRun, WrongUsage
from attnlab.models.storage import describe_model
from attnlab.programs import check
from attnlab.programs.compiled import Compiled
from attnlab.programs.interpreter import Coded, Codes, Meaning
from attnlab.programs.language import Program, Value

Progress = Callable[[int, int], None]

_SAMPLED = 500  # inputs of each length of which not all are tried
_Numbers = NDArray[np.float64]


@displayed
@dataclass(frozen=True)
class WrongAnswer:
    """The first input that fails, none shorter: position 0 is the first token."""

    tokens: tuple[Value, ...]
    position: int
    expected: Value
    got: Value

    def __str__(self) -> str:
        words = " ".join(map(str, self.tokens))
        return f"{words}, position {self.position}: expected {self.expected}; got {self.got}"


@displayed
@dataclass(frozen=True)
class ProgramProof:
    """The result of checking a model on every input of a program.

    Attributes:
        program: its name.
        longest: tokens of the longest inputs.
        proved_to: every input of up to so many tokens was tried.
        inputs: how many these are.
        searched: how many longer ones were tried, at random; no proof.
        failures: how many of all are wrong somewhere.
        counterexample: the first that is wrong; None if there is none.
        margin: of numbers the tolerance less the largest error, of symbols the smallest lead of the
            right logit; below 0 where something fails.
        sure: the same, less what rounding can change: above 0, the verdict is the same on every
            machine.
        dtype: of the model's arithmetic.
        outputs: SHA-256 of the right outputs, as numbers among the model's values.
    """

    program: str
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

    def to_mapping(self) -> dict[str, Any]:
        """Return the proof as plain values for JSON; what is not finite becomes None."""
        told = {**vars(self), "holds": self.holds, "is_sure": self.is_sure}
        for name in ("margin", "sure"):
            if not math.isfinite(told[name]):
                told[name] = None
        if self.counterexample is not None:
            told["counterexample"] = str(self.counterexample)
        return told

    def _card(self) -> Card:
        facts = [("margin", f"{self.margin:.3g}, less rounding {self.sure:.3g} ({self.dtype})")]
        if self.searched:
            words = f"{self.searched:,} of {self.proved_to + 1} to {self.longest} tokens, at random"
            facts.append(("searched", words))
        if self.counterexample is not None:
            facts.append(("first failure", str(self.counterexample)))
        return Card(f"{self.program}: {self._verdict()}", facts)

    def _verdict(self) -> str:
        words = f"all {self.inputs:,} inputs of up to {self.proved_to} tokens"
        if self.failures:
            return f"{self.failures:,} of {self.inputs + self.searched:,} inputs fail"
        if self.is_sure:
            return f"proved on {words}"
        return f"right on {words}; rounding may exceed the margin"

    def __str__(self) -> str:
        card = self._card()
        return "\n".join([card.title, *(f"  {name:13} {value}" for name, value in card.facts)])


def prove_program(
    compiled: Compiled,
    program: Program,
    *,
    longest: int | None = None,
    most: int = 2_000_000,
    progress: Progress | None = None,
) -> ProgramProof:
    """Compare a model with what a program says, on every input of 1 to `longest` tokens.

    Args:
        compiled: the model; its weights may have been changed since.
        program: what to compare with, over the same alphabet.
        longest: None for as long as the model takes.
        most: inputs of all lengths together that are tried one by one; of longer inputs 500 of each
            length are drawn at random, which is a search and no proof.
        progress: told how many inputs are done, of how many.

    Raises:
        WrongUsage: another alphabet, or longer inputs than the model takes.
    """
    longest = compiled.longest if longest is None else longest
    if tuple(program.alphabet) != compiled.alphabet or not 1 <= longest <= compiled.longest:
        raise WrongUsage(
            f"the model takes 1 to {compiled.longest} of the tokens {compiled.alphabet}; got "
            f"{longest} of {tuple(program.alphabet)}."
        )
    config, dtype = compiled.model.config, next(compiled.model.parameters()).dtype
    strange = [name for name, value in check.KNOWN.items() if getattr(config, name) != value]
    if strange or dtype not in (torch.float32, torch.float64):
        raise WrongUsage(
            "proofs are for models as they are compiled, float32 or float64; this one differs in "
            f"{', '.join(strange) or dtype}."
        )
    size = len(program.alphabet)
    counts = np.cumsum([float(size) ** length for length in range(1, longest + 1)])
    proved_to = int((counts <= most).sum())
    inputs = sum(size**length for length in range(1, proved_to + 1))
    found = _Tally(compiled, program)
    total = inputs + _SAMPLED * (longest - proved_to)
    for ids, is_sampled in _inputs(compiled, longest, proved_to):
        found.add(ids, is_sampled=is_sampled)
        if progress is not None:
            progress(found.done, total)
    return ProgramProof(
        program=program.name,
        longest=longest,
        proved_to=proved_to,
        inputs=inputs,
        searched=total - inputs,
        failures=found.failures,
        counterexample=found.first,
        margin=found.margin,
        sure=found.sure,
        dtype=found.dtype,
        outputs=found.digest.hexdigest(),
    )


def write_certificate(proof: ProgramProof, folder: Path) -> None:
    """Write `certificate.json` beside a saved model, and `check.py`, which needs NumPy alone.

    Raises:
        CouldNotRun: the proof does not hold, or rounding may exceed its margin.
    """
    if not proof.is_sure:
        raise CouldNotRun(f"there is no certificate for what is not sure: {proof}")
    hashes = {name: digest_of(folder / file) for name, file in check.HASHED.items()}
    write_json(folder / "certificate.json", {**proof.to_mapping(), **hashes})
    write_text(folder / "check.py", Path(check.__file__).read_text())


def _inputs(compiled: Compiled, longest: int, proved_to: int) -> Iterator[tuple[Codes, bool]]:
    size, width = len(compiled.alphabet), check.width_of(compiled.model.config.to_mapping())
    for length in range(1, proved_to + 1):
        for ids in check.inputs_of(size, length, width):
            yield ids, False
    random = np.random.default_rng(0)
    for length in range(proved_to + 1, longest + 1):
        yield random.integers(0, size, (_SAMPLED, length)), True


class _Tally:
    """The worst so far, and the first that fails."""

    def __init__(self, compiled: Compiled, program: Program) -> None:
        self.compiled, self.program = compiled, program
        told = describe_model(compiled.model)
        self.dtype, self._config = told["dtype"], told["config"]
        state = compiled.model.state_dict().items()
        self._weights = {name: value.double().numpy() for name, value in state}
        self.places = {value: place for place, value in enumerate(compiled.values)}
        self.done = self.failures = 0
        self.first: WrongAnswer | None = None
        self.margin = self.sure = math.inf
        self.digest = hashlib.sha256()

    def add(self, ids: Codes, *, is_sampled: bool) -> None:
        """Judge some inputs of one length."""
        compiled = self.compiled
        expected = Meaning(self.program, ids).of(self.program.output)
        # A value that the model cannot give does not occur, or the model is wrong there.
        places = [self.places.get(value, -1) for value in expected.values]
        columns = np.array(places)[expected.codes]
        rows = compiled.with_bos(torch.from_numpy(ids))
        logits = compiled.logits(rows).double().numpy()
        _, bound = check.bounded_logits(self._weights, self._config, rows.numpy(), self.dtype)
        inside, rounding = self._inside(logits, bound[:, int(compiled.has_bos) :], columns)
        inside = np.where(columns < 0, -np.inf, inside)
        wrong = ~(inside > 0).all(1)
        self.failures += int(wrong.sum())
        self.margin = float(np.minimum(self.margin, inside.min()))
        self.sure = float(np.minimum(self.sure, (inside - rounding).min()))
        if self.first is None and wrong.any():
            self.first = self._first(ids, expected, inside)
        self.done += len(ids)
        if not is_sampled:
            self.digest.update(columns.astype("<i4").tobytes())

    def _inside(
        self, logits: _Numbers, bound: _Numbers, columns: Codes
    ) -> tuple[_Numbers, _Numbers]:
        """Return how far inside of what is asked each output is, and what rounding can change in
        that: (input, position); NaN counts as outside."""
        numbers = self.compiled.numbers
        if numbers is not None:
            tolerance = check.allowed(numbers, self.compiled.tolerance)
            return tolerance - np.abs(logits[..., 0] - numbers[columns]), bound[..., 0]
        right = np.take_along_axis(logits, columns[..., None], -1)[..., 0]
        others = logits.copy()
        np.put_along_axis(others, columns[..., None], -np.inf, -1)
        return right - others.max(-1), 2 * bound.max(-1)

    def _first(self, ids: Codes, expected: Coded, inside: _Numbers) -> WrongAnswer:
        number, position = np.argwhere(~(inside > 0))[0]
        tokens = tuple(self.program.alphabet[code] for code in ids[number])
        wanted, got = expected.row(number)[position], self.compiled(tokens)[position]
        if got == wanted:
            got = f"{got}, but not clearly"
        return WrongAnswer(tokens, int(position), wanted, got)
