"""A student's folder: the files of the exercises, and a log of what was done.

The log has one JSON object a line. It shows how a student worked and where they got stuck. It is
never a score: the student can write anything into it.
"""

import ast
import datetime
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from attnlab.core.store import explained, locked, make_folder, write_bytes, write_text
from attnlab.errors import CouldNotRun, WrongUsage, typed
from attnlab_course.cells import parse_program, program_of_notebook, starter_cells, starter_notebook
from attnlab_course.exercise import CourseExercise
from attnlab_course.judge import ExerciseOutcome
from attnlab_course.notebook_cells import join_cells, without_magic
from attnlab_course.sandbox.student_code import load_names

Event = Mapping[str, Any]
"""A line of the log: what was done, when, and facts of it."""

LOG = "log.jsonl"
FORM = "attnlab course 1"
_PATIENCE = 10.0  # seconds; a check beside `watch` writes a line, and is done


@dataclass(frozen=True)
class ExerciseState:
    """The progress on an exercise: checks made, hints seen, the last check's result.

    `passed` is whether all checks that were run passed, `waiting` how many were not run, `mistake`
    the known one that the answer makes, and `failed` the first check that it failed where another
    passed, both until a hint told of them. `told` are the numbers of the general hints that such a
    hint consisted of.
    """

    tries: int = 0
    hints: int = 0
    passed: bool = False
    waiting: int = 0
    mistake: str = ""
    failed: str = ""
    shown_hints: tuple[int, ...] = ()

    @property
    def solved(self) -> bool:
        """Whether every check there is was run and passed."""
        return self.passed and not self.waiting


NEW = ExerciseState()
"""The progress on an exercise that was not begun."""


@dataclass(frozen=True)
class WrittenAnswer:
    """An answer's file and program, and the older of two files that were edited."""

    path: Path
    source: str
    older: Path | None


@dataclass(frozen=True)
class Workspace:
    """A student's folder.

    Args:
        folder: holds NAME.py, NAME.ipynb and NAME.svg of each exercise begun, and the log.
    """

    folder: Path

    @property
    def log(self) -> Path:
        """The log's file."""
        return self.folder / LOG

    def files(self, name: str) -> list[Path]:
        """Return the files of an exercise that are there: the program, the notebook."""
        both = [self.folder / f"{name}{ending}" for ending in (".py", ".ipynb")]
        return [path for path in both if path.is_file()]

    def answer(self, exercise: CourseExercise) -> WrittenAnswer:
        """Return the answer to an exercise: the file that was edited last.

        Raises:
            WrongUsage: the exercise was not begun here, or the file cannot be read.
        """
        files = self.files(exercise.name)
        if not files:
            elsewhere = "" if self.folder == Path("course") else f" --folder {typed(self.folder)}"
            raise WrongUsage(
                f"there is no {exercise.name}.py in {self.folder}; begin it with: "
                f"attnlab course start {exercise.name}{elsewhere}"
            )
        sources = {path: read_source(path) for path in files}
        written = [path for path in files if not is_untouched(exercise, sources[path])]
        written.sort(key=lambda path: path.stat().st_mtime_ns)
        path = written[-1] if written else files[0]
        older = written[0] if len(written) > 1 else None
        return WrittenAnswer(path, sources[path], older)

    def start(self, exercise: CourseExercise, *, again: bool = False) -> list[Path]:
        """Write the files of an exercise and return them.

        Args:
            exercise: which.
            again: replace the answer that is there.

        Raises:
            CouldNotRun: it was begun already.
        """
        make_folder(self.folder)
        name = exercise.name
        program = self.folder / f"{name}.py"
        notebook = self.folder / f"{name}.ipynb"
        for path in (program, notebook):
            if path.exists() and not again:
                raise CouldNotRun(
                    f"{path} is there already and was left as it is; to begin anew: "
                    f"attnlab course start {name} --again"
                )
        picture = draw_picture(exercise)
        written = [program, notebook]
        write_text(program, exercise.starter)
        write_text(notebook, starter_notebook(starter_cells(exercise.source, name), name))
        if picture is not None:
            written.append(self.folder / f"{name}.svg")
            write_bytes(written[-1], picture)
        self.record("start", exercise=name)
        return written

    def save(self, exercise: CourseExercise, source: str) -> None:
        """Write an answer into the exercise's program, which is then the newest."""
        write_text(self.folder / f"{exercise.name}.py", source)

    def record(self, event: str, **facts: Any) -> None:
        """Append an event to the log.

        Raises:
            CouldNotRun: the log cannot be written.
        """
        make_folder(self.folder)
        with locked(self.folder, _PATIENCE), explained(self.log):
            lines, now = self._lines(), time_now()
            if not lines:
                lines.append(json.dumps({"event": "begin", "time": now, "format": FORM}))
            entry = {"event": event, "time": now, **facts}
            lines.append(json.dumps(entry, ensure_ascii=False))
            write_text(self.log, "\n".join(lines) + "\n")

    def events(self) -> Iterator[Event]:
        """Yield the events of the log."""
        yield from read_events(self._lines())

    def record_check(self, exercise: CourseExercise, source: str, outcome: ExerciseOutcome) -> None:
        """Append the result of a check, unless nothing is written yet."""
        if outcome.is_blank:
            return
        self.record(
            "check",
            exercise=exercise.name,
            sha256=hashlib.sha256(source.encode()).hexdigest(),
            passed=[result.check.name for result in outcome.checks if result.passed],
            failed=[result.check.name for result in outcome.checks if not result.passed],
            mistake=outcome.mistake and outcome.mistake.name,
            done=outcome.passed,
            waiting=outcome.waiting,
        )

    def states(self) -> dict[str, ExerciseState]:
        """Return the progress on each exercise, by the log."""
        states: dict[str, ExerciseState] = {}
        for event in self.events():
            name, kind = str(event.get("exercise")), event.get("event")
            state = states.get(name, NEW)
            if kind == "check":
                passed = event.get("done") is True
                waiting = int(event.get("waiting", 0))
                mistake = str(event.get("mistake") or "")
                failed = str([*event.get("failed", ()), ""][0]) if event.get("passed") else ""
                state = replace(state, tries=state.tries + 1, passed=passed, waiting=waiting)
                state = replace(state, mistake=mistake, failed=failed)
            elif kind == "hint":
                number = int(event.get("number", 0))
                state = replace(state, hints=max(state.hints, number))
                if "mistake" in event:
                    shown = (*state.shown_hints, *map(int, event.get("told", ())))
                    state = replace(state, mistake="", failed="", shown_hints=shown)
            elif kind not in ("start", "solution"):
                continue
            states[name] = state
        return states

    def _lines(self) -> list[str]:
        if not self.log.is_file():
            return []
        text = self.log.read_text(encoding="utf-8", errors="replace")
        return text.splitlines()


