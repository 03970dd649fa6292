"""Questions of a prediction: a word or a number that a student says before running anything.

What is said of a wrong answer never says which one is right.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from attnlab.errors import is_number
from attnlab_course.exercise import Case, Failure, Mistake

_NONE: Mapping[str, Any] = MappingProxyType({})


def choice_case(
    name: str, right: str, options: Sequence[str], mistakes: Mapping[str, str] = _NONE
) -> Case:
    """Ask for one of several words.

    Args:
        name: the student's variable.
        right: the right word.
        options: all words.
        mistakes: the names of the mistakes behind some wrong words.
    """
    words = " or ".join(map(repr, sorted(options)))

    def judge(answer: Any) -> Failure | None:
        if answer is None:
            return Failure(f"{name} is not said yet: {words}")
        word = answer.strip().lower() if isinstance(answer, str) else ""
        if word not in options:
            return Failure(f"{name} must be {words}")
        if word == right:
            return None
        return Failure(f"{name}: {word!r} is incorrect", mistakes.get(word))

    return Case(name, answer="value", judge=judge)


def number_case(
    name: str, right: float, mistakes: Mapping[str, float] = _NONE, tolerance: float = 0.0
) -> Case:
    """Ask for a number.

    Args:
        name: the student's variable.
        right: the right number.
        mistakes: wrong numbers that people say, by the names of their mistakes.
        tolerance: how far a number may be off and still be meant.
    """

    def judge(answer: Any) -> Failure | None:
        if answer is None:
            return Failure(f"{name} is not said yet: a number")
        if not is_number(answer):
            return Failure(f"{name} must be a number, such as 3 or 0.25")
        if abs(answer - right) <= tolerance:
            return None
        near = (mistake for mistake, value in mistakes.items() if abs(answer - value) <= tolerance)
        return Failure(f"{name}: {answer} is incorrect", next(near, None))

    return Case(name, answer="value", judge=judge)


def wrong_answer(name: str, right: str, answer: str, says: str) -> Mistake:
    """Return the mistake of giving another answer.

    Args:
        name: of the mistake.
        right: the right line, such as `cost = 4`.
        answer: what is said in place of the right answer.
        says: why it is wrong.
    """
    variable = right.partition(" = ")[0]
    return Mistake(name, right, f"{variable} = {answer}", says)
