"""Send the scores of a class to its LTI platform; what was sent stays noted beside the grades.

    GRADES/sent.jsonl    a line for each score that the platform took

The same command again sends only what is new or has changed, so an interrupted one goes on. Each
result is sent, was sent before, is refused, or is of a user that is not known: none is left out.
"""

import datetime
import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from attnlab.core.store import explained, read_json, refusing_damage, write_text
from attnlab.errors import CouldNotRun, WrongUsage
from attnlab_course.grading.lti import Body, PlatformRefused, Services
from attnlab_course.grading.results import CLASS_FILE, CLASS_FORM, RESULT_FORM
from attnlab_course.grading.sheets import read_table

LtiResult = Mapping[str, Any]

_PROGRESS = {  # of a result by its state: of the student, of the grading
    "graded": ("Completed", "FullyGraded"),
    "waits": ("Completed", "PendingManual"),
    "refused": ("Submitted", "PendingManual"),
    "absent": ("Initialized", "FullyGraded"),
}
_MOST_FAILURES = 3  # in a row, after which the platform is down


def read_results(folder: Path) -> list[LtiResult]:
    """Read the results of a class, or a folder of results of `attnlab grade-one`.

    Raises:
        CouldNotRun: there are none, or one is damaged.
        WrongUsage: two are of one student, or they are out of different numbers of points.
    """
    if (folder / CLASS_FILE).exists():
        with refusing_damage(str(folder / CLASS_FILE)):
            content = read_json(folder / CLASS_FILE)
            results = content["students"] if content["format"] == CLASS_FORM else []
    else:
        files = sorted(folder.glob("*.json"))
        results = [_read_result(file) for file in files]
    if not results:
        raise CouldNotRun(
            f"{folder} holds no grades; expected the folder that attnlab grade writes, or one of "
            "results of attnlab grade-one."
        )
    _check_results(results, folder)
    return results


def _check_results(results: Sequence[LtiResult], folder: Path) -> None:
    """Check that each student has one result, and all are out of the same points.

    Raises:
        WrongUsage: they do not.
    """
    counts = Counter(result["student"] for result in results)
    twice = [student for student, count in counts.items() if count > 1]
    if twice:
        raise WrongUsage(f"{folder} has two results of {', '.join(twice)}; keep one of each.")
    totals = {result["of"] for result in results if result["state"] != "failed"}
    if len(totals) > 1 or 0 in totals:
        raise WrongUsage(
            f"the results in {folder} are out of {', '.join(map(str, sorted(totals)))} points; "
            "grade all with the same course.toml, whose exercises give points."
        )


def _read_result(file: Path) -> LtiResult:
    with refusing_damage(str(file)):
        result = read_json(file)
        if result["format"] != RESULT_FORM:
            raise ValueError(f"it is not of the form {RESULT_FORM!r}")
        return {"student": result["submission"], **result}


@dataclass
class PlatformUsers:
    """The platform's users for the students of a class.

    Args:
        ids: by student.
        unknown: why there is none, by student.
    """

    ids: dict[str, str] = field(default_factory=dict)
    unknown: dict[str, str] = field(default_factory=dict)


def match_users(
    results: Sequence[LtiResult], table: Path | None, members: Sequence[Mapping[str, Any]]
) -> PlatformUsers:
    """Match students with users: by a table, or else by what the platform tells of its members.

    A member is a student's whose user id, email, person id or name they share, if no other member
    does.

    Raises:
        WrongUsage: the table lacks a column.
    """
    listed = _read_users(table) if table is not None else {}
    owners = _owners_of_facts(members)
    matches: dict[str, set[str]] = {}
    for result in results:
        student = result["student"]
        matches[student] = {listed[student]} if student in listed else _owners_of(result, owners)
    sole = {student: next(iter(ids)) for student, ids in matches.items() if len(ids) == 1}
    counts, users = Counter(sole.values()), PlatformUsers()
    for student, ids in matches.items():
        if not ids:
            users.unknown[student] = "no user of the platform has this email, id or name"
        elif len(ids) > 1:
            users.unknown[student] = f"{len(ids)} members share the email, id or name"
        elif counts[sole[student]] > 1:
            users.unknown[student] = f"user {sole[student]} is another student's, too"
        else:
            users.ids[student] = sole[student]
    return users


def _owners_of_facts(members: Sequence[Mapping[str, Any]]) -> dict[str, set[str]]:
    """Return the users who have each user id, email, person id or name."""
    owners: dict[str, set[str]] = {}
    for member in members:
        for name in ("user_id", "email", "lis_person_sourcedid", "name"):
            owners.setdefault(_plain(member.get(name)), set()).add(str(member["user_id"]))
    return owners


def _owners_of(result: LtiResult, owners: Mapping[str, set[str]]) -> set[str]:
    """Return the users who have the first email, id or name of a student that some user has."""
    facts = result.get("facts", {})
    names = [facts.get("email"), facts.get("sis_user_id"), facts.get("name"), result["student"]]
    shared = [owners[name] for name in map(_plain, names) if name and name in owners]
    return shared[0] if shared else set()


def _plain(name: object) -> str:
    return " ".join(str(name or "").casefold().split())