def read_source(path: Path) -> str:
    """Return the program of an answer's file, a program or a notebook.

    Raises:
        WrongUsage: it is no text, or no notebook.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        raise WrongUsage(f"could not read {path}: {error}.") from None
    return program_of_notebook(text) if path.suffix == ".ipynb" else without_magic(text)


def is_untouched(exercise: CourseExercise, source: str) -> bool:
    """Whether a program is the exercise's starter, but for blanks and comments, or only imports."""
    tree = parse_program(source)
    if tree and all(isinstance(node, ast.Import | ast.ImportFrom) for node in tree.body):
        return True
    starters = (exercise.starter, join_cells([exercise.starter]).program)  # of file and notebook
    try:
        return tree is not None and ast.dump(tree) in map(ast.dump, map(ast.parse, starters))
    except RecursionError:
        return False


def read_events(lines: Iterable[str]) -> Iterator[Event]:
    """Yield the events of a log; damaged lines are passed over."""
    for line in lines:
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(event, dict):
            yield event


def find_workspace(folder: Path | None) -> Workspace:
    """Return the folder that is named; else the current one if a course is in it; else course/."""
    if folder is not None:
        return Workspace(folder)
    here = Path()
    return Workspace(here if (here / LOG).is_file() else here / "course")


def draw_picture(exercise: CourseExercise) -> bytes | None:
    """Draw the picture of an exercise's statement as SVG; None where it has none."""
    if exercise.parts.picture is None:
        return None
    import io

    names = load_names(exercise.source, str(exercise.path))
    written = io.BytesIO()
    figure = exercise.parts.picture(names)
    figure.savefig(written, format="svg", bbox_inches="tight", metadata={"Date": None})
    return re.sub(rb"<metadata>.*?</metadata>", b"", written.getvalue(), flags=re.DOTALL)


def time_now() -> str:
    """Return the time in UTC, to the second."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
