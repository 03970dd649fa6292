"""Options of the commands of `attnlab course`: where the answers are, and the exercises."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from attnlab.errors import WrongUsage

if TYPE_CHECKING:
    from attnlab_course.exercise import CourseExercise
    from attnlab_course.sandbox.replies import AskProgram
    from attnlab_course.workspace import Workspace

Own = Annotated[Path | None, Parameter(name="--exercises")]

_SECONDS = 10.0  # for all answers of an exercise


@Parameter(name="*")
@dataclass(frozen=True)
class CourseOptions:
    """Options of the commands for students: where their answers are, and the exercises."""

    folder: Path | None = None
    """Your folder; by default course, or this one if it is one."""

    exercises: Path | None = None
    """A folder with exercises of your own."""

    def workspace(self) -> "Workspace":
        """Return the folder of the answers."""
        from attnlab_course.workspace import find_workspace

        return find_workspace(self.folder)

    def exercise(self, name: str) -> "CourseExercise":
        """Return an exercise by its name, or by a file of its answer."""
        from attnlab_course.catalog import exercise_of_file

        return exercise_of_file(name, self.exercises)

    def known(self) -> "dict[str, tuple[str, CourseExercise]]":
        """Return all exercises by their names, each with its chapter."""
        from attnlab_course.catalog import all_exercises

        exercises = {}
        for chapter, exercise in all_exercises(self.exercises):
            exercises[exercise.name] = chapter, exercise
        return exercises

    def begun(self) -> list[str]:
        """Return the exercises that have a file in the folder."""
        workspace = self.workspace()
        names = list(filter(workspace.files, self.known()))
        if not names:
            raise WrongUsage(
                f"there is no answer in {workspace.folder}; begin with: attnlab course start "
                "attention"
            )
        return names


HERE = CourseOptions()


@contextmanager
def open_worker() -> "Iterator[AskProgram]":
    """Yield a function that puts cases to a program in a process of its own."""
    from attnlab_course.sandbox.worker import Limits, Worker

    with Worker() as worker:
        yield partial(worker.ask, limits=Limits(seconds=_SECONDS))
