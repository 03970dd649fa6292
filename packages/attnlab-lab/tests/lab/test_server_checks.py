"""The checks of the guard, the connections, the jobs and the answers hold, and each fails where a
line of them is changed."""

from pathlib import Path
from typing import Any

import pytest

from attnlab.errors import CouldNotRun, WrongUsage
from attnlab_lab.server import answers, connections, events, guard, jobs, refusals, state
from tests.planting import planted
from tests.sampling import first_of_each

from . import answers_checks, connections_checks, guard_checks, jobs_checks
from .asgi import page_over

CHECKS = [
    check
    for module in (guard_checks, jobs_checks, answers_checks, connections_checks)
    for name, check in vars(module).items()
    if name.startswith("check_")
]


def run(check: Any, folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Run a check of a module over a folder."""
    if check.__module__ == jobs_checks.__name__:
        for name, value in (("TERM_AFTER", 0.1), ("KILL_AFTER", 0.8), ("_CLOSING", 0.5)):
            patch.setattr(jobs, name, value)
        jobs_checks.carried(patch, folder / "runs", check)
    elif check.__module__ == answers_checks.__name__:
        answers_checks.carried(patch, check)
    elif check.__module__ == connections_checks.__name__:
        with connections_checks.threaded(patch, folder) as server:
            check(server)
    else:
        with page_over(patch, folder) as page:
            if check is guard_checks.check_headers:
                guard_checks.break_one_run(patch, page)
            check(page)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_it_holds(check, tmp_path, monkeypatch):
    run(check, tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (jobs.Busy("so much waits"), 429),
        (jobs.NotFound("there is no job"), 404),
        (answers.Superseded("a newer one came"), 409),
        (answers.Crashed("it ended"), 503),
        (WrongUsage("this is wrong"), 400),
        (CouldNotRun("the disk is full"), 409),
    ],
)
def test_each_error_has_its_status_and_its_sentence(tmp_path, monkeypatch, error, status):
    def fail(*_: object) -> None:
        raise error

    with page_over(monkeypatch, tmp_path) as page:
        monkeypatch.setattr(page.lab.jobs, "resume", fail)
        answer = page.ask("POST", "/api/jobs/one/resume", body={})
    assert (answer.status, answer.error) == (status, str(error))
    assert answer.header("retry-after") == ("2" if status == 429 else None)


# file, line as it stands, line as it becomes, the check that fails; the first of each file, which
# is planted by default, one that is soon seen where there is one
FAULTS = [
    (guard, "if len(hosts) != 1 or hosts[0] not in self._hosts:",
     "if not any(hosts[:1] and hosts[0].startswith(each) for each in self._hosts):",
     guard_checks.check_hosts),
    (guard, "if len(hosts) != 1 or hosts[0] not in self._hosts:",
     "if hosts[0:1] == [] or hosts[0].lower() not in self._hosts:", guard_checks.check_hosts),
    (guard, "if is_foreign or not (origins or sites):", "if is_foreign:",
     guard_checks.check_foreign_pages),
    (guard, 'any(origin != b"http://" + host for origin in origins)',
     'any(not origin.startswith(b"http://" + host) for origin in origins)',
     guard_checks.check_foreign_pages),
    (guard, 'any(site != b"same-origin" for site in sites)',
     'any(site == b"cross-site" for site in sites)', guard_checks.check_foreign_pages),
    (guard, "        and not _values(scope, b\"origin\")\n", "", guard_checks.check_foreign_pages),
    (guard, "        if not is_known:\n", "        if not is_known and not is_page:\n",
     guard_checks.check_strangers),
    (guard, "name == self._name and hmac", "name.endswith(self._name) and hmac",
     guard_checks.check_strangers),
    (guard, "hmac.compare_digest(value, self._session)", "self._session.startswith(value)",
     guard_checks.check_strangers),
    (guard, "if not is_right or current == self._used_token:", "if not is_right:",
     guard_checks.check_one_time_address),
    (guard, "        self.token = secrets.token_urlsafe(32)\n",
     "        self.token = vars(self).get(\"token\") or secrets.token_urlsafe(32)\n",
     guard_checks.check_one_time_address),
    (refusals, "html.escape(sentence[:1].upper() + sentence[1:])", "sentence",
     guard_checks.check_refusals_are_pages_for_people),
    (refusals, "if mode is None else mode == b\"navigate\"", "",
     guard_checks.check_refusals_are_pages_for_people),
    (guard, "; HttpOnly; SameSite=Strict", "; HttpOnly; SameSite=Lax",
     guard_checks.check_one_time_address),
    (guard, "{**HEADERS, **{",
     "{**(HEADERS if message['status'] < 400 else {}), **{", guard_checks.check_headers),
    (guard, "                if len(body) > MOST_BODY:\n                    raise too_much\n", "",
     guard_checks.check_sizes),
    (guard, "_is_deeper(item, levels - 1)", "_is_deeper(item, levels)", guard_checks.check_json),
    (guard, 'if kind not in (b"application/json",', 'if b"json" not in kind and kind not in (b"",',
     guard_checks.check_json),
    (guard, 'if scope["method"] not in ("GET", "POST"):', 'if scope["method"] == "OPTIONS":',
     guard_checks.check_methods),
    (state, "is_inside = folder.parent == self.runs.resolve() and folder.name == name",
     "is_inside = str(folder).startswith(str(self.runs.parent))", guard_checks.check_paths),
    (connections, '        self._expect("headers", HEADER_SECONDS)\n\n    def data',
     "\n    def data", connections_checks.check_slow),
    (connections, '        if "headers" not in self._due and self._is_idle():\n'
     '            self._expect("headers", HEADER_SECONDS)\n', "", connections_checks.check_idle),
    (jobs, "        while self._is_taken(name):", "        while False:",
     jobs_checks.check_names),
    (jobs, "            os.killpg(process.pid, number)", "            process.send_signal(number)",
     jobs_checks.check_force),
    (jobs, "((TERM_AFTER, signal.SIGTERM), (KILL_AFTER, signal.SIGKILL))",
     "((TERM_AFTER, signal.SIGTERM),)", jobs_checks.check_force),
    (jobs, '        if wish == "canceled":\n', "        if wish:\n", jobs_checks.check_patience),
    (jobs, "        async with self._places:\n", "        if True:\n", jobs_checks.check_places),
    (jobs, "        task.add_done_callback(lambda _: self._note_end(name, live))\n", "",
     jobs_checks.check_ends),
    (events, "            if number > after:", "            if number >= after:",
     jobs_checks.check_log),
    (events, "            os.truncate(path, content.rfind(b\"\\n\") + 1)", "            pass",
     jobs_checks.check_log),
    (answers, "        if self._waiting >= MOST_WAITING:\n", "        if False:\n",
     answers_checks.check_burst),
    (answers, "                process.send_signal(signal.SIGINT)", "                pass",
     answers_checks.check_stop),
    (answers, "        while self._answered is question:\n", "        if True:\n",
     answers_checks.check_stop),
    (answers, "        while self._answered is question:\n", "        while self._answered:\n",
     answers_checks.check_stop),
    (answers, "if question is None or question[0] != page or process is None:",
     "if question is None or process is None:", answers_checks.check_stop),
    (answers, "            self.said = json.loads", "            line = json.loads",
     answers_checks.check_said),
    (answers, "if page is not None and self._newest.get(page) is not ticket:", "if False:",
     answers_checks.check_latest_wins),
    (answers, "            self._newest[page] = ticket\n",
     "            self._newest = {page: ticket}\n", answers_checks.check_latest_wins),
    (answers, "            async with self._turn:\n", "            if True:\n",
     answers_checks.check_fifty_pages),
    (answers, "                self._kill()\n                await process.wait()\n", "",
     answers_checks.check_no_answer_is_mistaken),
]  # fmt: skip


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("fault", first_of_each(range(len(FAULTS)), lambda fault: FAULTS[fault][0]))
def test_each_fault_is_caught(fault, tmp_path, monkeypatch):
    module, line, changed, check = FAULTS[fault]
    for checks in (jobs_checks, answers_checks, connections_checks):
        monkeypatch.setattr(checks, "PATIENCE", 2.0)
    with (
        planted(module.__name__, line, changed),
        pytest.raises((AssertionError, TimeoutError, pytest.fail.Exception)),
    ):
        run(check, tmp_path, monkeypatch)
