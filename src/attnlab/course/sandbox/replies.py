"""What a worker replies, cut to the form and size that it must have.

The bytes come from a process that a student's code may have taken over. The values in the answers
are left as they came: only `compare.read_answer` looks into them.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from attnlab.course.sandbox.runner import MOST_NUMBERS, EncodedCase, Json, Names, answer_case

MEMORY_BYTES = 2 * 2**30
"""How much memory a student's code may take beyond what Python and torch do."""

REPLY_BYTES = 12_000_000
"""How large all answers to an exercise's cases may be together."""

_MOST_PARTS = 200_000  # of all answers of a reply; arrays count as one
_MOST_WORDS = 300
_MOST_PRINTED = 600
TOO_LARGE = (
    f"the answer is too large: an array may have {MOST_NUMBERS:,} numbers, and all answers "
    f"together {REPLY_BYTES // 10**6} MB and {_MOST_PARTS:,} separate values; return what is "
    "asked for and no more, numbers as one tensor or array"
)
"""What is said of an answer that is too large."""

_SENTENCES = {"NotImplementedError": "it is not written yet", "TooLarge": TOO_LARGE}
_MEMORY = f"it may take {MEMORY_BYTES >> 30} GB in all; make its arrays and lists smaller"

PYTHON_ERRORS = frozenset(
    (
        *("AssertionError", "AttributeError", "ImportError", "IndexError", "KeyError"),
        *("ModuleNotFoundError", "NameError", "NotImplementedError", "RuntimeError"),
        *("SyntaxError", "TypeError", "UnboundLocalError", "ValueError", "ZeroDivisionError"),
        *("TimeoutError", "OverflowError", "MemoryError", "RecursionError"),
    )
)
"""The exceptions that are told by their names; a rare one could tell of hidden inputs."""

_TOLD = PYTHON_ERRORS | {"Missing", "TooLarge"}


_ABOUT = {
    "parameters": ("parameters are not those",),
    "booleans": ("bool tensor", "Boolean", "numpy boolean"),
    "dtypes": ("dtype", "scalar type"),
    "gradients": ("requires grad", "require grad"),
    "shapes": ("size of tensor", "shape", "dimension", "broadcast", "xpanded size", "sizes"),
}
"""What an error is about, and words of a message that say so; the first that fits counts."""


@dataclass(frozen=True)
class Raised:
    """What was raised in place of an answer.

    Args:
        name: the exception's type, or one of ours: Missing, TooLarge, ProcessEnded.
        message: its words; empty where they could tell of hidden inputs.
        line: of the student's file; None where it is not known.
        about: one of `_ABOUT`, which tells of no input; empty where it is about something else.
    """

    name: str
    message: str = ""
    line: int | None = None
    about: str = field(default="", compare=False)

    @property
    def words(self) -> str:
        """What was raised, and in which line of the student's file."""
        if self.name == "Missing":
            return f"there is no {self.message}"
        if self.name in _SENTENCES:
            return _SENTENCES[self.name]
        words = self.name
        if self.message:
            words += f": {self.message}"
        if self.name == "MemoryError":
            words += f"; {_MEMORY}"
        if self.line is not None:
            words += f" (line {self.line})"
        return words


@dataclass(frozen=True)
class CaseAnswer:
    """What came of a case.

    Args:
        value: the answer as JSON of `runner.encode`; None where something was raised.
        raised: what was raised; None where there is an answer.
        printed: what the student's code printed.
    """

    value: Json = None
    raised: Raised | None = None
    printed: str = ""


FAILURES = {
    "time": Raised("TimeoutError", "it took too long; is there a loop that does not end?"),
    "size": Raised("TooLarge"),
    "ended": Raised("ProcessEnded", "its process ended before it had answered"),
}
"""What is told of a case that a worker failed at: time, size or ended."""


@dataclass(frozen=True)
class Reply:
    """What came of putting cases to a program.

    Args:
        answers: one for each case; none where it could not be asked.
        broken: what was raised when the program was run; None where it could be.
        refused: why the worker gave up, of `FAILURES`; empty where it did not.
    """

    answers: Sequence[CaseAnswer] = ()
    broken: Raised | None = None
    refused: str = ""

    def is_whole(self, cases: int) -> bool:
        """Whether there is an answer to each of so many cases."""
        return self.broken is None and not self.refused and len(self.answers) == cases

    @property
    def words(self) -> str:
        """Say why no case could be put to the program."""
        if self.broken is not None:
            return f"it cannot be run: {self.broken.words}"
        failed = FAILURES[self.refused or "ended"]
        return failed.message or failed.words


def is_countable(data: bytes) -> bool:
    """Whether a reply has few enough parts to be read in a moment."""
    return sum(map(data.count, (b",", b"[", b"{"))) <= _MOST_PARTS


def split_reply(data: bytes) -> list[Json]:
    """Return the whole messages of a reply, up to the first that is damaged."""
    messages, at = [], 0
    while at + 8 <= len(data):
        end = at + 8 + int.from_bytes(data[at : at + 8], "big")
        if end > len(data):
            break
        try:
            message = json.loads(data[at + 8 : end])
        except (ValueError, RecursionError):
            break
        messages.append(message)
        at = end
    return messages


def answer_in_process(names: Names, cases: Sequence[EncodedCase]) -> Reply:
    """Put cases to names that are in this process."""
    answers = []
    for case in cases:
        answers.append(clean_answer(answer_case(names, case), case["call"], is_graded=False))
    return Reply(answers)


def clean_answer(answer: Json, call: str, *, is_graded: bool) -> CaseAnswer:
    """Return an answer in the form that it must have.

    Args:
        answer: what came.
        call: the name that was called.
        is_graded: keep of an error no more than its type, so that no input is told.
    """
    if not isinstance(answer, dict):
        answer = {}
    printed = answer.get("printed")
    if is_graded or not isinstance(printed, str):
        printed = ""
    printed = printed[:_MOST_PRINTED]
    if "value" in answer:
        return CaseAnswer(answer["value"], printed=printed)
    raised = clean_error(answer)
    if is_graded:
        name = raised.name if raised.name in _TOLD else "Exception"
        raised = Raised(name, about=raised.about)
    if raised.name == "Missing" and not raised.message.startswith(call):
        raised = replace(raised, message=call)
    return CaseAnswer(raised=raised, printed=printed)


def clean_error(error: Json) -> Raised:
    """Return what was raised in the form that it must have."""
    if not isinstance(error, dict):
        error = {}
    name, message, line = map(error.get, ("error", "message", "line"))
    if not isinstance(name, str):
        name = "damaged answer"
    if not isinstance(message, str):
        message = ""
    if type(line) is not int or not 0 < line < 10**6:
        line = None
    about = next((about for about, words in _ABOUT.items() if _has_any(message, words)), "")
    return Raised(name[:80], message[:_MOST_WORDS], line, about)


def _has_any(text: str, words: Iterable[str]) -> bool:
    return any(word in text for word in words)
