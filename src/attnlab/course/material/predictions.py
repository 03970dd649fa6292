"""Questions of a prediction: a word or a number that a student says before running anything.

What is told of a wrong answer never says which one is right.
"""

from collections.abc import Mapping
from typing import Any

from attnlab.course.exercise import Case, Failure
from attnlab.errors import is_number


def choice_case(name: str, right: str, wrong: Mapping[str, str]) -> Case:
    """Ask for one of several words.

    Args:
        name: the student's variable.
        right: the right word.
        wrong: each wrong word, and the name of its mistake.
    """
    words = " or ".join(map(repr, sorted([right, *wrong])))

    def judge(answer: Any) -> Failure | None:
        if answer is None:
            return Failure(f"{name} is not said yet: {words}")
        said = answer.strip().lower() if isinstance(answer, str) else ""
        if said not in (right, *wrong):
            return Failure(f"{name} must be {words}")
        return None if said == right else Failure(f"{name}: {said!r} is not it", wrong[said])

    return Case(name, answer="value", judge=judge)


def number_case(
    name: str, right: float, wrong: Mapping[str, float], tolerance: float = 0.0
) -> Case:
    """Ask for a number.

    Args:
        name: the student's variable.
        right: the right number.
        wrong: wrong numbers of interest, by the names of their mistakes.
        tolerance: how far a number may be off and still be meant.
    """

    def judge(answer: Any) -> Failure | None:
        if answer is None:
            return Failure(f"{name} is not said yet: a number")
        if not is_number(answer):
            return Failure(f"{name} must be a number, such as 3 or 0.25")
        if abs(answer - right) <= tolerance:
            return None
        for mistake, value in wrong.items():
            if abs(answer - value) <= tolerance:
                return Failure(f"{name}: {answer} is not it", mistake)
        return Failure(f"{name}: {answer} is not it")

    return Case(name, answer="value", judge=judge)
