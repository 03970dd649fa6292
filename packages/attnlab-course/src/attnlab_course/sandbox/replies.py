"""What a worker replies, cut to the form and size that it must have.

The bytes come from a process that a student's code may have taken over. The values in the answers
are left as they came: only `compare.read_answer` looks into them.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from attnlab_course.sandbox.student_code import (
    MOST_NUMBERS,
    EncodedCase,
    Json,
    Names,
    answer_case,
    describe_error,
    load_names,
)

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

_MEMORY = f"it may take {MEMORY_BYTES >> 30} GB in all; make its arrays and lists smaller"

SENTENCES = {
    "NotImplementedError": "it is not written yet",
    "TookTooLong": "it took too long; is there a loop that does not end?",
    "TooLarge": TOO_LARGE,
    "ProcessEnded": "its process ended before it had answered",
}
"""The words for errors that need no message; the last three are the worker's."""

PYTHON_ERRORS = frozenset(
    (
        *("AssertionError", "AttributeError", "ImportError", "IndexError", "KeyError"),
        *("ModuleNotFoundError", "NameError", "NotImplementedError", "RuntimeError"),
        *("SyntaxError", "TypeError", "UnboundLocalError", "ValueError", "ZeroDivisionError"),
        *("TimeoutError", "OverflowError", "MemoryError", "RecursionError", "SystemExit"),
    )
)
"""The exceptions that a student reads by name; a rare one could give hidden inputs away."""

_TOLD = PYTHON_ERRORS | {"Missing", "TooLarge"}

_ABOUT = {
    "parameters": ("parameters are not those",),
    "booleans": ("bool tensor", "Boolean", "numpy boolean"),
    "dtypes": ("dtype", "scalar type"),
    "gradients": ("requires grad", "require grad"),
    "shapes": ("size of tensor", "shape", "dimension", "broadcast", "xpanded size", "sizes"),
}
"""The topics of errors, and words of a message that belong to them; the first that fits counts."""


@dataclass(frozen=True)
class CaseAnswer:
    """A program's answer to a case: a value, or an error.

    Args:
        value: as JSON of `student_code.encode`; None where there is an error.
        error: the exception's type, or one of ours: Missing, TooLarge, TookTooLong, ProcessEnded;
            empty where there is a value.
        message: of the error; empty where it could tell of hidden inputs.
        line: of the program, where the error was raised; None where it is not known.
        about: the error's topic in `_ABOUT`, which tells of no input; empty for any other.
        printed: what the program printed.
    """

    value: Json = None
    error: str = ""
    message: str = ""
    line: int | None = None
    about: str = ""
    printed: str = ""

    @property
    def words(self) -> str:
        """The error, and the program's line that raised it."""
        if self.error == "Missing":
            return f"there is no {self.message}"
        if self.error in SENTENCES:
            return SENTENCES[self.error]
        words = self.error
        if self.message:
            words += f": {self.message}"
        if self.error == "MemoryError":
            words += f"; {_MEMORY}"
        if self.line is not None:
            words += f" (line {self.line})"
        return words


@dataclass(frozen=True)
class Reply:
    """A program's answers to some cases.

    Args:
        answers: one for each case; none where there is a problem.
        problem: why no case could be put to the program; empty where all could.
        passed_over: which statement at the program's top failed and why; empty without one.
    """

    answers: Sequence[CaseAnswer] = ()
    problem: str = ""
    passed_over: str = ""


AskProgram = Callable[[str, str, Sequence[EncodedCase]], Reply]
"""Puts cases to a program: its source, its file's name for messages, the cases."""


def ask_names(names: Names, cases: Sequence[EncodedCase]) -> Reply:
    """Put cases to names that are in this process, such as a notebook's."""
    answers = []
    for case in cases:
        answers.append(clean_answer(answer_case(names, case), case["call"], is_graded=False))
    return Reply(answers)


def ask_here(source: str, path: str, cases: Sequence[EncodedCase]) -> Reply:
    """Put cases to a program that is run in this process; it must be the course's own."""
    try:
        names = load_names(source, path)
    except Exception as error:
        return cannot_run(describe_error(error))
    return ask_names(names, cases)


def cannot_run(error: Json) -> Reply:
    """Return the reply of a program that raises an error when it is run; None: it ended Python."""
    if error is None:
        return Reply(problem=SENTENCES["ProcessEnded"])
    return Reply(problem=f"it cannot be run: {clean_error(error).words}")


def with_error(answers: Sequence[CaseAnswer], error: Json) -> Reply:
    """Return the reply of a program of which a statement at its top failed; None: none did.

    Where it then lacks all that is asked for, it cannot be run.
    """
    if error is None:
        return Reply(answers)
    if all(answer.error == "Missing" for answer in answers):
        return cannot_run(error)
    cleaned = clean_error(error)
    place = "a statement" if cleaned.line is None else f"line {cleaned.line}"
    words = replace(cleaned, line=None).words
    return Reply(answers, passed_over=f"{place} fails and was passed over: {words}")


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


def clean_answer(answer: Json, call: str, *, is_graded: bool) -> CaseAnswer:
    """Return an answer in the form that it must have.

    Args:
        answer: what came.
        call: the name that was called.
        is_graded: keep of an error no more than its type, so that no input is shown.
    """
    answer = of_kind(dict, answer)
    printed = "" if is_graded else of_kind(str, answer.get("printed"))[:_MOST_PRINTED]
    if "value" in answer:
        return CaseAnswer(answer["value"], printed=printed)
    cleaned = clean_error(answer)
    if is_graded:
        name = cleaned.error if cleaned.error in _TOLD else "Exception"
        cleaned = CaseAnswer(error=name, about=cleaned.about)
    if cleaned.error == "Missing" and not cleaned.message.startswith(call):
        cleaned = replace(cleaned, message=call)
    return replace(cleaned, printed=printed)


def clean_error(error: Json) -> CaseAnswer:
    """Return an error in the form that it must have."""
    error = of_kind(dict, error)
    name = of_kind(str, error.get("error")) or "damaged answer"
    message = of_kind(str, error.get("message"))
    line = of_kind(int, error.get("line"))
    topics = (topic for topic, words in _ABOUT.items() if any(word in message for word in words))
    line = line if 0 < line < 10**6 else None
    return CaseAnswer(None, name[:80], message[:_MOST_WORDS], line, next(topics, ""))


def of_kind(kind: type[Any], value: Json) -> Any:
    """Return a value of JSON if it has this type, else an empty one."""
    return value if type(value) is kind else kind()