def _read_users(table: Path) -> dict[str, str]:
    rows = read_table(table)
    for name in ("student", "user_id"):
        if not rows or name not in rows[0]:
            raise WrongUsage(f"{table} needs the columns student and user_id, and a row for each.")
    return {row["student"]: row["user_id"] for row in rows if row["user_id"]}


@dataclass
class SentScores:
    """The scores that a platform took, noted in a file as they are sent.

    Args:
        path: its file.
        digests: what was sent last, by column and user.
        times: when.
    """

    path: Path
    digests: dict[tuple[str, str], str] = field(default_factory=dict)
    times: dict[tuple[str, str], datetime.datetime] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> "SentScores":
        """Read the file; a last line that was cut off by an interruption is dropped."""
        sent = cls(path)
        if not path.exists():
            return sent
        with refusing_damage(str(path)):
            text = path.read_text(encoding="utf-8")
            whole = text[: text.rfind("\n") + 1]
            if whole != text:
                write_text(path, whole)
            for line in whole.splitlines():
                entry = json.loads(line)
                key = (entry["column"], entry["user"])
                sent.digests[key] = entry["score"]
                sent.times[key] = datetime.datetime.fromisoformat(entry["time"])
        return sent

    def note(self, key: tuple[str, str], digest: str) -> None:
        """Append a score that was taken at the time that `next_time` gave."""
        column, user = key
        entry = {"column": column, "user": user, "score": digest, "time": str(self.times[key])}
        with explained(self.path), self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")
            file.flush()
            os.fsync(file.fileno())
        self.digests[key] = digest

    def next_time(self, key: tuple[str, str]) -> str:
        """Return the time now, later than that of the score before, whatever the clock says."""
        now = datetime.datetime.now(datetime.UTC)
        now = now.replace(microsecond=now.microsecond // 1000 * 1000)
        if key in self.times:
            now = max(now, self.times[key] + datetime.timedelta(milliseconds=1))
        self.times[key] = now
        return now.isoformat(timespec="milliseconds")


@dataclass
class SendingReport:
    """What became of each result: `sent`, `before`, `refused` or `unknown`, with a word of why."""

    column: str
    outcomes: dict[str, tuple[str, str]] = field(default_factory=dict)

    @property
    def counts(self) -> dict[str, int]:
        """How many results have each outcome."""
        counts = Counter(outcome for outcome, _ in self.outcomes.values())
        return {name: counts[name] for name in ("sent", "before", "refused", "unknown")}


def send_scores(
    results: Sequence[LtiResult],
    users: PlatformUsers,
    services: Services,
    folder: Path,
    *,
    is_trial: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> SendingReport:
    """Send the scores that the platform does not have yet.

    Args:
        results: of the class.
        users: the platform's.
        services: of the platform.
        folder: which notes what was sent.
        is_trial: read from the platform, and say what would be sent; nothing is written.
        progress: called with how many results are done, of how many.

    Raises:
        CouldNotRun: the platform does not answer, or gives no column.
    """
    total = max((result["of"] for result in results if result["state"] != "failed"), default=0)
    sending = SendingReport(services.column(total, create=not is_trial) if total else "")
    sent = SentScores.read(folder / "sent.jsonl")
    failures = 0
    for number, result in enumerate(results, 1):
        student = result["student"]
        try:
            sending.outcomes[student] = _send(
                result, users, services, sending.column, sent, is_trial
            )
            failures = 0
        except PlatformRefused as error:
            sending.outcomes[student] = ("refused", str(error))
        except CouldNotRun as error:
            failures += 1
            if failures == _MOST_FAILURES:
                raise
            sending.outcomes[student] = ("refused", str(error))
        if progress is not None:
            progress(number, len(results))
    return sending


def _send(
    result: LtiResult,
    users: PlatformUsers,
    services: Services,
    column: str,
    sent: SentScores,
    is_trial: bool,
) -> tuple[str, str]:
    """Send one score, and return what became of it and why."""
    student = result["student"]
    if result["state"] == "failed":
        return "refused", f"it could not be graded: {result['error']}"
    if result["state"] == "unlisted":
        return "refused", "not on the list of students"
    if student not in users.ids:
        return "unknown", users.unknown[student]
    score = score_of(result, users.ids[student])
    key = (column, users.ids[student])
    digest = hashlib.sha256(json.dumps(score, sort_keys=True).encode()).hexdigest()
    words = score["gradingProgress"]
    if "scoreGiven" in score:
        words = f"{score['scoreGiven']:g} of {score['scoreMaximum']:g}, {words}"
    if sent.digests.get(key) == digest:
        return "before", words
    if not is_trial:
        services.post_score(column, lambda: {**score, "timestamp": sent.next_time(key)})
        sent.note(key, digest)
    return "sent", f"{words}, to user {key[1]}"


def score_of(result: LtiResult, user: str) -> Body:
    """Return a result as a score of LTI, all but its timestamp; one that waits has no points."""
    activity, grading = _PROGRESS[result["state"]]
    points = {"scoreGiven": result["points"], "scoreMaximum": result["of"]}
    return {
        "userId": user,
        **(points if grading == "FullyGraded" else {}),
        "activityProgress": activity,
        "gradingProgress": grading,
        "comment": result["feedback"]["output"],
    }
