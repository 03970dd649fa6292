"""What a student handed in: the answers, and what the files say beside them."""

import hashlib
import json
from dataclasses import dataclass, field

from attnlab_course.grading.file_names import inert
from attnlab_course.sandbox.student_code import Json

_MOST_TOLD = 20


@dataclass(frozen=True)
class SubmittedAnswer:
    """What was handed in for an exercise.

    Args:
        exercise: its name.
        file: the file's name in the submission.
        source: the program or the text; empty for data.
        data: the JSON of what was handed in as data, graded without running anything.
        adapter: what connects the program's names to those of the exercise; the course's own.
    """

    exercise: str
    file: str
    source: str = ""
    data: Json = None
    adapter: str = ""

    @property
    def digest(self) -> str:
        """The SHA-256 of what was handed in."""
        text = self.source
        if self.data is not None:
            text = json.dumps(self.data, sort_keys=True)
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass
class Submission:
    """What a student handed in.

    Args:
        student: the name that the file or folder has among the submissions.
        answers: by exercise.
        problems: what is wrong with it, in sentences; none of them costs points.
        label: how the student signed it.
        created: when, by the student's clock; empty where it is not said.
        claims: for each exercise, the digests of the answers that passed by the student's log.
        entries: for each exercise, the file or folder among the submissions that answers it.
        given_up: the exercises whose solution was shown by the log before an answer passed.
        blank: the exercises whose file is the untouched template.
        unreadable: the exercises to which a file was handed in that could not be read.
        facts: the name and the identifier that Moodle wrote into its name.
        passed_over: files in it whose names are not those of an exercise: they may be answers.
    """

    student: str
    answers: dict[str, SubmittedAnswer] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    label: str = ""
    created: str = ""
    claims: dict[str, set[str]] = field(default_factory=dict)
    entries: dict[str, str] = field(default_factory=dict)
    given_up: set[str] = field(default_factory=set)
    blank: set[str] = field(default_factory=set)
    unreadable: set[str] = field(default_factory=set)
    facts: dict[str, str] = field(default_factory=dict)
    passed_over: list[str] = field(default_factory=list)

    def tell(self, words: str) -> None:
        """Add a problem once, unless there are too many."""
        line = inert(words, 300)
        if len(self.problems) < _MOST_TOLD and line not in self.problems:
            self.problems.append(line)
