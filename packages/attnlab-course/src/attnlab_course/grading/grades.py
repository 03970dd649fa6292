"""The grades of a class: of an exercise, of a student, of all; what is open, refused or late."""

import datetime
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from attnlab_course.grading.classroom import HASHED, GradedAnswer, file_name
from attnlab_course.grading.course_file import Course
from attnlab_course.grading.roster import likely_name, read_time
from attnlab_course.grading.submission import Submission
from attnlab_course.submit import file_label


@dataclass(frozen=True)
class Grade:
    """A student's points for an exercise.

    Args:
        exercise: which.
        points: that count.
        of: that there are.
        held: that wait for a review.
        state: graded, missing, blank (the untouched template), unreadable (a file that could not be
            read), needs review, rejected or waits (a text without points).
        graded: the result; None for texts, and where there is no answer.
        criteria: of a text, each with the points that it got from 0 to 1, empty while it waits.
        is_decided: whether the instructor gave the points, in place of the checks.
    """

    exercise: str
    points: float
    of: float
    held: float = 0.0
    state: str = "graded"
    graded: GradedAnswer | None = None
    criteria: tuple[tuple[str, str], ...] = ()
    is_decided: bool = False

    @property
    def is_open(self) -> bool:
        """Whether a person has to look at it."""
        is_unjudged = self.graded is not None and self.graded.unjudged is not None
        is_held = self.state in ("needs review", "waits", "unreadable")
        return is_held or (is_unjudged and not self.is_decided)

    @property
    def counted(self) -> GradedAnswer | None:
        """The result of the checks, where the points are theirs; None for those of a person."""
        return None if self.is_decided else self.graded

    @property
    def cell(self) -> str:
        """Its points in a table: – where nothing was handed in, a ? where a person has to look."""
        if self.state == "missing":
            return "–"
        return "?" if self.is_open else f"{self.points:g}"


@dataclass(frozen=True)
class StudentGrades:
    """A student's grades.

    Args:
        submission: what was handed in; empty for a student of the list who did not.
        grades: in the order of the exercises.
        facts: what the list of students says, and what it lacks by Moodle.
        private: notes for the instructor alone.
        unread: files and submissions that may hold more answers of this student.
        days_late: days begun after the deadline.
        late_percent: of the points, lost by being late.
        points: the sum, less what is lost by being late.
    """

    submission: Submission
    grades: tuple[Grade, ...]
    facts: Mapping[str, str]
    private: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    days_late: int = 0
    late_percent: float = 0.0
    points: float = 0.0

    def grade(self, exercise: str) -> Grade:
        """Return the grade of an exercise that counts."""
        return next(grade for grade in self.grades if grade.exercise == exercise)

    @property
    def notes(self) -> list[str]:
        """What the instructor has to look at."""
        notes = [*self.private, *self.submission.problems]
        for grade in self.grades:
            if grade.state == "needs review" and grade.graded is not None:
                used = ", ".join(grade.graded.banned)
                notes.append(f"{grade.exercise} uses {used}; {grade.held:g} points are held")
            elif grade.state == "waits":
                notes.append(f"{grade.exercise} is a text, which waits for points")
        if self.days_late:
            notes.append(f"days late: {self.days_late}")
        return notes

    @property
    def may_lack_answers(self) -> bool:
        """Whether an exercise is missing that may be answered in what could not be assigned."""
        is_open = any(grade.state in ("missing", "blank") for grade in self.grades)
        return bool(self.unread) and is_open

    @property
    def waits(self) -> bool:
        """Whether a person has to look at an exercise, or at what could not be assigned."""
        return self.may_lack_answers or any(grade.is_open for grade in self.grades)

    @property
    def is_decided(self) -> bool:
        """Whether the instructor gave the points of every exercise."""
        return bool(self.grades) and all(grade.is_decided for grade in self.grades)

    @property
    def student(self) -> str:
        """The name of the submission."""
        return self.submission.student

    @property
    def name(self) -> str:
        """The student's name by the list of students or by Moodle; else that of the submission."""
        return self.facts.get("name") or self.student

    @property
    def time(self) -> datetime.datetime | None:
        """When it was handed in, by the list of students or else by itself; None if not known."""
        return read_time(self.facts.get("submitted") or self.submission.created)


