import json
import re
import shutil
from contextlib import redirect_stdout

import pytest

from attnlab.cli import main
from attnlab.errors import CouldNotRun
from attnlab.experiments.population import block_training, training

TINY = "steps=20 evaluate_every=10"


@pytest.fixture(scope="module")
def runs(tmp_path_factory, without_figures):
    """A population of three in runs/, made by the command itself; none can sort yet."""
    parent = tmp_path_factory.mktemp("work")
    folder = parent / "runs" / "three"
    command = f"run sorting --seeds 3 --seed 7 --json --layout vmap --out {folder} --set {TINY}"
    with (parent / "said.json").open("w") as said, redirect_stdout(said):
        assert main(command.split()) == 1
    return parent


@pytest.fixture(autouse=True)
def _elsewhere(runs, monkeypatch):
    monkeypatch.chdir(runs)
    monkeypatch.setenv("COLUMNS", "100")


def test_a_population_shows_its_claims_and_its_progress(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    status, out, err = run(f"run sorting --seeds 2 --layout vmap --set {TINY}")
    assert status == 1
    assert "0 of 2, 0.0%" in out
    assert "report   runs/sorting-2-seeds/report.html" in out
    assert "sorting, 2 seeds: 20 of 20" in err
    assert "solved 0.0%" in err
    assert (tmp_path / "runs" / "sorting-2-seeds" / "population.safetensors").is_file()


def test_json_gives_the_share_and_who_solved_it_when(runs):
    found = json.loads((runs / "said.json").read_text())
    assert found["success"]["share"] == 0.0
    assert found["solved_at"] == {"7": None, "8": None, "9": None}


def test_a_member_is_shown_and_traced_by_its_seed(run):
    status, out, _ = run("show runs/three/8")
    assert status == 1
    assert "attnlab open runs/three/8 writes its report" in out
    assert run("show three/8")[1] == out
    status, out, _ = run("trace runs/three/8 cab")
    assert status == 0
    assert "c a b →" in out


def test_a_member_that_is_opened_becomes_a_folder(run, runs, monkeypatch):
    monkeypatch.setattr("webbrowser.open", lambda url: True)
    status, out, _ = run("open runs/three/9")
    assert status == 0
    assert out == f"opened {runs / 'runs' / 'three' / '9' / 'report.html'}\n"
    assert run("show runs/three/9")[1].endswith("report   runs/three/9/report.html\n")
    assert "runs/three/9" in run("list runs/three")[1]


def test_the_population_itself_is_shown_and_opened(run, monkeypatch):
    monkeypatch.setattr("webbrowser.open", lambda url: True)
    assert "0 of 3, 0.0%" in run("show three")[1]
    assert "sorting, 3 seeds" in run("list")[1]
    assert json.loads(run("list --json")[1])[0]["members"] == 3
    assert run("open three")[1].endswith("runs/three/report.html\n")
    out = run("trace three cab")[1]
    assert "c a b →" in out
    assert re.match(r"seed [789] answers, the most typical model of the population; for anoth", out)
    assert "answers" not in run("trace three/8 cab")[1]


@pytest.mark.parametrize(
    ("typed", "status", "sentence"),
    [
        ("run sorting --seeds 0", 2, "--seeds must be at least 1; got 0"),
        ("run sorting --seeds many", 2, "expected a whole number"),
        ("run sorting --seeds 2 --seed -1", 2, "a seed must be an integer from 0"),
        ("run sortin --seeds 2", 2, "did you mean 'sorting'"),
        ("run anatomy --seeds 2", 2, "no model to train for many seeds"),
        ("run all --seeds 2", 2, "--seeds is for one experiment at a time"),
        ("run sorting --stop-when-solved", 2, "--stop-when-solved needs --seeds"),
        ("run sorting --seeds 2 --layout sideways", 2, "sideways"),
        ("run sorting --seeds 2 --workers 2", 2, "--workers is for more than 1,000 seeds"),
        ("run sorting --seeds 2 --engine ray", 2, "--engine ray is for more than 1,000 seeds"),
        ("run sorting --estimate", 2, "--estimate is for more than 1,000 seeds"),
        ("run sorting --seeds 2000 --price 1", 2, "--price needs --estimate"),
        ("show three/10", 2, "no member '10'; it has the seeds 7 to 9"),
        ("trace runs/three/99 cab", 2, "no member '99'"),
        ("run sorting --seeds 2 --out runs/three", 3, "holds a run already"),
    ],
)
def test_mistakes_are_one_sentence(refused, typed, status, sentence):
    refused(typed, status, sentence)


def test_a_population_that_cannot_be_held_is_status_3(run, monkeypatch):
    monkeypatch.setattr(training, "free_memory", lambda: 10**6)
    status, _, err = run("run sorting --seeds 5000")
    assert status == CouldNotRun.exit_status
    assert "train at most" in err


def test_an_estimate_of_many_seeds_makes_nothing(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(block_training, "BLOCK", 4)
    status, out, _ = run(
        f"run sorting --seeds 2000 --workers 2 --estimate --price 1.5 --set {TINY}"
    )
    assert status == 0
    assert out.startswith("4 seeds: ")
    assert re.search(r"^2,000 seeds: .* on 2 of them, [\d.]+ at 1.5 an hour, ", out, re.M)
    assert "1,000,000 seeds: " in out
    assert list(tmp_path.iterdir()) == []


def test_what_is_inside_a_population_is_said(run, runs, tmp_path):
    status, _, err = run("show three/abc")
    assert (status, "has no member 'abc'; members are named as runs/three/7" in err) == (2, True)
    unfinished = shutil.copytree(
        runs / "runs" / "three", tmp_path / "half", ignore=shutil.ignore_patterns("claims.json")
    )
    (unfinished / "population.safetensors").unlink()
    status, _, err = run(f"show {unfinished / '8'}")
    assert (status, f"attnlab resume {unfinished}" in err) == (3, True)
    status, _, err = run(f"run sorting --resume --out {unfinished} --set {TINY}")
    assert status == 3
    assert "a population of sorting, made with --seeds 3, not a run of one seed" in err
    assert f"resume it with attnlab resume {unfinished}" in err
