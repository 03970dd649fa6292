"""attnlab grade-one: grade one submission, for the worker of a queue."""

import traceback
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from attnlab.cli.failures import machine_words
from attnlab.cli.options import WholeNumber
from attnlab.cli.terminal import complain, print_json
from attnlab.core.store import write_json
from attnlab.errors import AttnlabError

_STATUSES = {
    "refused": 1,
    "unlisted": 1,
}  # of a result by its state; a failure has that of its error


def grade_one(
    submission: Annotated[str, Parameter(allow_leading_hyphen=True)],
    /,
    *,
    grades: Path,
    course: Path,
    name: str = "",
    submitted: str = "",
    seconds: WholeNumber = 900,
    out: Annotated[Path | None, Parameter(name=["--out", "-o"])] = None,
) -> int:
    """Grade one submission: one result as JSON, and nothing kept; for the workers of a queue.

    The sandbox, the questions and the points are those of `attnlab grade`. The exit status says
    what to do: 0, graded; 1, refused, since nothing in it can be read or its student is not on the
    list; 2, the call is wrong; 3, it could not be graded now, so put it back. With each of them
    there is a result, which says why.

    Parameters
    ----------
    submission
        A zip, a folder, a program or a notebook; - for standard input.
    grades
        The folder of grades of the class, which has the seed of the questions and the filled
        sheets. It is only read.
    course
        A course.toml that lists the exercises that count.
    name
        The name that it was handed in by: ada.zip, or ada/attention.py; by default that of the
        path.
    submitted
        When it was received, as in 2027-02-01T20:15:00+01:00; by default what its own log says.
    seconds
        The limit of time for all exercises together; none is begun after it.
    out
        A file for the result; by default it is printed.
    """
    from attnlab_course.grading.one_submission import grade_submission
    from attnlab_course.grading.results import RESULT_FORM

    status = 3
    result: dict[str, object] = {"format": RESULT_FORM, "submission": name or submission}
    try:
        result |= grade_submission(
            submission, grades, course, name=name, submitted=submitted, seconds=seconds
        )
        status = _STATUSES.get(str(result["state"]), 0)
    except AttnlabError as error:
        result |= {"state": "failed", "error": str(error)}
        status = error.exit_status
    except Exception as error:  # the worker needs a result, whatever went wrong
        words = machine_words(error)
        if words is None:
            traceback.print_exc()
        result |= {"state": "failed", "error": words or f"{type(error).__name__}: {error}"}
    if out is None:
        print_json(result)
    else:
        write_json(out, result)
        if "error" in result:  # a person who tries it looks here, and not into the file
            return complain(str(result["error"]), status)
    return status
