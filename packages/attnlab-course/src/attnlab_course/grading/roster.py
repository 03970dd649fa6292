"""The list of a course's students: read, and matched with what was handed in."""

import datetime
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from attnlab.errors import WrongUsage, did_you_mean
from attnlab_course.grading.sheets import read_table
from attnlab_course.grading.submissions import Submission, inert
from attnlab_course.submit import file_label

ROSTER = (
    "student",
    "name",
    "id",
    "sis_user_id",
    "sis_login_id",
    "section",
    "identifier",
    "email",
    "submitted",
)
"""The columns of a list of students; only the first is needed."""


def read_students(path: Path) -> dict[str, Mapping[str, str]]:
    """Read a list of students, a table with the columns of `ROSTER` or some of them.

    Raises:
        WrongUsage: a column that is not known, or none for the student; a student who is there
            twice; a time that cannot be read.
    """
    rows = read_table(path)
    for name in rows[0] if rows else ():
        if name not in ROSTER:
            raise WrongUsage(f"{path}: no column {name!r} is known; {did_you_mean(name, ROSTER)}")
    if rows and "student" not in rows[0]:
        raise WrongUsage(f"{path} needs a column 'student', as submissions are named.")
    students: dict[str, Mapping[str, str]] = {}
    for row in rows:
        student, submitted = row["student"], row.get("submitted", "")
        if not student:
            continue
        if student in students:
            raise WrongUsage(f"{path}: {student!r} is there twice; keep one of the rows.")
        if submitted and read_time(submitted) is None:
            raise WrongUsage(
                f"{path}: in the row of {student!r}, submitted must be a time, as in "
                f"2026-12-01T18:00:00+01:00; got {submitted!r}."
            )
        students[student] = row
    return students


def read_time(text: str) -> datetime.datetime | None:
    """Read a time; None where it is none."""
    try:
        return datetime.datetime.fromisoformat(text)
    except ValueError:
        return None


@dataclass(frozen=True)
class Listing:
    """The list of students beside the submissions.

    Args:
        students: what is known of each.
        names: their names on the list, by their submissions'.
        unlisted: who handed in and is not on the list.
        absent: who is on the list and handed in nothing.
    """

    students: Mapping[str, Mapping[str, str]]
    names: Mapping[str, str]
    unlisted: tuple[str, ...]
    absent: tuple[str, ...]

    def facts(self, student: str) -> Mapping[str, str]:
        """Return what the list says of who handed in a submission, or did not."""
        return self.students.get(self.names.get(student, student), {})

    def notes(self, student: str) -> list[str]:
        """Return what the instructor should know."""
        if student in self.unlisted:
            return ["not on the list of students, so in no gradebook"]
        if student in self.absent:
            return ["on the list of students, nothing handed in"]
        return []


def name_students(
    submissions: Iterable[Submission], students: Mapping[str, Mapping[str, str]]
) -> None:
    """Call each student by the name that the list has, wherever one is matched."""
    submissions = list(submissions)
    names = _names_on_list(submissions, students)
    for submission in submissions:
        submission.student = names.get(submission.student, submission.student)


def match_students(
    submissions: Sequence[Submission], students: Mapping[str, Mapping[str, str]]
) -> Listing:
    """Match each submission with a student of the list, where that is clear."""
    names = _names_on_list(submissions, students)
    handed_in = [submission.student for submission in submissions] if students else []
    unlisted = [student for student in handed_in if student not in names]
    absent = [student for student in students if student not in names.values()]
    return Listing(students, names, tuple(unlisted), tuple(absent))


def _names_on_list(
    submissions: Sequence[Submission], students: Mapping[str, Mapping[str, str]]
) -> dict[str, str]:
    """Return for each submission who on the list handed it in.

    The name of the file counts first, as it is or as `attnlab course submit` writes it, then the
    label in it; a label that two submissions have, or of a student who is matched already, is none.
    """
    names = _forms_of_names(students)
    exact = {_plain(student): student for student in students}
    matches: dict[str, str] = {}
    for submission in submissions:
        if _plain(submission.student) in exact:
            matches[submission.student] = exact[_plain(submission.student)]
    for signed in ("student", "label"):
        claims: dict[str, list[str]] = {}
        for submission in submissions:
            fitting = names.get(_plain(getattr(submission, signed)), set()) - {*matches.values()}
            if submission.student not in matches and len(fitting) == 1:
                claims.setdefault(fitting.pop(), []).append(submission.student)
        matches |= {claimed[0]: who for who, claimed in claims.items() if len(claimed) == 1}
    return matches


def _forms_of_names(students: Mapping[str, Mapping[str, str]]) -> dict[str, set[str]]:
    """Return who may be meant by each form of a name or label."""
    owners: dict[str, set[str]] = {}
    for student, facts in students.items():
        for name in filter(None, (student, facts.get("name"))):
            for form in (_plain(name), file_label(name)):
                owners.setdefault(form, set()).add(student)
    return owners


def _plain(name: str) -> str:
    """Return a name as submissions are named, with its accents in one form."""
    return inert(unicodedata.normalize("NFC", name), 80)
