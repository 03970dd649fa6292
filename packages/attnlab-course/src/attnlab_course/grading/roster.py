"""The list of a course's students: read, and matched with what was handed in."""

import datetime
import difflib
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path

from attnlab.errors import WrongUsage, did_you_mean
from attnlab_course.grading.file_names import inert
from attnlab_course.grading.sheets import read_table
from attnlab_course.grading.submission import Submission
from attnlab_course.submit import file_label

ROSTER = (
    *("student", "name", "id", "sis_user_id", "sis_login_id", "section"),
    *("identifier", "email", "submitted"),
)
"""The columns of a list of students; only the first is needed."""

NameForm = tuple[str, str]
"""A form that a name may have: its kind, and the name in it."""

_OF_SYSTEM = re.compile(r"(?P<name>.+?)(?:_LATE)?_(?P<number>\d+)")
_FEWEST_DIGITS = 3  # of a number that says alone who it is: `alice_2` is no number 2


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
        raise WrongUsage(
            f"{path} needs a column 'student', as submissions are named; "
            f"found: {', '.join(rows[0])}."
        )
    students: dict[str, Mapping[str, str]] = {}
    for row in filter(itemgetter("student"), rows):
        student = row["student"]
        if student in students:
            raise WrongUsage(f"{path}: {student!r} is there twice; keep one of the rows.")
        _check_time(path, row)
        students[student] = row
    return students


def _check_time(path: Path, row: Mapping[str, str]) -> None:
    submitted = row.get("submitted", "")
    if submitted and read_time(submitted) is None:
        raise WrongUsage(
            f"{path}: in the row of {row['student']!r}, submitted must be a time, as in "
            f"2026-12-01T18:00:00+01:00; got {submitted!r}."
        )


def read_time(text: str) -> datetime.datetime | None:
    """Read a time; None where it is none."""
    try:
        return datetime.datetime.fromisoformat(text)
    except ValueError:
        return None


@dataclass(frozen=True)
class RosterMatch:
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
) -> RosterMatch:
    """Match each submission with a student of the list, where that is clear."""
    names = _names_on_list(submissions, students)
    handed_in = [submission.student for submission in submissions] if students else []
    unlisted = [student for student in handed_in if student not in names]
    absent = [student for student in students if student not in names.values()]
    return RosterMatch(students, names, tuple(unlisted), tuple(absent))


def likely_name(student: str, students: Iterable[str]) -> str | None:
    """Return the one on the list who may be meant; None without any.

    Accents aside, the name is spelled nearly like theirs, holds theirs, or is a part of theirs
    alone, as a first name is.
    """
    names, bare = {_bare(name): name for name in students}, _bare(student)
    names.pop("", None)
    likely = difflib.get_close_matches(bare, names, 1, 0.8)
    likely += [name for name in names if name in bare][:1]
    words = set(bare.split())
    wider = [name for name in names if words and words <= set(name.split())]
    if len(wider) == 1:
        likely += wider
    return names[likely[0]] if likely else None


def _names_on_list(
    submissions: Sequence[Submission], students: Mapping[str, Mapping[str, str]]
) -> dict[str, str]:
    """Return for each submission who on the list handed it in.

    The name of the file counts first: as it is, as `attnlab course submit` writes it, without
    regard to case and signs, as course systems write it. Then the label in it does, in the same
    order. What two submissions have, or a student who is matched already, is no name.
    """
    exact = {_plain(student): student for student in students}
    matches = {}
    for submission in submissions:
        if _plain(submission.student) in exact:
            matches[submission.student] = exact[_plain(submission.student)]
    owners = _owners_of_names(students)
    for read in _READINGS:
        _match({one.student: read(one.student) for one in submissions}, owners, matches)
    for read in _READINGS:
        _match({one.student: read(one.label) for one in submissions}, owners, matches)
    return matches


def _match(
    names: Mapping[str, NameForm], owners: Mapping[NameForm, set[str]], matches: dict[str, str]
) -> None:
    """Match the submissions whose name, read in one way, is of one student alone.

    Args:
        names: the name of each submission, as it is read.
        owners: the students who may be meant by a name.
        matches: the student of each submission that is matched; those found here are added.
    """
    taken = set(matches.values())
    submissions_of: dict[str, list[str]] = {}
    for submission, name in names.items():
        free = owners.get(name, set()) - taken
        if submission not in matches and len(free) == 1:
            submissions_of.setdefault(free.pop(), []).append(submission)
    for student, submissions in submissions_of.items():
        if len(submissions) == 1:
            matches[submissions[0]] = student


def _owners_of_names(students: Mapping[str, Mapping[str, str]]) -> dict[NameForm, set[str]]:
    """Return the students who may be meant by each form of a name or number."""
    owners: dict[NameForm, set[str]] = {}
    for student, facts in students.items():
        forms = {*_name_forms(student), *_name_forms(facts.get("name", ""))}
        for number in (facts.get("id", ""), facts.get("identifier", "").rpartition(" ")[2]):
            if len(number) >= _FEWEST_DIGITS:
                forms.add(("number", number))
        for form in filter(itemgetter(1), forms):  # a name of signs alone is empty in some forms
            owners.setdefault(form, set()).add(student)
    return owners


def _name_forms(name: str) -> Iterator[NameForm]:
    """Yield the forms in which a name may be written: its words also in turn, without blanks."""
    if not name:
        return
    words = _folded(name).split()
    yield from (("plain", _plain(name)), ("plain", file_label(name)))
    yield from (("folded", " ".join(words)), ("bare", _bare(name)))
    for first in range(len(words)):
        yield "joined", "".join(words[first:] + words[:first])


def _plain(name: str) -> str:
    """Return a name as submissions are named, with its accents in one form."""
    return inert(unicodedata.normalize("NFC", name), 80)


def _folded(name: str) -> str:
    """Return a name without regard to case, to how accents are composed and to other signs.

    >>> _folded("Anne-Marie O'Brien_B") == _folded("anne marie o_brien-b")
    True
    """
    plain = unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())
    return " ".join(re.sub(r"[\W_]+", " ", plain).split())


def _bare(name: str) -> str:
    """Return a folded name without its accents, as on keyboards that have none."""
    letters = unicodedata.normalize("NFD", _folded(name))
    return "".join(letter for letter in letters if not unicodedata.combining(letter))


def _of_system(name: str) -> tuple[str, str]:
    """Return the name and the number in a name that Moodle or Canvas wrote; empty without.

    Moodle writes NAME_NUMBER, Canvas surnamename_NUMBER or surnamename_LATE_NUMBER.
    """
    match = _OF_SYSTEM.fullmatch(name)
    return (match["name"], match["number"]) if match else ("", "")


_READINGS: tuple[Callable[[str], NameForm], ...] = (
    lambda name: ("plain", _plain(name)),
    lambda name: ("folded", _folded(name)),
    lambda name: ("joined", _folded(name).replace(" ", "")),
    lambda name: ("bare", _bare(name)),
    lambda name: ("folded", _folded(_of_system(name)[0])),
    lambda name: ("joined", _folded(_of_system(name)[0]).replace(" ", "")),
    lambda name: ("bare", _bare(_of_system(name)[0])),
    lambda name: ("number", _of_system(name)[1]),
)
"""How a name is read, one after the other."""
