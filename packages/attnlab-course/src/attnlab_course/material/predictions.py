"""Predictions: questions whose answer, a word or a number, is said before anything is run.

The right answer is the solution's own. What is said of a wrong one never says which one is right.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.random import Generator
from torch import Tensor

from attnlab.errors import is_number
from attnlab_course.exercise import Case, Check, Exercise, Failure, Mistake

Wrong = Mapping[tuple[str, Any], str]
"""Why an answer is wrong, by the variable and the answer."""


@dataclass(frozen=True)
class Prediction:
    """A question and its right answer.

    Args:
        variable: the student's variable.
        right: its value in the solution.
        words: what its check asks, ready to follow "it".
        options: all words that may be said; none for a number.
        near: how far a number may be off and still be meant.
        points: its share of the exercise's points.
        check: the name of its check, if that is not the variable's; questions may share one.
    """

    variable: str
    right: Any
    words: str
    options: tuple[str, ...] = ()
    near: float = 0.0
    points: int = 1
    check: str = ""

    @property
    def name(self) -> str:
        """The name of its check."""
        return self.check or self.variable.removeprefix("num_").replace("_", " ")

    def case(self, mistakes: Mapping[Any, str]) -> Case:
        """Return its one case; the names of mistakes are by their answers."""
        return Case(self.variable, answer="value", judge=partial(self._judge, mistakes))

    def _judge(self, mistakes: Mapping[Any, str], answer: Any) -> Failure | None:
        if isinstance(answer, str):
            answer = answer.strip().lower()
        elif isinstance(answer, Tensor | np.ndarray) and answer.ndim == 0:
            answer = answer.item()  # of a calculation with PyTorch or NumPy
        problem = self._form_problem(answer)
        if problem:
            return Failure(f"{self.variable} {problem}", kind="form")
        if self._means(answer, self.right):
            return None
        named = (name for wrong, name in mistakes.items() if self._means(answer, wrong))
        return Failure(f"{self.variable}: {answer!r} is incorrect", next(named, None))

    def _form_problem(self, answer: Any) -> str:
        """Say what is wrong with an answer that is neither a number nor one of the words."""
        expected = " or ".join(map(repr, sorted(self.options))) or "a number"
        if answer is None:
            return f"is not filled in: {expected}"
        if self.options:
            is_word = isinstance(answer, str) and answer in self.options
            return "" if is_word else f"must be {expected}"
        return "" if is_number(answer) else "must be a number, such as 3 or 0.25"

    def _means(self, answer: Any, meant: Any) -> bool:
        """Whether an answer is the word or the number that is meant."""
        return bool(answer == meant if self.options else abs(answer - meant) <= self.near)


def prediction(title: str, questions: Sequence[Prediction], wrong: Wrong, **more: Any) -> Exercise:
    """Return the exercise that asks these questions.

    Args:
        title: a few words.
        questions: in order.
        wrong: the answers that people give; equal sentences are one mistake.
        more: what else `Exercise` takes.
    """
    mistakes: dict[str, Mistake] = {}
    names: dict[str, dict[Any, str]] = {question.variable: {} for question in questions}
    lines = {question.variable: _line(question.variable, question.right) for question in questions}
    for (variable, answer), says in wrong.items():
        line = _line(variable, answer)
        if says in mistakes:
            first = mistakes[says]
            mistakes[says] = replace(first, also=(*first.also, (lines[variable], line)))
        else:
            mistakes[says] = Mistake(line, lines[variable], line, says)
        names[variable][answer] = mistakes[says].name
    groups: dict[str, list[Prediction]] = {}
    for question in questions:
        groups.setdefault(question.name, []).append(question)
    checks = []
    for name, group in groups.items():
        cases = [question.case(names[question.variable]) for question in group]
        points = sum(question.points for question in group)
        checks.append(Check(name, group[0].words, partial(_repeated, cases), points))
    made = tuple(mistakes.values())
    return Exercise(title, tuple(checks), made, kind="predict", **more)


def _repeated(cases: Sequence[Case], random: Generator) -> Sequence[Case]:
    """Return the same cases for every seed."""
    return cases


def _line(variable: str, answer: Any) -> str:
    """Write a line as the solution does."""
    written = f'"{answer}"' if isinstance(answer, str) else repr(answer)
    return f"{variable} = {written}"
