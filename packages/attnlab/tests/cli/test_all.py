"""`attnlab run all`, the table of all claims, and the gallery."""

import json
import shutil

import pytest

from attnlab.cli import run_all
from attnlab.cli.resolve_run import EXPERIMENTS
from attnlab.errors import CouldNotRun
from attnlab.experiments import experiment, registry, sorting
from attnlab.experiments.sorting import SortingConfig

SORTING = registry.EXPERIMENTS["sorting"]
ANATOMY = registry.EXPERIMENTS["anatomy"]
TINY = "first.steps=20 second.steps=20"


@pytest.fixture(autouse=True)
def _two_experiments(monkeypatch, tmp_path):
    monkeypatch.setattr(registry, "EXPERIMENTS", {"first": SORTING, "second": SORTING})
    monkeypatch.setattr(run_all, "count_processors", lambda: 1)  # other processes have no patches
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")


def steps_of(folder):
    return json.loads((folder / "config.json").read_text())["settings"]["steps"]


def test_all_experiments_end_in_one_screen_or_table_and_in_a_gallery(run, monkeypatch, tmp_path):
    monkeypatch.setattr(SortingConfig, "FULL", {"letters": 4})
    status, out, err = run(f"run all --out brief --set {TINY}")
    assert status == 1
    assert out.count("of 3 claims failed, self-checks: 1 of 1") == 2
    assert out.count("loss not below floor") == 0
    assert "A short run (first letters 3 of 4, second letters 3 of 4); the full one" in out
    assert "A short run" not in err  # once is enough
    monkeypatch.setattr(SortingConfig, "FULL", {"steps": 7})
    status, out, _ = run("run all -q --claims --full --set second.steps=9")
    assert status == 1
    assert "short run" not in out
    assert [steps_of(tmp_path / "runs" / name) for name in ("first", "second")] == [7, 9]
    assert out.count("loss not below floor") == 2
    assert "of 6 claims failed, self-checks: 2 of 2" in out
    assert "gallery  runs/index.html" in out
    assert (tmp_path / "runs" / "first" / "report.html").exists()
    assert (tmp_path / "runs" / "second" / "claims.json").exists()
    page = (tmp_path / "runs" / "index.html").read_text()
    assert 'href="first/report.html"' in page
    assert 'href="second/report.html"' in page


def test_a_full_run_of_many_seeds_is_refused_with_what_to_do(refused):
    told = "--full is for a run without --seeds; --set takes single settings."
    refused("run first --seeds 3 --full", 2, told)


@pytest.mark.slow
def test_experiments_in_processes_of_their_own_end_in_the_same_bytes(run, monkeypatch, tmp_path):
    monkeypatch.setattr(registry, "EXPERIMENTS", {"anatomy": ANATOMY, "sorting": SORTING})
    tiny = "run all -q --set sorting.steps=20 anatomy.only=normalization --out"
    alone = run(f"{tiny} alone")
    monkeypatch.setattr(run_all, "count_processors", lambda: 2)
    together = run(f"{tiny} together")
    assert together == (alone[0], alone[1].replace("alone", "together"), "")
    for file in ("sorting/model.safetensors", "sorting/claims.json", "anatomy/claims.json"):
        one, other = (tmp_path / name / file for name in ("alone", "together"))
        assert one.read_bytes() == other.read_bytes()


def test_one_that_cannot_run_is_told_and_the_others_run_where_out_says(run, monkeypatch):
    whole, calls = experiment.train_together, []

    def fail_first(*args, **options):
        calls.append(1)
        if len(calls) == 1:
            raise CouldNotRun("the training was no longer finite.")
        return whole(*args, **options)

    monkeypatch.setattr(experiment, "train_together", fail_first)
    status, out, err = run(f"run all --json --out here --set {TINY}")
    found = json.loads(out)
    assert status == 3
    assert "first: the training was no longer finite." in err
    assert [each["run"] for each in found["runs"]] == ["here/second"]


def test_interrupting_names_the_run_that_was_stopped(run, monkeypatch):
    def interrupt(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(experiment, "train_together", interrupt)
    status, _, err = run(f"run all -q --set {TINY}")
    assert status == 130
    assert "runs/first" in err


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("steps=20", "as experiment.key=value"),
        ("rank=2", "such as first.rank=2"),
        ("frist.steps=20", "did you mean 'first'"),
        ("first.stesp=20", "did you mean 'steps'"),
        ("second.steps=many", "steps must be an integer"),
    ],
)
def test_a_wrong_setting_is_told_before_anything_runs(refused, tmp_path, setting, words):
    refused(f"run all -q --set {setting}", 2, words)
    assert not (tmp_path / "runs").exists()


def test_open_makes_the_gallery_of_a_folder_of_runs(run, sorter, monkeypatch, tmp_path):
    opened = []
    monkeypatch.setattr(registry, "EXPERIMENTS", {"sorting": SORTING})
    monkeypatch.setattr("webbrowser.open", lambda url: opened.append(url) or True)
    shutil.copytree(sorter, tmp_path / "runs" / "first")
    (tmp_path / "runs" / "second").mkdir()
    (tmp_path / "runs" / "second" / "config.json").write_text("{")
    assert run("open runs/")[0] == 0
    assert opened[0].endswith("runs/index.html")
    page = (tmp_path / "runs" / "index.html").read_text()
    assert "damaged" in page
    assert "all_inputs_right" in page
    assert "data:image/png;base64," in page


def test_open_of_a_folder_without_runs_says_how_to_make_them(refused, tmp_path):
    (tmp_path / "empty").mkdir()
    refused("open empty", 3, "attnlab run")


def test_a_place_that_cannot_be_written_is_told_once(refused, tmp_path):
    (tmp_path / "file").write_text("mine")
    refused("run all -q --out file/runs", 3, "could not write")


def test_an_experiment_without_a_model_to_ask_says_so_with_the_runs_own_name(
    run, refused, monkeypatch
):
    run("run first -q --set steps=4")
    monkeypatch.delattr(sorting.sorter, "ask")
    told = "has no model to ask; look at it with: attnlab open runs/first"
    refused("trace first cab", 2, told)


ASKED = ["trace {} a film", "look {} a film", "edit {} a --zero-head 0.1", "show {}", "open {}"]


@pytest.mark.parametrize("typed", ASKED)
@pytest.mark.parametrize("name", ["lookup", "sentiment"])
def test_a_system_that_has_not_run_yet_is_named_with_the_command_that_runs_it(refused, typed, name):
    refused(typed.format(name), 3, f"there is no run in {name}; attnlab run {name} makes one.")


def test_the_systems_that_are_named_are_those_there_are(monkeypatch):
    monkeypatch.undo()
    assert tuple(registry.EXPERIMENTS) == EXPERIMENTS
