"""Check an answer where it was written: `attnlab.course.check("attention")` in a notebook."""

import html
import inspect
import linecache
from collections.abc import Mapping, Sequence
from itertools import chain
from types import FunctionType
from typing import Any

from attnlab.errors import WrongUsage, not_none, type_words
from attnlab_course.cases import make_questions
from attnlab_course.catalog import find_exercise
from attnlab_course.exercise import CourseExercise
from attnlab_course.feedback import feedback_lines
from attnlab_course.grading.bans import ban_words
from attnlab_course.judge import ExerciseOutcome, judge
from attnlab_course.notebook_cells import join_cells
from attnlab_course.sandbox.replies import ask_names
from attnlab_course.sandbox.student_code import Names
from attnlab_course.workspace import find_workspace


class Feedback:
    """The result of a check, as text at the prompt and as lines in a notebook."""

    def __init__(
        self, exercise: CourseExercise, outcome: ExerciseOutcome, banned: str = ""
    ) -> None:
        self.exercise = exercise
        self.outcome = outcome
        self.banned = banned

    @property
    def passed(self) -> bool:
        """Whether every check is passed."""
        return self.outcome.passed

    def __repr__(self) -> str:
        lines = feedback_lines(self.exercise, self.outcome)
        return "\n".join([*lines, f"  {self.banned}"] if self.banned else lines)

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(repr(self))}</pre>"


def check(exercise: str, names: Names | None = None, *, seed: int = 0) -> Feedback:
    """Check an answer that is defined here, in this notebook or program.

    Args:
        exercise: its name; `attnlab course list` has them.
        names: where the answer's functions and classes are looked up; by default, where this is
            called.
        seed: draws other cases.

    Returns:
        the `Feedback`: whether the answer is correct, and each case that fails with the mistake's
        name; it shows itself.

    Raises:
        WrongUsage: there is no such exercise, or the names are no mapping.

    The answer runs in this very process: nothing of it is graded here.
    """
    if not isinstance(exercise, str):
        raise WrongUsage(
            f'expected the name of an exercise, as in check("attention"); '
            f"got {type_words(exercise)}."
        )
    opened = find_exercise(exercise)
    questions = make_questions(opened, seed, graded=True)
    calls = sorted(questions.calls)
    if names is None:
        frame = not_none(inspect.currentframe())
        names = not_none(frame.f_back).f_globals
    if not isinstance(names, Mapping):
        call, name = [*calls, "answer"][0], getattr(names, "__name__", "…")
        raise WrongUsage(
            f'names are a mapping, as in check("{exercise}", {{"{call}": {name}}}); '
            f"got {type_words(names)}."
        )
    if calls and not any(call in names for call in calls):
        missing = f"nothing that it asks for is defined here: {', '.join(calls)}"
        return Feedback(opened, ExerciseOutcome(exercise, broken=missing))
    outcome = judge(questions, ask_names(names, questions.encoded))
    workspace = find_workspace(None)
    if workspace.log.is_file():
        workspace.record_check(opened, "", outcome)
    return Feedback(opened, outcome, ban_words(opened, _program(names, calls)))


def _program(names: Names, calls: Sequence[str]) -> str:
    """Return the cells or files that define an answer, and what is defined beside it."""
    answers = {call: names[call] for call in calls if call in names}
    modules = {getattr(answer, "__module__", None) for answer in answers.values()}
    defining = list(answers.values())
    for value in list(names.values()):
        if isinstance(value, FunctionType | type) and value.__module__ in modules:
            defining.append(value)
    files = dict.fromkeys(chain.from_iterable(map(_files_of, defining)))
    cells = ["".join(linecache.getlines(file)) for file in files]
    cells += [f"{call} = {getattr(answer, '__name__', call)}" for call, answer in answers.items()]
    return join_cells(cells).program


def _files_of(value: Any) -> list[str]:
    """Return the files, or cells, of a function or of the methods of a class."""
    parts = vars(value).values() if isinstance(value, type) else [value]
    return [part.__code__.co_filename for part in parts if isinstance(part, FunctionType)]
