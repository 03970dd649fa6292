"""What an exercise is: a statement, a solution, checks, named mistakes and hints, in one file.

The file is in percent format: cells begin with `# %%`. Plain cells and those marked `[markdown]`
become the student's file and notebook, where each region between `# >>> solution` and
`# <<< solution` is left for the student to write. The others stay with the course: `[hints]`, a
numbered list that is shown one by one; `[mistakes]`, as `read_mistakes` reads them; and `[course]`,
which checks.
"""

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from numpy.random import Generator

from attnlab.errors import WrongUsage
from attnlab_course.cells import (
    cell_text,
    is_open,
    solution_text,
    starter_cells,
    starter_program,
    with_line,
)
from attnlab_course.general_mistakes import general_mistakes
from attnlab_course.sandbox.student_code import Names

Settings = Mapping[str, Any]
"""Keyword arguments."""

Tensors = Mapping[str, Any]
"""Parameters by name, as tensors or arrays."""

ExerciseKind = Literal["code", "weights", "predict", "text"]
AnswerKind = Literal["result", "inputs", "gradients", "parameters", "state", "value"]


@dataclass(frozen=True)
class Failure:
    """Why an answer is wrong.

    Args:
        words: what is wrong, with values.
        mistake: the name of the mistake; None where the judge does not know it.
        kind: what a student may read of it, without values: type, count, shape, dtype, finite,
            form or the name of an error; empty for any other.
    """

    words: str
    mistake: str | None = None
    kind: str = ""


@dataclass(frozen=True)
class GivenObject:
    """An object of a class of the student's file, as an argument: built and filled by the worker.

    Floating-point parameters are float64; `state` is written into them by name.
    """

    call: str
    args: tuple[Any, ...] = ()
    settings: Settings = field(default_factory=dict)
    state: Tensors | None = None


@dataclass(frozen=True)
class Case:
    """One call of what the student wrote, and what it should answer.

    Args:
        call: the name of a function, class or variable of the student's file.
        args: its arguments. Arrays arrive as the tensors or NumPy arrays they are.
        settings: its keyword arguments.
        expected: the right answer; tuples and lists are the same, None in it is not compared. Where
            it is left out, it is the solution's, computed in float64.
        only: the parts of the solution's answer that are compared, by number or key; empty for all.
        judge: says what is wrong with an answer, in place of a comparison with `expected`.
        build: for a class: the arguments of its constructor; `args` then go to the object.
        state: parameters that are written into the object, by name; all of them are needed.
        methods: methods called on the object in turn, each (name, args, settings); the answer is
            the last one's. Without any, the object itself is called.
        answer: what is compared: the result; the inputs as they are after the call; the gradients
            of the inputs; the object's parameters by shape; its state; or the value of the name.
        training: whether the object is in training mode.
        seed: of torch's generator before the call.
        words: what is special about this case, for the student.
        tolerance: how far an answer may be off, absolutely and relatively. A right program may take
            a step in float32, as many take their softmax: that leaves seven digits, of which sums
            and exponentials cost one or two.
        raises: names of exceptions, one of which must be raised; then there is no answer.
        beside: whether it is asked for its check's relation alone; no answer to it is wrong.
    """

    call: str
    args: tuple[Any, ...] = ()
    settings: Settings = field(default_factory=dict)
    expected: Any = None
    only: tuple[int | str, ...] = ()
    judge: Callable[[Any], Failure | None] | None = None
    build: tuple[tuple[Any, ...], Settings] | None = None
    state: Tensors | None = None
    methods: tuple[tuple[str, tuple[Any, ...], Settings], ...] = ()
    answer: AnswerKind = "result"
    training: bool = False
    seed: int = 0
    words: str = ""
    tolerance: float = 1e-5
    raises: tuple[str, ...] = ()
    beside: bool = False


