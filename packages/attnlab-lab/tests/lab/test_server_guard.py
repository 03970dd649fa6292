"""The guard: only the lab's own page is answered, and not more than is good for it."""

import pytest

from attnlab.errors import CouldNotRun, WrongUsage
from attnlab_lab.server import answers, jobs

from .asgi import page_over
from .guard_checks import (
    HOSTS,
    ROUTES,
    break_one_run,
    check_foreign_pages,
    check_headers,
    check_hosts,
    check_json,
    check_methods,
    check_one_time_address,
    check_paths,
    check_refusals_are_pages_for_people,
    check_sizes,
    check_strangers,
)


@pytest.fixture
def page(tmp_path, monkeypatch):
    with page_over(monkeypatch, tmp_path) as made:
        yield made


def test_the_table_of_routes_is_the_app_s(page):
    paths = {
        (method, route.path.format(name="one", file="lab.js", member="0"))
        for route in page.app.routes
        for method in route.methods - {"HEAD"}
    }
    assert paths == set(ROUTES)
    assert len(HOSTS) >= 40


def test_only_the_exact_hosts_are_answered(page):
    check_hosts(page)
    assert (
        page.ask("GET", "/api/runs", headers=page.own(host="localhost:8765", origin=None)).status
        == 200
    )


def test_only_the_page_itself_may_ask(page):
    check_foreign_pages(page)


def test_strangers_get_nothing(page):
    check_strangers(page)


def test_the_address_opens_the_page_once(page):
    check_one_time_address(page)


def test_a_person_who_is_refused_sees_a_page_and_a_script_gets_json(page):
    check_refusals_are_pages_for_people(page)


def test_other_methods_and_targets_are_refused(page):
    check_methods(page)


def test_a_request_may_only_be_so_large(page):
    check_sizes(page)


def test_json_is_strict_and_flat(page):
    check_json(page)


def test_no_path_leads_out_of_the_runs(page):
    check_paths(page)


def test_every_answer_has_the_headers(page, monkeypatch):
    break_one_run(monkeypatch, page)
    check_headers(page)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (jobs.Busy("so much waits"), 429),
        (jobs.Missing("there is no job"), 404),
        (answers.Superseded("a newer one came"), 409),
        (answers.Crashed("it ended"), 503),
        (WrongUsage("this is wrong"), 400),
        (CouldNotRun("the disk is full"), 409),
    ],
)
def test_each_error_has_its_status_and_its_sentence(page, monkeypatch, error, status):
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(page.lab.jobs, "resume", fail)
    answer = page.ask("POST", "/api/jobs/one/resume", body={})
    assert (answer.status, answer.error) == (status, str(error))
    assert answer.header("retry-after") == ("2" if status == 429 else None)
