"""The questions put to an answer: the cases of an exercise's checks, drawn with a seed."""

import hashlib
import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from attnlab_course.exercise import Case, Check, CourseExercise, Given
from attnlab_course.sandbox.replies import CaseAnswer
from attnlab_course.sandbox.runner import EncodedCase, Json, encode


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
    def numbers(self) -> list[range]:
        """Each check's cases, by their numbers among all."""
        ends = list(itertools.accumulate(map(len, self.cases)))
        return [range(end - len(cases), end) for cases, end in zip(self.cases, ends, strict=True)]


def draw_questions(exercise: CourseExercise, seed: int | str, *, graded: bool = False) -> Questions:
    """Draw the cases of an exercise.

    Args:
        exercise: which.
        seed: the same seed draws the same cases on every machine.
        graded: with the checks that run only when it is graded.
    """
    checks = tuple(check for check in exercise.parts.checks if graded or not check.graded)
    drawn = []
    for check in checks:
        digest = hashlib.sha256(f"{exercise.name}/{check.name}/{seed}".encode()).digest()
        drawn.append(tuple(check.cases(np.random.default_rng(list(digest)))))
    encoded = tuple(map(encode_case, itertools.chain.from_iterable(drawn)))
    return Questions(exercise, checks, tuple(drawn), encoded)


def encode_case(case: Case) -> EncodedCase:
    """Write a case as JSON, without what it expects."""
    build = None
    if case.build is not None:
        args, settings = case.build
        build = {"args": _value(args), "settings": _value(settings)}
    methods = []
    for name, method_args, method_settings in case.methods:
        methods.append((name, _value(method_args), _value(method_settings)))
    return {
        "call": case.call,
        "args": _value(case.args),
        "settings": _value(case.settings),
        "build": build,
        "state": _value(case.state),
        "methods": methods,
        "answer": case.answer,
        "training": case.training,
        "seed": case.seed,
    }


def _value(value: Any) -> Json:
    """Write an argument as JSON; given objects are made by the worker."""
    if isinstance(value, Given):
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