@dataclass(frozen=True)
class Check:
    """One criterion: some cases, drawn anew with each seed, all of which must be right.

    Args:
        name: one or two words, unique in its exercise.
        words: the requirement, ready to follow "it".
        cases: draws the cases, the smallest first.
        points: its share of the exercise's points.
        graded: whether an instructor's own exercise holds it back for the grading. Those of the
            course are checked in full, so that a learner without a grader misses nothing.
        side: whether an answer that computes nothing could pass it; it then counts only where the
            one of results before it passes. Those of untouched inputs and raised errors always are.
        relation: says whether answers to its cases are related as right ones are, whatever their
            values. Where the first check fails, that is enough. None if the values are all it asks.
    """

    name: str
    words: str
    cases: Callable[[Generator], Iterable[Case]]
    points: int = 1
    graded: bool = False
    side: bool = False
    relation: Callable[[Sequence[Case], Sequence[Any]], bool] | None = None


@dataclass(frozen=True)
class Mistake:
    """A named wrong answer: the solution with one piece of its text replaced, and what to say.

    Args:
        name: unique in its exercise.
        old: a piece of the solution, in it exactly once; of several, with a line … between them.
        new: what replaces it; of several as many, with the same line between them.
        says: the sentence for a student whose answers are those of the mistake.
        also: other ways in which people make it, whose answers differ in some case: what replaces
            `old`, or a pair of another piece and what replaces that.
    """

    name: str
    old: str
    new: str
    says: str
    also: tuple[str | tuple[str, str], ...] = ()

    @property
    def pieces(self) -> Iterator[tuple[str, str]]:
        """Each piece of the solution and what replaces it."""
        return zip(self.old.split(_BETWEEN), self.new.split(_BETWEEN), strict=True)

    @property
    def spellings(self) -> "tuple[Mistake, ...]":
        """The mistake as it is made in each way."""
        spellings = [replace(self, also=())]
        for other in self.also:
            old, new = (self.old, other) if isinstance(other, str) else other
            spellings.append(replace(self, old=old, new=new, also=()))
        return tuple(spellings)


_BETWEEN = "\n…\n"
_PAIRED = "; "


def join_mistakes(first: Mistake, second: Mistake) -> Mistake:
    """Return two mistakes as one that is made by both, the first before the second."""
    old, new = (_BETWEEN.join(pieces) for pieces in zip(*first.pieces, *second.pieces, strict=True))
    says = f"Two things are wrong. {first.says} {second.says}"
    return Mistake(f"{first.name}{_PAIRED}{second.name}", old, new, says)


def single_mistakes(name: str) -> list[str]:
    """Return the names of the mistakes that one of `join_mistakes` is made of; else its own."""
    return name.split(_PAIRED)


def read_mistakes(text: str) -> tuple[Mistake, ...]:
    r"""Read mistakes that are written as patches of the solution.

    Lines with - are replaced by the lines with + below them; a line … stands for what lies between
    two of them and stays. After a line `or` comes another way to make the same mistake, with lines
    of its own to replace or without.

    >>> (mistake,) = read_mistakes("## square: It is squared.\n- 2 * x\n+ x**2\nor\n+ x * x\n")
    >>> mistake.name, mistake.old, mistake.new, mistake.also
    ('square', '2 * x', 'x**2', ('x * x',))
    """
    mistakes = []
    for section in re.split("^## ", text, flags=re.MULTILINE)[1:]:
        words, _, patches = section.partition("\n-")
        name, _, says = " ".join(words.split()).partition(": ")
        first, *others = re.split("^or\n", f"-{patches}", flags=re.MULTILINE)
        also = [_patch(other) if other.startswith("-") else _patch(other)[1] for other in others]
        mistakes.append(Mistake(name, *_patch(first), says, tuple(also)))
    return tuple(mistakes)


def _patch(text: str) -> tuple[str, str]:
    """Return the lines with - and the lines with +, each as one text."""
    old, new = ([line[2:] for line in text.splitlines() if line[0] == sign] for sign in "-+")
    return "\n".join(old), "\n".join(new)


