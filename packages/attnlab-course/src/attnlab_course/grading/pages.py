"""The pages of a graded class: one for each student, which tells no answers, and one for the class.

They hold no script and make no request; a strict content security policy holds them to that, and
every text of a student is escaped and cannot steer the direction of writing.
"""

import base64
import hashlib
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from attnlab.core.store import make_folder, write_text
from attnlab.display import harmless, plural
from attnlab.draw.colors import color_css
from attnlab_course.grading.exports import check_shares
from attnlab_course.grading.grades import Gradebook, StudentGrades
from attnlab_course.grading.similarity import Alike, is_solution
from attnlab_course.grading.student_feedback import (
    check_words,
    grade_words,
    mistake_words,
    points_words,
    reason_words,
    total_words,
)
from attnlab_course.judge import FOLLOWS, OPEN


def write_pages(book: Gradebook, alike: Sequence[Alike], folder: Path) -> None:
    """Write the class's page, and a report into each student's folder."""
    write_text(folder / "class.html", render_class(book, alike))
    for row in book.rows:
        place = folder / "students" / book.folders[row.student]
        make_folder(place)
        write_text(place / "report.html", render_student(book, row))


def render_student(book: Gradebook, row: StudentGrades) -> str:
    """Return a student's page: points, checks and named mistakes, without answers or inputs."""
    late = ""
    if row.days_late:
        days = "1 day" if row.days_late == 1 else f"{row.days_late} days"
        late = f"Handed in {days} after the deadline: {row.late_percent:g} % less."
    return _render(
        "student.html",
        heading=row.name,
        subtitle=f"{book.course.title}: {total_words(book, row)}",
        book=book,
        row=row,
        late=late,
        grade_words=grade_words,
        points_words=points_words,
        mistake_words=mistake_words,
        check_words=check_words,
        OPEN=OPEN,
        FOLLOWS=FOLLOWS,
    )


def render_class(book: Gradebook, alike: Sequence[Alike]) -> str:
    """Return the instructor's page: the table, the checks, programs that are alike, texts."""
    students = f"{len(book.listed)} {plural(len(book.listed), 'student')}"
    if book.unlisted:
        students += f" and {len(book.unlisted)} not on the list"
    return _render(
        "class.html",
        heading=book.course.title,
        subtitle=f"{students}, {book.of:g} points",
        book=book,
        checks=check_shares(book),
        alike=alike,
        copied=list(_copied(book)),
        texts=list(_texts(book)),
        reason_words=reason_words,
    )


def _copied(book: Gradebook) -> Iterator[tuple[str, list[str]]]:
    """Yield the exercises to which a student's program is the published solution, and whose."""
    for name in book.exercises:
        exercise, students = book.course.exercises[name], []
        for row in book.rows:
            answer = row.submission.answers.get(name)
            if answer is not None and is_solution(answer, exercise):
                students.append(row.student)
        if students:
            yield name, students


def _texts(book: Gradebook) -> Iterator[tuple[str, str, Sequence[str], str]]:
    """Yield the texts that were handed in: by whom, for which exercise, its rubric, the words."""
    for name in book.exercises:
        parts = book.course.exercises[name].parts
        if parts.kind != "text":
            continue
        for row in book.rows:
            answer = row.submission.answers.get(name)
            if answer is not None:
                yield row.student, name, parts.rubric, answer.source


def _render(template: str, **values: Any) -> str:
    styles = (
        color_css(),
        _read("attnlab.draw", "report/page.css"),
        _read("attnlab_course.grading", "templates/grades.css"),
    )
    style = "\n" + "".join(styles)
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
        loader=PackageLoader("attnlab_course.grading", "templates"),
        autoescape=True,
        finalize=_shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def _shown(value: Any) -> Any:
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    return harmless(value)