@dataclass(frozen=True)
class Gradebook:
    """The grades of a class.

    Args:
        course: what the instructor says of it.
        exercises: those that count.
        rows: one for each student.
        unlisted: who handed in and is not on the list of students.
        absent: who is on the list and handed in nothing.
        passed_over: names among the submissions that are none.
    """

    course: Course
    exercises: tuple[str, ...]
    rows: tuple[StudentGrades, ...]
    unlisted: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    passed_over: tuple[str, ...] = ()

    @property
    def listed(self) -> tuple[StudentGrades, ...]:
        """The rows that gradebooks take: without those who are not on the list of students."""
        return tuple(row for row in self.rows if row.student not in self.unlisted)

    @property
    def present(self) -> tuple[StudentGrades, ...]:
        """The rows of those who are on the list and handed something in."""
        return tuple(row for row in self.listed if row.student not in self.absent)

    @property
    def unlisted_words(self) -> tuple[str, ...]:
        """Who is not on the list of students, each with the name that may be meant."""
        likely = {name: likely_name(name, self.course.students) for name in self.unlisted}
        return tuple(
            f"{name} (did you mean {near}?)" if near else name for name, near in likely.items()
        )

    def state(self, row: StudentGrades) -> str:
        """Return `graded`; `waits`, where a person has to look; `refused`, `unlisted` or `absent`.

        A refused submission holds no answer that could be read. What waits or is refused has no
        grade yet: gradebooks get none. Who may have answered in a file or submission that could
        not be assigned waits, too.
        """
        if row.student in self.unlisted:
            return "unlisted"
        if row.is_decided:
            return "graded"
        is_absent = row.student in self.absent
        if not (row.submission.answers or row.submission.blank or is_absent):
            return "refused"
        if row.waits:
            return "waits"
        return "absent" if is_absent else "graded"

    def points(self, row: StudentGrades) -> float | None:
        """Return a student's points; None while there is no grade yet."""
        return row.points if self.state(row) in ("graded", "absent") else None

    @cached_property
    def folders(self) -> dict[str, str]:
        """The name of each student's folder: the student's, with a hash where two are alike."""
        labels = {row.student: file_label(row.student)[:60] for row in self.rows}
        counts = Counter(label.casefold() for label in labels.values())
        for student, label in labels.items():
            is_alone = counts[label.casefold()] == 1 and not HASHED.search(label)
            if not label or not is_alone:
                labels[student] = file_name(student)
        return labels

    @property
    def refused(self) -> tuple[str, ...]:
        """Whose submissions are in no gradebook or without a grade, as nothing can be read."""
        states = "refused", "unlisted"
        return tuple(row.student for row in self.rows if self.state(row) in states)

    @property
    def handed_in(self) -> int:
        """How many submissions were handed in: those read and those refused."""
        return len(self.rows) - len(self.absent)

    @property
    def without_time(self) -> tuple[str, ...]:
        """Whose time is not known, and counts as before the deadline; none without a deadline."""
        rows = self.present if self.course.deadline else ()
        return tuple(row.student for row in rows if not row.time)

    @property
    def is_by_students_clock(self) -> bool:
        """Whether a student's own clock says that a submission is late."""
        return any(row.days_late and not row.facts.get("submitted") for row in self.rows)

    @property
    def headings(self) -> list[str]:
        """The exercises with their points, as the heads of a table's columns."""
        return [f"{name} (of {self.course.of(name):g})" for name in self.exercises]

    @property
    def of(self) -> float:
        """How many points there are in all."""
        return sum(map(self.course.of, self.exercises))