@dataclass(frozen=True)
class Exercise:
    """Everything of an exercise but its text, as the file's `EXERCISE` declares it.

    Args:
        title: a few words.
        checks: the criteria.
        mistakes: named wrong answers that exercises share; those of its own are in a cell.
        level: 1 (first steps) to 5.
        minutes: how long a student may need.
        needs: names of exercises that come before.
        kind: code; weights (matrices, handed in as data); predict (said before it is run); text.
        banned: names that must not be used, since they are what is to be written.
        picture: draws the statement's picture, from the solution's names; None without one.
        rubric: for texts, what each of the points is for.
        results: the names of what its call returns, in order, where that is more than one value.
        whole: whether an answer is one idea, right or wrong, so that a mistake costs every check
            that fails by it, and not one alone.
    """

    title: str
    checks: tuple[Check, ...] = ()
    mistakes: tuple[Mistake, ...] = ()
    level: int = 2
    minutes: int = 20
    needs: tuple[str, ...] = ()
    kind: ExerciseKind = "code"
    banned: tuple[str, ...] = ()
    picture: Callable[[Names], Any] | None = None
    rubric: tuple[str, ...] = ()
    results: tuple[str, ...] = ()
    whole: bool = False


@dataclass(frozen=True)
class CourseExercise:
    """An exercise with its name and its file.

    Args:
        name: the file's name without its ending.
        source: the file's text.
        path: the file.
        parts: what the file's `EXERCISE` declares.
    """

    name: str
    source: str
    path: Path
    parts: Exercise

    @property
    def points(self) -> int:
        """How many points it gives."""
        if self.parts.kind == "text":
            return len(self.parts.rubric)
        return sum(check.points for check in self.parts.checks)

    @cached_property
    def statement(self) -> str:
        """The words of its markdown cells."""
        return cell_text(self.source, "markdown")

    def result_names(self, case: Case) -> tuple[str, ...]:
        """Return the names of the items of a case's answer; none where they have no names."""
        names, right = self.parts.results, case.expected
        is_named = case.answer == "result" and isinstance(right, list | tuple)
        return names if is_named and len(right) == len(names) else ()

    @cached_property
    def hints(self) -> tuple[str, ...]:
        """A ladder that begins with a question and does not begin with the answer."""
        hints = re.split(r"^\d+\. ", cell_text(self.source, "hints"), flags=re.MULTILINE)[1:]
        return tuple(" ".join(hint.split()) for hint in hints)

    @cached_property
    def starter(self) -> str:
        """The student's program before anything is written in it."""
        return starter_program(starter_cells(self.source, self.name))

    @cached_property
    def given_statements(self) -> list[ast.stmt]:
        """The statements that it gives: those without a part that is to be written."""
        unwritten = with_line(self.source, "raise NotImplementedError")
        return [node for node in ast.parse(unwritten).body if not is_open(node)]

    @cached_property
    def given_names(self) -> set[str]:
        """The names of the functions and classes that it gives."""
        kinds = ast.FunctionDef | ast.ClassDef
        return {node.name for node in self.given_statements if isinstance(node, kinds)}

    def with_given(self, program: str) -> str:
        """Append to a program what the exercise gives, so that its checks use that and no other."""
        if not self.given_names:
            return program
        text = "\n\n".join(map(ast.unparse, self.given_statements))
        return f"{program.rstrip()}\n\n\n{text}\n"

    @cached_property
    def named_mistakes(self) -> tuple[Mistake, ...]:
        """The wrong answers that it names: its own, then those that it shares with others."""
        return (*read_mistakes(cell_text(self.source, "mistakes")), *self.parts.mistakes)

    @cached_property
    def mistakes(self) -> tuple[Mistake, ...]:
        """The known wrong answers: those that it names, then those of any program."""
        mistakes = {mistake.name: mistake for mistake in self.named_mistakes}
        if self.parts.kind == "code":
            solution = solution_text(self.source)
            for name, (says, programs) in general_mistakes(solution, self.starter).items():
                first, *others = programs
                mistake = Mistake(name, solution, first, says, tuple(others))
                mistakes.setdefault(name, mistake)
        return tuple(mistakes.values())

    def mistake(self, name: str) -> Mistake:
        """Return a named mistake, or one of two.

        Raises:
            WrongUsage: there is none of this name.
        """
        for mistake in self.mistakes:
            if mistake.name == name:
                return mistake
        if len(single_mistakes(name)) == 2:
            return join_mistakes(*map(self.mistake, single_mistakes(name)))
        raise WrongUsage(f"{self.name} has no mistake named {name!r}.")
