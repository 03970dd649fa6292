"""The server from outside: start, one job with its events, answers, and its end."""

import json
import shutil
import signal
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

import attnlab
from attnlab.cli import main
from tests.draw.view.reading import read_back
from tests.sampling import sampled

from .jobs_checks import is_running
from .serving import running


@pytest.fixture(scope="module")
def lab(tmp_path_factory, sorter):
    """A server over a folder with the sorter, for all tests but those that end it."""
    folder = tmp_path_factory.mktemp("server")
    shutil.copytree(sorter, folder / "runs" / "sorter")
    with running(folder) as made:
        made.open()
        yield made


def numbers(packed):
    return read_back(packed)[0].ravel().tolist()


@pytest.mark.slow
def test_answers_are_those_of_the_library(lab):
    run = lab.folder / "runs" / "sorter"
    edits = [{"edit": "CutEdge", "query": 3, "key": 1, "head": 1}]
    for own in ([], edits):
        found = lab.post("/api/ask", {"run": "sorter", "input": "cab", "edits": own})
        question = attnlab.ask(run, "cab")
        trace = question.trace()
        if own:
            trace = attnlab.fork(question, *attnlab.edits.edits_from_json(own)).after
        assert found["answer"] == "".join(step.choice for step in trace.steps)
        assert found["expected"] == "abc"
        assert found["isRight"] == (found["answer"] == found["expected"])
        assert (found["margin"] > 0) == found["isRight"]
        last = found["steps"][-1]
        assert last["tokens"] == list(trace.tokens[:-1])
        for step, wanted in zip(found["steps"], trace.steps, strict=True):
            pairs = zip(numbers(step["probabilities"])[1:], wanted.probabilities, strict=True)
            assert all(abs(one - other) < 1e-6 for one, other in pairs)
        assert [head["name"] for head in last["heads"]] == ["0.0", "0.1"]
        for head, wanted in zip(last["heads"], trace.attention, strict=True):
            size = head["rows"]
            assert (size, head["columns"]) == (6, 6)
            weights = numbers(head["weights"])
            for query, row in enumerate(wanted.rows):
                pairs = zip(weights[query * size : query * size + query + 1], row, strict=True)
                assert all(abs(one - other) < 1e-6 for one, other in pairs)
    wrong = lab.ask("POST", "/api/ask", {"run": "sorter", "input": "cax"})
    assert (wrong.status, "3 letters from a to c" in wrong.value["error"]) == (400, True)
    nowhere = [{"edit": "ZeroHead", "layer": 0, "head": 7}]
    wrong = lab.ask("POST", "/api/ask", {"run": "sorter", "input": "cab", "edits": nowhere})
    assert (wrong.status, "head" in wrong.value["error"]) == (400, True)
    stored = [{"edit": "FreezePattern", "recording": str(Path("/etc"))}]
    wrong = lab.ask("POST", "/api/ask", {"run": "sorter", "input": "cab", "edits": stored})
    assert (wrong.status, "cannot read a recording" in wrong.value["error"]) == (400, True)


def test_a_port_that_is_taken_is_one_sentence(lab, capsys):
    assert main(["lab", "--no-browser", "--port", str(lab.port)]) == 3
    out, err = capsys.readouterr()
    assert f"port {lab.port} is taken by another program; choose" in " ".join(err.split())
    assert out == ""


@pytest.mark.parametrize("number", sampled([signal.SIGTERM, signal.SIGINT], 1))
def test_it_listens_here_alone_and_a_signal_ends_it_and_its_jobs(tmp_path, number):
    with running(tmp_path) as lab:
        lab.open()
        heard = subprocess.run(["ss", "-Hltn"], capture_output=True, text=True, check=True).stdout
        places = [line.split()[3] for line in heard.splitlines()]
        places = [place for place in places if place.endswith(f":{lab.port}")]
        assert places == [f"127.0.0.1:{lab.port}"]
        asked = {"experiment": "sorting", "settings": {"steps": 1_000_000}}
        name = lab.post("/api/jobs", asked)["name"]
        lab.begin("GET", f"/api/jobs/{name}/events")  # a page that listens
        with closing(lab.events(name)) as told:
            events = (event for _, event in told)
            process = next(event["process"] for event in events if event["event"] == "began")
            if number == signal.SIGTERM:
                assert "step" in (event["event"] for event in events)
        assert lab.ask("GET", lab.opening).status == 403
        lab.ask("GET", f"/?token={lab.token}&more")
        lab.ask("GET", f"/nothing?token={lab.token}")
        lab.ask("GET", f"/{lab.token}", cookie="x")
        loaded = Path(f"/proc/{lab.process.pid}/maps").read_text()
        assert "torch" not in loaded  # the server itself computes nothing
        assert lab.end(number) == 128 + number
        assert not is_running(process)
        told = lab.told.replace(lab.opening, "") + lab.log
        for secret in (lab.token, lab.cookie.partition("=")[2], "Traceback"):
            assert secret not in told
    if number == signal.SIGTERM:
        log = (tmp_path / "runs" / ".jobs" / name / "events.jsonl").read_text().splitlines()
        assert json.loads(log[-1])["state"] == "stopped"
