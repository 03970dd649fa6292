"""attnlab grade-send: send the scores of a class to its LTI platform."""

from pathlib import Path
from typing import TYPE_CHECKING

from attnlab.cli.failures import writing_to
from attnlab.cli.options import AsJson, Quiet, Switch
from attnlab.cli.progress import counting
from attnlab.cli.terminal import print_json, say, show_table
from attnlab.core.store import locked
from attnlab.errors import CouldNotRun, typed

if TYPE_CHECKING:
    from attnlab_course.grading.passback import SendingReport


def grade_send(
    grades: Path,
    /,
    *,
    platform: Path,
    dry_run: Switch = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> int:
    """Send the scores of a class to the gradebook of its platform, by LTI 1.3.

    The same command again sends only what is new or has changed, and goes on after an
    interruption. The exit status is 1 if a score was refused or a user is unknown.

    Parameters
    ----------
    grades
        The folder of the grades, or one of results of attnlab grade-one.
    platform
        A platform.toml: how the platform knows this tool, and where the gradebook is.
    dry_run
        Read from the platform, and say what would be sent; send nothing.
    as_json
        Print what became of each score as JSON.
    quiet
        Hide the progress.
    """
    try:
        from attnlab_course.grading.lti import Services, read_platform
    except ImportError as error:
        raise CouldNotRun(
            f"sending grades needs {error.name}: pip install 'attnlab-course[lti]'"
        ) from None
    from attnlab_course.grading.passback import match_users, read_results, send_scores

    settings = read_platform(platform)
    results = read_results(grades)
    command = f"attnlab grade-send {typed(grades)} --platform {typed(platform)}"
    with (
        locked(grades),
        writing_to(grades, "sent.jsonl", command),
        counting("sending", is_quiet=as_json or quiet) as tell,
        Services(settings) as services,
    ):
        members = services.members() if settings.memberships else []
        users = match_users(results, Path(settings.users) if settings.users else None, members)
        sending = send_scores(results, users, services, grades, is_trial=dry_run, progress=tell)
    counts = sending.counts
    if as_json:
        print_json({"given": len(results), **counts, "outcomes": sending.outcomes})
    else:
        _show(sending, settings.title or settings.assignment, is_trial=dry_run)
    return int(counts["refused"] + counts["unknown"] > 0)


def _show(sending: "SendingReport", column: str, *, is_trial: bool) -> None:
    """Print the scores that were not sent, or in a trial those that would be, and the sum; column:
    the name of the one that would be created."""
    from attnlab_course.grading.file_names import inert

    words = {"sent": "would be sent" if is_trial else "sent", "before": "sent before"}
    listed = {"refused", "unknown", "sent" if is_trial else ""}
    rows = []
    for student, (outcome, why) in sending.outcomes.items():
        if outcome in listed:
            rows.append((student, words.get(outcome, outcome), inert(why)))
    if rows:
        show_table(["student", "", ""], rows)
    parts = [f"{count} {words.get(name, name)}" for name, count in sending.counts.items()]
    say(f"{len(sending.outcomes)} given: {', '.join(parts)}")
    if is_trial and not sending.column:
        say(f"the column {column} would be created")
