"""attnlab course verify: for authors of exercises."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from attnlab.cli.options import AsJson, WholeNumber
from attnlab.cli.progress import counting
from attnlab.cli.terminal import print_json, say, show_table
from attnlab_course.course_options import Own

if TYPE_CHECKING:
    from attnlab_course.verify import Verification


def verify(
    *names: str, exercises: Own = None, seeds: WholeNumber = 5, as_json: AsJson = False
) -> int:
    """Check the exercises themselves: solution, starter, and every named mistake.

    Parameters
    ----------
    names
        Exercises; by default all.
    exercises
        A folder with exercises of your own.
    seeds
        How many times the cases are drawn.
    as_json
        Print what was found as JSON.
    """
    from dataclasses import asdict

    from attnlab_course.catalog import all_exercises, exercise_of_file
    from attnlab_course.verify import verify_exercise

    chosen = [exercise_of_file(name, exercises) for name in names]
    if not names:
        chosen = [exercise for _, exercise in all_exercises(exercises)]
    results = []
    with counting("exercises", is_quiet=as_json) as tell:
        for done, exercise in enumerate(chosen, 1):
            results.append(verify_exercise(exercise, range(seeds)))
            tell(done, len(chosen))
    if as_json:
        print_json(list(map(asdict, results)))
    else:
        _show(results)
    return int(any(result.problems for result in results))


def _show(results: "Sequence[Verification]") -> None:
    rows = []
    mistakes = sound = 0
    for result in results:
        problems = "; ".join(result.problems[:3]) or "sound"
        rows.append([result.exercise, f"{result.mistakes}", problems])
        mistakes += result.mistakes
        sound += not result.problems
    show_table(["exercise", "mistakes", ""], rows, unbroken=(0,))
    say(f"{sound} of {len(results)} exercises are sound; {mistakes} mistakes are known by name")
