"""The pages of a graded class: one for each student, which tells no answers, and one for the class.

They hold no script and make no request; a strict content security policy holds them to that, and
every text of a student is escaped and cannot steer the direction of writing.
"""

import base64
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from attnlab.core.store import make_folder, write_text
from attnlab.course.grading.classroom import file_name
from attnlab.course.grading.exports import check_shares
from attnlab.course.grading.gradebook import Grade, Gradebook, Row
from attnlab.course.grading.similarity import Alike
from attnlab.course.grading.told import check_words, grade_words, mistake_words
from attnlab.display import harmless

_OPEN_STATES = ("waits", "needs review")


@dataclass(frozen=True)
class _Check:
    name: str
    words: str
    passed: bool


@dataclass(frozen=True)
class _Part:
    """What a student's page says of an exercise."""

    name: str
    title: str
    points: str
    of: str
    words: str
    mistakes: Sequence[str]
    checks: Sequence[_Check]
    criteria: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class _ClassRow:
    student: str
    link: str
    points: str
    cells: Sequence[str]
    notes: Sequence[str]


@dataclass(frozen=True)
class _Text:
    student: str
    exercise: str
    rubric: Sequence[str]
    words: str


def write_pages(book: Gradebook, alike: Sequence[Alike], folder: Path) -> None:
    """Write the class's page, and a report into each student's folder."""
    write_text(folder / "class.html", render_class(book, alike))
    for row in book.rows:
        place = folder / "students" / file_name(row.student)
        make_folder(place)
        write_text(place / "report.html", render_student(book, row))


def render_student(book: Gradebook, row: Row) -> str:
    """Return a student's page: points, checks and named mistakes, without answers or inputs."""
    late = ""
    if row.days_late:
        days = "1 day" if row.days_late == 1 else f"{row.days_late} days"
        late = f"Handed in {days} after the deadline: {row.late_percent:g} % less."
    return _render(
        "student.html",
        heading=row.student,
        subtitle=f"{book.course.title}: {row.points:g} of {book.of:g} points",
        row=row,
        late=late,
        parts=[_part(book, grade) for grade in row.grades],
    )


def render_class(book: Gradebook, alike: Sequence[Alike]) -> str:
    """Return the instructor's page: the table, the checks, programs that are alike, texts."""
    return _render(
        "class.html",
        heading=book.course.title,
        subtitle=f"{len(book.rows)} students, {book.of:g} points",
        book=book,
        rows=[_class_row(row) for row in book.rows],
        checks=list(check_shares(book)),
        alike=alike,
        texts=list(_texts(book)),
    )


def _part(book: Gradebook, grade: Grade) -> _Part:
    exercise = book.course.exercises[grade.exercise]
    checks: list[_Check] = []
    mistakes: list[str] = []
    if grade.graded is not None:
        mistakes = mistake_words(exercise, grade.graded)
        for line in grade.graded.checks:
            checks.append(_Check(line.name, check_words(exercise, line), line.passed))
    words = grade_words(grade)
    title = exercise.parts.title
    figures = (f"{grade.points:g}", f"{grade.of:g}")
    return _Part(grade.exercise, title, *figures, words, mistakes, checks, grade.criteria)


def _class_row(row: Row) -> _ClassRow:
    notes = [*row.private, *row.submission.problems]
    cells = []
    for grade in row.grades:
        if grade.state == "missing":
            cells.append("–")
        else:
            cells.append(f"{grade.points:g}{'?' * (grade.state in _OPEN_STATES)}")
        if grade.state == "needs review" and grade.graded is not None:
            used = ", ".join(grade.graded.banned)
            notes.append(f"{grade.exercise} uses {used}; {grade.held:g} points are held")
    if row.days_late:
        notes.append(f"days late: {row.days_late}")
    link = f"students/{file_name(row.student)}/report.html"
    return _ClassRow(row.student, link, f"{row.points:g}", cells, notes)


def _texts(book: Gradebook) -> Iterator[_Text]:
    for name in book.exercises:
        parts = book.course.exercises[name].parts
        if parts.kind != "text":
            continue
        for row in book.rows:
            answer = row.submission.answers.get(name)
            if answer is not None:
                yield _Text(row.student, name, parts.rubric, answer.source)


def _render(template: str, **values: Any) -> str:
    style = (
        "\n"
        + _read("attnlab.draw", "report/page.css")
        + _read("attnlab.course.grading", "templates/grades.css")
    )
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; "
        "form-action 'none'"
    )
    page = _templates().get_template(template)
    return page.render(values, policy=Markup(policy), style=Markup(style))


def _read(package: str, name: str) -> str:
    return (resources.files(package) / name).read_text(encoding="utf-8")


@cache
def _templates() -> Environment:
    return Environment(
        loader=PackageLoader("attnlab.course.grading", "templates"),
        autoescape=True,
        finalize=_shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def _shown(value: Any) -> Any:
    return harmless(value) if isinstance(value, str) and not isinstance(value, Markup) else value
