"""The submissions of a class, read from a folder.

A submission is a zip that `attnlab course submit` wrote, a student's folder, a program or notebook
named after an exercise, a notebook with several exercises, or a record or a homework's log in JSON.
Nothing of it is run or written to the disk here. What is wrong with one is reported,
and the others are read.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from operator import attrgetter
from pathlib import Path, PurePosixPath

from attnlab.errors import CouldNotRun
from attnlab_course.exercise import CourseExercise
from attnlab_course.grading.answers import AnswerReader
from attnlab_course.grading.file_names import (
    ENDINGS,
    MOST_NAME,
    before_exercise,
    ending_of,
    exercise_of,
    facts_of,
    inert,
    number_in,
    student_of,
    students_in,
)
from attnlab_course.grading.homework_log import is_homework_log
from attnlab_course.grading.submission import Submission
from attnlab_course.grading.submission_files import read_files
from attnlab_course.workspace import LOG

_SEVERAL = (
    "it holds what several students handed in, such as {} and {}: unpack it, if it is a zip, and "
    "give attnlab grade the folder in which they lie"
)


def read_class(folder: Path, exercises: Mapping[str, CourseExercise]) -> list[Submission]:
    """Read all submissions of a folder, or the one that is named, in the order of their names.

    Raises:
        CouldNotRun: there is none.
    """
    if not folder.exists():
        raise CouldNotRun(f"there is no {folder}; expected a folder of submissions.")
    folder = folder.resolve()  # so that it has a name
    submissions: dict[str, Submission] = {}
    inside = _inside(folder)
    paths = [folder] if inside is None else _submissions_of(inside, exercises)
    for path in paths:
        read_into(submissions, path, exercises, is_of_class=inside is not None)
    if not submissions:
        raise CouldNotRun(
            f"{folder} holds no submission; expected zips, folders, programs or notebooks, one "
            "for each student."
        )
    return [submissions[name] for name in sorted(submissions)]


def entries_passed_over(folder: Path, exercises: Mapping[str, CourseExercise]) -> list[str]:
    """Return the names in a folder of submissions that are none, such as a PDF or a read-me."""
    inside = _inside(folder) or []
    submissions = set(_submissions_of(inside, exercises))
    return [inert(path.name, MOST_NAME) for path in inside if path not in submissions]


def _submissions_of(inside: Iterable[Path], exercises: Mapping[str, CourseExercise]) -> list[Path]:
    """Keep what may be a submission; a text is one if its name has that of an exercise."""
    return [path for path in inside if _may_be_submission(path, exercises)]


def _inside(folder: Path) -> list[Path] | None:
    """Return what lies in a folder of submissions; None where it is a submission itself."""
    if not folder.is_dir():
        return None
    inside = sorted(path for path in folder.iterdir() if not path.name.startswith((".", "__")))
    if {"manifest.json", LOG}.isdisjoint(path.name for path in inside):
        return inside
    return None


def _may_be_submission(path: Path, exercises: Mapping[str, CourseExercise]) -> bool:
    if ending_of(path.name) == ".txt" and not path.is_dir():
        return exercise_of(path.stem, exercises, loosely=True) is not None
    return ending_of(path.name) in (".zip", *ENDINGS) or path.is_dir() or path.is_symlink()


def read_into(
    submissions: dict[str, Submission],
    path: Path,
    exercises: Mapping[str, CourseExercise],
    *,
    is_of_class: bool = False,
) -> None:
    """Add the answers of a file or folder to its student's submission, or to those of several.

    Args:
        submissions: those so far, by student.
        path: the file or folder.
        exercises: by name.
        is_of_class: it lies among the submissions of a class, whose folder bears no student's name.
    """
    student, notes = student_of(path, exercises), []
    loosely = ending_of(path.name) in ENDINGS
    is_named = before_exercise(path.stem, exercises, loosely=loosely) or not path.is_file()
    if is_of_class and not is_named:
        student = inert(path.stem, MOST_NAME)
        notes.append(
            f"{path.name} does not say whose it is: name it STUDENT_{path.name}, or put it into a "
            "folder that is named after the student"
        )
    owner = Submission(student, facts=facts_of(path.name))
    for name, files in _files_by_student(path, owner, exercises).items():
        submission = owner if name == student else Submission(name)
        for words in notes:
            submission.tell(words)
        _read_answers(submission, files, exercises, inert(path.name, MOST_NAME))
        submissions[name] = _joined(submissions.get(name), submission)


def _files_by_student(
    path: Path, owner: Submission, exercises: Mapping[str, CourseExercise]
) -> dict[str, dict[str, bytes]]:
    """Return the files of an entry by student; tell its owner what could not be read."""
    try:
        files, problems, too_large = read_files(path)
        parts = _by_student(owner.student, files, exercises)
        students = students_in(files)
    except Exception as error:  # whatever a student thought of: the others are still read
        problems, too_large, parts, students = [_unreadable(error)], [], {}, []
    if len(students) > 1:
        problems, parts = [_SEVERAL.format(*students)], {}
    for words in problems:
        owner.tell(words)
        parts.setdefault(owner.student, {})
    for file in too_large:
        exercise = exercise_of(PurePosixPath(file).stem, exercises, loosely=True)
        if exercise is not None:
            owner.unreadable.add(exercise)
    return parts


def _read_answers(
    submission: Submission,
    files: Mapping[str, bytes],
    exercises: Mapping[str, CourseExercise],
    entry: str,
) -> None:
    """Read the answers in the files of an entry among the submissions."""
    try:
        AnswerReader(submission, files, exercises).read()
    except Exception as error:  # as above
        submission.tell(_unreadable(error))
    submission.entries = dict.fromkeys(submission.answers, entry)
    for name in sorted(submission.blank) if not submission.answers else ():
        submission.tell(f"{name}: nothing is written in it")
    if not submission.answers and not submission.blank:
        submission.tell("it holds no answer to an exercise of the course")


def _joined(first: Submission | None, second: Submission) -> Submission:
    """Join what one student handed in at two times: where both answer an exercise, the later one.

    That is the one with the later time in it; without a time in both, the one with the higher
    number in its name, as browsers and course systems count; else the first by name.
    """
    if first is None:
        return second
    for name in second.answers:
        if name in first.answers:
            _join_answer(name, first, second)
        else:
            first.answers[name], first.entries[name] = second.answers[name], second.entries[name]
    for name, digests in second.claims.items():
        first.claims.setdefault(name, set()).update(digests)
    first.given_up |= second.given_up
    first.blank |= second.blank
    first.unreadable |= second.unreadable
    first.passed_over += second.passed_over
    for words in second.problems:
        first.tell(words)
    newer = max(first, second, key=attrgetter("created"))
    label = newer.label or first.label or second.label
    facts = first.facts or second.facts
    return replace(first, label=label, created=newer.created, facts=facts)


def _join_answer(name: str, first: Submission, second: Submission) -> None:
    """Keep the answer that counts of two to one exercise, and tell the student which."""
    answers = first.answers[name], second.answers[name]
    entries = first.entries[name], second.entries[name]
    is_second, rule = _second_counts((first.created, second.created), entries)
    if is_second:
        first.answers[name], first.entries[name] = answers[1], entries[1]
        entries = entries[::-1]
    if answers[0].digest != answers[1].digest:
        first.tell(f"{name} is answered twice: {entries[0]} counts, {entries[1]} not, as {rule}")


def _second_counts(times: tuple[str, str], entries: tuple[str, str]) -> tuple[bool, str]:
    """Whether the second of two answers counts, by their times or entries, and what decides it."""
    if all(times) and times[0] != times[1]:
        return times[0] < times[1], "the time in it is later"
    numbers = number_in(entries[0]), number_in(entries[1])
    if numbers[0] != numbers[1]:
        return numbers[0] < numbers[1], "its name has the higher number"
    return False, "no time and no number says which is later, and its name comes first"


def _unreadable(error: Exception) -> str:
    return f"it could not be read further: {type(error).__name__}: {error}"


def _by_student(
    student: str, files: Mapping[str, bytes], exercises: Mapping[str, CourseExercise]
) -> dict[str, dict[str, bytes]]:
    """Return the files of a zip or folder by student: it may hold the logs of several.

    A log is of the student whose name it or its folder bears, with the other files of that folder.
    """
    owners = {}
    for name, content in files.items():
        if ending_of(name) == ".json" and _is_homework_log(content):
            owners[name] = student_of(Path(student, name), exercises)
    basenames = {PurePosixPath(name).name for name in files}
    if len({*owners.values()}) < 2 or "manifest.json" in basenames:
        return {student: dict(files)}
    folders = {PurePosixPath(name).parent: owner for name, owner in owners.items()}
    folders.pop(PurePosixPath("."), None)
    parts: dict[str, dict[str, bytes]] = {}
    for name, content in files.items():
        owner = owners.get(name) or folders.get(PurePosixPath(name).parent, student)
        parts.setdefault(owner, {})[name] = content
    return parts


def _is_homework_log(content: bytes) -> bool:
    try:
        return is_homework_log(json.loads(content))
    except (ValueError, RecursionError):
        return False
