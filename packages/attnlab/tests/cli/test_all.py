"""`attnlab run all`, the table of all claims, and the gallery; two small sorters stand in for the
experiments."""

import errno
import json
import os
import re
import tempfile
from pathlib import Path

import pytest

from attnlab.cli import main, run_all
from attnlab.cli.resolve_run import SYSTEMS
from attnlab.experiments import registry
from attnlab.experiments.sorting import SortingConfig

SORTING = registry.EXPERIMENTS["sorting"]
HANDMADE = registry.EXPERIMENTS["handmade"]
TINY = ["first.steps=20", "second.steps=20"]


@pytest.fixture(autouse=True)
def _two_experiments(monkeypatch, tmp_path):
    monkeypatch.setattr(registry, "EXPERIMENTS", {"first": SORTING, "second": SORTING})
    monkeypatch.setattr(run_all, "count_processors", lambda: 1)  # other processes have no patches
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")


def run(capsys, *arguments):
    capsys.readouterr()
    status = main(list(arguments))
    return status, *capsys.readouterr()


def test_all_experiments_end_in_one_screen_or_in_a_table_of_all_claims_and_in_a_gallery(
    capsys, tmp_path
):
    status, out, _ = run(capsys, "run", "all", "-q", "--out", "brief", "--set", *TINY)
    assert status == 1
    assert out.count("of 3 claims failed, self-checks: 4 of 4") == 2
    assert out.count("loss not below floor") == 0
    status, out, _ = run(capsys, "run", "all", "-q", "--claims", "--set", *TINY)
    assert status == 1
    assert out.count("loss not below floor") == 2
    assert "of 6 claims failed, self-checks: 8 of 8" in out
    assert "gallery  runs/index.html" in out
    assert (tmp_path / "runs" / "first" / "report.html").exists()
    assert (tmp_path / "runs" / "second" / "claims.json").exists()
    page = (tmp_path / "runs" / "index.html").read_text()
    assert 'href="first/report.html"' in page
    assert 'href="second/report.html"' in page


def test_a_full_run_takes_the_full_settings_and_a_short_one_says_what_it_leaves_out(
    capsys, monkeypatch, tmp_path
):
    monkeypatch.setattr(SortingConfig, "FULL", {"steps": 7})
    _, out, _ = run(capsys, "run", "all", "-q", "--full", "--set", "second.steps=9")
    steps = [
        json.loads((tmp_path / "runs" / name / "config.json").read_text())["settings"]["steps"]
        for name in ("first", "second")
    ]
    assert steps == [7, 9]
    assert "short run" not in out
    _, out, _ = run(capsys, "run", "all", "-q", "--out", "short", "--set", *TINY)
    assert "short run" not in out  # the settings name the steps, so nothing is left out
    monkeypatch.setattr(SortingConfig, "FULL", {"letters": 4})
    _, out, _ = run(capsys, "run", "all", "-q", "--out", "again", "--set", *TINY)
    assert "A short run (first letters 3 of 4, second letters 3 of 4); the full one" in out


def test_a_full_run_of_many_seeds_is_refused_with_what_to_do(capsys):
    status, _, err = run(capsys, "run", "first", "--seeds", "3", "--full")
    assert status == 2
    assert "--full is for a run without --seeds; --set takes single settings." in err


def test_out_names_the_folder_of_all_runs_and_json_is_json(capsys):
    status, out, err = run(capsys, "run", "all", "--json", "--out", "here", "--set", *TINY)
    found = json.loads(out)
    assert status == 1
    assert err == ""
    assert [each["run"] for each in found["runs"]] == ["here/first", "here/second"]
    assert found["not_run"] == []


def test_experiments_in_processes_of_their_own_end_in_the_same_bytes(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(registry, "EXPERIMENTS", {"handmade": HANDMADE, "sorting": SORTING})
    tiny = ["run", "all", "-q", "--set", "sorting.steps=20"]
    tiny += [f"handmade.{setting}" for setting in ("steps=3", "seeds=2")]
    alone = run(capsys, *tiny, "--out", "alone")
    monkeypatch.setattr(run_all, "count_processors", lambda: 2)
    together = run(capsys, *tiny, "--out", "together")
    assert together == (alone[0], alone[1].replace("alone", "together"), "")
    for file in ("sorting/model.safetensors", "sorting/claims.json", "handmade/claims.json"):
        assert (tmp_path / "alone" / file).read_bytes() == (
            tmp_path / "together" / file
        ).read_bytes()


def test_one_that_cannot_run_is_told_and_the_others_run(capsys, monkeypatch):
    from attnlab.errors import CouldNotRun
    from attnlab.experiments import experiment

    whole, calls = experiment.train_together, []

    def fail_first(*args, **options):
        calls.append(1)
        if len(calls) == 1:
            raise CouldNotRun("the training was no longer finite.")
        return whole(*args, **options)

    monkeypatch.setattr(experiment, "train_together", fail_first)
    status, out, err = run(capsys, "run", "all", "-q", "--set", *TINY)
    assert status == 3
    assert "first: the training was no longer finite." in err
    assert out.count("all inputs right") == 1


def test_interrupting_names_the_run_that_was_stopped(capsys, monkeypatch):
    from attnlab.experiments import experiment

    def interrupt(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(experiment, "train_together", interrupt)
    status, _, err = run(capsys, "run", "all", "-q", "--set", *TINY)
    assert status == 130
    assert "runs/first" in err


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("steps=20", "as experiment.key=value"),
        ("frist.steps=20", "did you mean 'first'"),
        ("first.stesp=20", "did you mean 'steps'"),
        ("second.steps=many", "steps must be an integer"),
    ],
)
def test_a_wrong_setting_is_told_before_anything_runs(capsys, tmp_path, setting, words):
    status, _, err = run(capsys, "run", "all", "-q", "--set", setting)
    assert status == 2
    assert words in err
    assert not (tmp_path / "runs").exists()


