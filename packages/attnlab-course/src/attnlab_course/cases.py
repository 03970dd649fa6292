"""The questions put to an answer: the cases of an exercise's checks, drawn with a seed.

The right answer of a case that brings none is what the solution answers.
"""

import hashlib
import inspect
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attnlab_course.cells import defined_at_top, program_tree, solution_text
from attnlab_course.compare import read_answer
from attnlab_course.exercise import Case, Check, CourseExercise, GivenObject
from attnlab_course.sandbox.replies import CaseAnswer, ask_names
from attnlab_course.sandbox.student_code import EncodedCase, Json, encode, load_names

load_source = lru_cache(maxsize=1024)(load_names)
"""Runs a program of the course once and returns its names."""


@dataclass(frozen=True)
class Questions:
    """The cases of some checks of an exercise, drawn with a seed.

    Args:
        exercise: which.
        checks: the checks that are run.
        cases: the cases of each.
        encoded: all of them in order, as JSON for a worker.
        known: how solutions of the course answer them, kept by source and number.
    """

    exercise: CourseExercise
    checks: tuple[Check, ...]
    cases: tuple[tuple[Case, ...], ...]
    encoded: tuple[EncodedCase, ...]
    known: dict[tuple[str, int], CaseAnswer] = field(
        default_factory=dict, repr=False, compare=False
    )

    @cached_property
    def flat(self) -> list[Case]:
        """All cases in order."""
        return list(itertools.chain.from_iterable(self.cases))

    @cached_property
    def calls(self) -> frozenset[str]:
        """The names that the cases ask for: functions, classes, and those of given objects."""
        calls = set[str]()
        for case in self.flat:
            calls.add(case.call)
            values: list[Any] = [case.args, case.settings, case.build, case.methods]
            while values:
                value = values.pop()
                if isinstance(value, GivenObject):
                    calls.add(value.call)
                    values += [value.args, value.settings]
                elif isinstance(value, Mapping):
                    values += value.values()
                elif isinstance(value, list | tuple):
                    values += value
        return frozenset(calls)

    @cached_property
    def numbers(self) -> list[range]:
        """Each check's cases, by their numbers among all."""
        ends = list(itertools.accumulate(map(len, self.cases)))
        return [range(end - len(cases), end) for cases, end in zip(self.cases, ends, strict=True)]


def make_questions(exercise: CourseExercise, seed: int | str, *, graded: bool = False) -> Questions:
    """Make the cases of an exercise.

    Args:
        exercise: which.
        seed: the same seed draws the same cases on every machine.
        graded: with the checks that run only when it is graded.
    """
    checks = tuple(check for check in exercise.parts.checks if graded or not check.graded)
    cases_by_check = []
    for check in checks:
        digest = hashlib.sha256(f"{exercise.name}/{check.name}/{seed}".encode()).digest()
        cases = check.cases(np.random.default_rng(list(digest)))
        cases_by_check.append(tuple(_with_expected(exercise, case) for case in cases))
    encoded = []
    for case in itertools.chain.from_iterable(cases_by_check):
        encoded.append(encode_case(case, _parameter_names(exercise, case.call)))
    return Questions(exercise, checks, tuple(cases_by_check), tuple(encoded))


@cache
def entry_names(exercise: CourseExercise) -> frozenset[str]:
    """Return the names that an exercise asks for: of those that it gives only if it calls no other.

    None for one that is not answered by a program.
    """
    if exercise.parts.kind != "code":
        return frozenset()
    calls = {str(case["call"]) for case in make_questions(exercise, 0).encoded}
    return frozenset(calls - exercise.given_names or calls)


def misnamed(exercise: CourseExercise, source: str) -> list[str]:
    """Return the names that a program defines and its exercise neither asks for nor gives."""
    tree = program_tree(source)
    return sorted(defined_at_top(tree) - entry_names(exercise) - exercise.given_names)


def _parameter_names(exercise: CourseExercise, call: str) -> list[str]:
    """Return the names of the parameters of a function or class of the solution."""
    called = load_source(solution_text(exercise.source)).get(call)
    return [*inspect.signature(called).parameters] if callable(called) else []


def _with_expected(exercise: CourseExercise, case: Case) -> Case:
    """Return a case with what the solution answers, if it has nothing to compare with.

    The solution gets the tensors in float64; what it computes comes back in their own dtype.
    """
    if case.expected is not None or case.judge is not None or case.raises:
        return case
    args, dtype = [], torch.float64
    for arg in case.args:
        if isinstance(arg, Tensor) and arg.is_floating_point():
            dtype = arg.dtype
            arg = arg.double()
        args.append(arg)
    wide = encode_case(replace(case, args=tuple(args)))
    (answer,) = ask_names(load_source(solution_text(exercise.source)), [wide]).answers
    assert not answer.error, f"{exercise.name}: the solution raises {answer.words}"
    expected = _narrowed(read_answer(answer.value), dtype)
    if case.only:
        expected = _compared(expected, case.only)
    return replace(case, expected=expected)


def _narrowed(value: Any, dtype: torch.dtype) -> Any:
    """Return an answer with its float64 tensors in a dtype."""
    if isinstance(value, Tensor) and value.dtype == torch.float64:
        return value.to(dtype)
    if isinstance(value, Mapping):
        return {key: _narrowed(item, dtype) for key, item in value.items()}
    if isinstance(value, list):
        return [_narrowed(item, dtype) for item in value]
    return value


def _compared(value: Any, parts: Sequence[int | str]) -> Any:
    """Return an answer with None in place of what is not compared; keys are those of mappings."""
    if isinstance(value, Mapping):
        return {key: item if key in parts else None for key, item in value.items()}
    if isinstance(parts[0], str):
        return [_compared(item, parts) for item in value]
    return [item if number in parts else None for number, item in enumerate(value)]


def encode_case(case: Case, names: Sequence[str] = ()) -> EncodedCase:
    """Write a case as JSON, without what it expects.

    names: of the parameters of what it calls or builds, as the solution names them.
    """
    build = None
    if case.build is not None:
        args, settings = case.build
        build = {"args": _value(args), "settings": _value(settings), "names": names}
    methods = []
    for name, method_args, method_settings in case.methods:
        methods.append((name, _value(method_args), _value(method_settings)))
    return {
        "call": case.call,
        "args": _value(case.args),
        "settings": _value(case.settings),
        "names": [] if build else names,
        "build": build,
        "state": _value(case.state),
        "methods": methods,
        "answer": case.answer,
        "training": case.training,
        "seed": case.seed,
    }


def _value(value: Any) -> Json:
    """Write an argument as JSON; given objects are made by the worker."""
    if isinstance(value, GivenObject):
        return {
            "kind": "given",
            "call": value.call,
            "args": _value(value.args),
            "settings": _value(value.settings),
            "state": _value(value.state),
        }
    if isinstance(value, Mapping):
        return {"kind": "dict", "items": [[key, _value(item)] for key, item in value.items()]}
    if isinstance(value, list | tuple):
        return {"kind": "list", "items": list(map(_value, value))}
    return encode(value)