@pytest.mark.usefixtures("drawn")
def test_open_makes_the_gallery_of_a_folder_of_runs(capsys, monkeypatch, tmp_path):
    opened = []
    monkeypatch.setattr("webbrowser.open", lambda url: opened.append(url) or True)
    run(capsys, "run", "first", "-q", "--set", "steps=20")
    (tmp_path / "runs" / "second").mkdir()
    (tmp_path / "runs" / "second" / "config.json").write_text("{")
    assert run(capsys, "open", "runs/")[0] == 0
    assert opened[0].endswith("runs/index.html")
    page = (tmp_path / "runs" / "index.html").read_text()
    assert "damaged" in page
    assert "all_inputs_right" in page
    assert "data:image/png;base64," in page


def test_the_gallery_of_a_folder_that_may_not_be_written_is_made_elsewhere_and_finds_its_reports(
    capsys, monkeypatch, tmp_path
):
    opened, whole = [], tempfile.mkdtemp

    def mkdtemp(suffix=None, prefix=None, dir=None):
        # root may write everywhere, so the system's refusal is played
        if dir is not None and Path(dir).resolve() == tmp_path / "runs":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return whole(suffix, prefix, dir)

    monkeypatch.setattr("webbrowser.open", lambda url: opened.append(url) or True)
    run(capsys, "run", "first", "-q", "--set", "steps=20")
    monkeypatch.setattr(tempfile, "mkdtemp", mkdtemp)
    assert run(capsys, "open", "runs") == (0, f"opened {opened[0].removeprefix('file://')}\n", "")
    page = Path(opened[0].removeprefix("file://"))
    assert page.parent.parent == Path(tempfile.gettempdir()).resolve()
    (href,) = set(re.findall(r'href="([^"]*report.html)"', page.read_text()))
    assert (page.parent / href).resolve() == tmp_path / "runs" / "first" / "report.html"
    assert not (tmp_path / "runs" / "index.html").exists()


def test_open_of_a_folder_without_runs_says_how_to_make_them(capsys, tmp_path):
    (tmp_path / "empty").mkdir()
    status, _, err = run(capsys, "open", "empty")
    assert status == 3
    assert "attnlab run" in err


def test_a_place_that_cannot_be_written_is_told_once(capsys, tmp_path):
    (tmp_path / "file").write_text("mine")
    status, out, err = run(capsys, "run", "all", "-q", "--out", "file/runs")
    assert status == 3
    assert err.count("could not write") == 1
    assert out == ""


def test_a_setting_without_its_experiment_names_one_that_has_it(capsys):
    _, _, err = run(capsys, "run", "all", "--set", "rank=2")
    assert "such as first.rank=2" in err


def test_an_experiment_without_a_model_to_ask_says_so_with_the_runs_own_name(capsys, monkeypatch):
    from attnlab.experiments.sorting import sorter

    run(capsys, "run", "first", "-q", "--set", "steps=4")
    monkeypatch.delattr(sorter, "ask")
    status, _, err = run(capsys, "trace", "first", "cab")
    assert status == 2
    assert "has no model to ask; look at it with: attnlab open runs/first" in err


@pytest.mark.parametrize(
    "command", [["trace"], ["look"], ["edit", "--zero-head", "0.1"], ["show"], ["open"]]
)
@pytest.mark.parametrize("name", ["lookup", "sentiment"])
def test_a_system_that_has_not_run_yet_is_named_with_the_command_that_runs_it(
    capsys, command, name
):
    words = ["a", "film"] if command[0] in ("trace", "look", "edit") else []
    status, _, err = run(capsys, command[0], name, *words, *command[1:])
    assert (status, err) == (
        3,
        f"attnlab: there is no run in {name}; attnlab run {name} makes one.\n",
    )


def test_the_systems_that_are_named_are_those_there_are(monkeypatch):
    monkeypatch.undo()
    assert tuple(registry.EXPERIMENTS) == SYSTEMS
