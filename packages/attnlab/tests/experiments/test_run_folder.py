"""The run folder: one owner, nothing overwritten, and damage that is named."""

import csv
import json
import os
import re
import shutil
import threading
from dataclasses import replace

import pytest
import torch

import attnlab
from attnlab.core.store import locked
from attnlab.draw.sections import Table
from attnlab.errors import CouldNotRun, WrongUsage
from attnlab.experiments.claims import Claim, read_claims
from attnlab.experiments.folder import AlreadyFinished, FolderTaken, RunFolder, list_runs
from attnlab.experiments.report import Report, open_run
from attnlab.parts.linear import matrix_path_in_use, use_matrix_path

TINY = {"steps": 4, "evaluate_every": 2}
GOOD = Claim("a", "s", "m", "b", True)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return attnlab.run("sorting", out=tmp_path_factory.mktemp("runs") / "made", **TINY)


@pytest.fixture
def folder(made, tmp_path):
    """A copy of a finished run, to be damaged."""
    return shutil.copytree(made.folder, tmp_path / "runs" / "copy")


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_nothing_overwrites_another_run(made, folder):
    before = contents(folder)
    for write in (made.save, lambda out: attnlab.run("sorting", out=out, seed=9, **TINY)):
        with pytest.raises(CouldNotRun, match="holds a run already, and nothing is overwritten"):
            write(folder)
    assert contents(folder) == before


def test_saving_beside_other_files_is_refused(made, tmp_path):
    (tmp_path / "precious.txt").write_text("mine")
    for write in (made.save, lambda out: attnlab.run("sorting", out=out, **TINY)):
        with pytest.raises(CouldNotRun, match="holds something already"):
            write(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["precious.txt"]


def test_of_two_runs_that_find_the_folder_empty_one_gets_it(tmp_path, monkeypatch):
    both_found_it_empty = threading.Barrier(2)
    usage = shutil.disk_usage

    def slow(path):
        both_found_it_empty.wait(timeout=20)
        return usage(path)

    monkeypatch.setattr("shutil.disk_usage", slow)
    outcomes = {}

    def create(name):
        try:
            with RunFolder.create(tmp_path / "run", {"name": name}):
                outcomes[name] = "made"
        except FolderTaken as error:
            outcomes[name] = str(error)

    threads = [threading.Thread(target=create, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    winner, loser = sorted("ab", key=lambda name: outcomes[name] != "made")
    assert outcomes[winner] == "made"
    assert re.search(r"holds a run .*already, and nothing is overwritten", outcomes[loser])
    assert json.loads((tmp_path / "run" / "config.json").read_text()) == {"name": winner}


def test_a_config_names_the_threads_and_the_matrix_path(made):
    assert made.config["threads"] == torch.get_num_threads()
    assert made.config["matrix_path"] == matrix_path_in_use()
    with use_matrix_path("onednn"):
        report = attnlab.run("sorting", steps=1)
    assert report.config["matrix_path"] == "onednn"


def cut(file):
    file.write_bytes(file.read_bytes()[:-20])


def to_folder(file):
    file.unlink()
    file.mkdir()


def without(key):
    def change(file):
        values = json.loads(file.read_text())
        del values[key]
        file.write_text(json.dumps(values))

    return change


def holding(text):
    return lambda file: file.write_bytes(text.encode("latin-1"))


CLAIM = '[{"name": %s, "statement": "s", "measured": "m", "bound": "b", "passed": %s}]'


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("metrics.jsonl", cut),
        ("metrics.jsonl", holding("\xff\xfe")),
        ("metrics.jsonl", holding("5\n")),
        ("metrics.jsonl", lambda file: file.unlink()),
        ("report.json", holding("[]")),
        ("report.json", without("facts")),
        ("report.json", without("subtitle")),
        (
            "report.json",
            holding('{"title": "t", "subtitle": "", "facts": [["one"]], "sections": []}'),
        ),
        ("claims.json", holding('{"a": 1}')),
        ("claims.json", holding("5")),
        ("claims.json", holding("[]")),
        ("claims.json", holding("[1]")),
        ("claims.json", holding(CLAIM % ("1", "true"))),
        ("claims.json", holding(CLAIM % ('"a"', '"yes"'))),
        ("claims.json", to_folder),
        ("config.json", without("settings")),
        ("config.json", without("seed")),
        ("config.json", holding("[]")),
    ],
)
def test_a_damaged_file_is_named_and_the_list_goes_on(folder, name, damage):
    damage(folder / name)
    with pytest.raises(CouldNotRun, match=f"copy/{name}"):
        open_run(folder)
    (described,) = list_runs(folder.parent)
    assert described["state"] == "damaged"
    assert (described["claims"], described["passed"]) == (0, 0)


def test_settings_of_another_version_cannot_be_traced(folder):
    config = json.loads((folder / "config.json").read_text())
    config["settings"]["letters"] = -1
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(CouldNotRun, match=r"copy/config\.json is not usable: letters must be"):
        attnlab.ask(open_run(folder), "cab").trace()


def test_an_undecided_claim_is_no_failure_and_a_failure_is_not_undecided():
    open_, wrong = replace(GOOD, passed=None), replace(GOOD, passed=False)
    for claims, passed, status in (
        ((), False, 1),
        ((GOOD, GOOD), True, 0),
        ((GOOD, open_), None, 0),
        ((open_,), None, 0),
        ((open_, wrong), False, 1),
    ):
        report = Report("x", {}, claims, [], {})
        assert (report.passed, report.exit_status) == (passed, status)
    assert str(Report("x", {}, (GOOD, open_), [], {})) == (
        "x: 1 of 2 claims hold, 1 undecided\nholds  a: m (bound b)\nundecided  a: m (bound b)"
    )


def test_claims_are_read_back_or_refused_whole():
    assert read_claims([GOOD.to_mapping()]) == (GOOD,)
    assert read_claims([{**GOOD.to_mapping(), "passed": None}]) == (replace(GOOD, passed=None),)
    with pytest.raises(WrongUsage, match=r"passed: expected True, False or None, got int '1'"):
        read_claims([{**GOOD.to_mapping(), "passed": 1}])
    with pytest.raises(WrongUsage, match=r"\[0\].name: expected a string, got int '7'"):
        read_claims([{**GOOD.to_mapping(), "name": 7}])
    with pytest.raises(WrongUsage, match=r"expected the keys .*colour"):
        read_claims([{**GOOD.to_mapping(), "colour": "red"}])


def test_a_saved_model_is_no_run_and_not_listed(made, tmp_path):
    attnlab.save_model(made.model, tmp_path / "model")
    assert list_runs(tmp_path) == []


def test_tables_are_csv_that_comes_back_whatever_stands_in_a_cell(made, tmp_path):
    awkward = ['a "quoted", word', "two\nlines", "a bare\rreturn", "", "=1+1"]
    rows = [[cell, 1.5] for cell in awkward]
    table = Table(title="Awkward, all", caption="", columns=["cell", "n"], rows=rows)
    content = replace(made.content, sections=[*made.content.sections, table])
    folder = replace(made, content=content).save(tmp_path / "run")
    with (folder / "tables" / "awkward-all.csv").open(newline="") as stream:
        rows = list(csv.reader(stream))
    assert rows == [["cell", "n"], *([cell, "1.5"] for cell in awkward)]
    names = {path.name for path in (folder / "tables").iterdir()}
    assert names == {"awkward-all.csv", "parameters.csv", "settings.csv"}


def test_further_models_and_files_lie_in_the_folder_and_open_again(made, tmp_path):
    models, files = {"twin": made.model}, {"note.json": b"{}"}
    kept = replace(made, folder=None, _model=made.model, _models=models, _files=files)
    again = attnlab.open(kept.save(tmp_path / "run"))
    assert (again.folder / "note.json").read_bytes() == b"{}"
    for a, b in zip(again.models["twin"].parameters(), again.model.parameters(), strict=True):
        assert torch.equal(a, b)


def test_a_run_that_is_at_work_is_called_running_and_nobody_is_told_to_go_on(folder):
    (folder / "claims.json").unlink()
    assert list_runs(folder.parent)[0]["state"] == "unfinished"
    with locked(folder):
        (described,) = list_runs(folder.parent)
        assert (described["state"], described["writer"]) == ("running", f"process {os.getpid()}")
        with pytest.raises(
            CouldNotRun, match=r"is still running \(process \d+\): look again"
        ) as found:
            open_run(folder)
        assert "resume" not in str(found.value)
    with pytest.raises(CouldNotRun, match="Resume it with: attnlab resume"):
        open_run(folder)


def test_a_finished_run_is_not_gone_on_with_as_another(made):
    resume = {"out": made.folder, "resume": True}
    with pytest.raises(AlreadyFinished, match="nothing was changed"):
        attnlab.run("sorting", **resume, **TINY)
    with pytest.raises(CouldNotRun, match=r'experiment: "sorting" there, "lookup" here$'):
        attnlab.run("lookup", **resume)
    with pytest.raises(CouldNotRun, match="holds a run of one seed of sorting, not a population"):
        attnlab.train_population("sorting", range(2), **resume)


def test_a_fault_inside_a_training_is_not_taken_for_one_of_the_config(folder, monkeypatch):
    (folder / "claims.json").unlink()

    def broken(*args, **fields):
        raise TypeError("a fault of ours")

    with monkeypatch.context() as planted:
        planted.setattr("attnlab.experiments.sorting.sorter.make_sampler", broken)
        with pytest.raises(TypeError, match="a fault of ours"):
            attnlab.resume(folder)
    file = folder / "config.json"
    config = json.loads(file.read_text())
    for change in (
        {"layout": "evil"},
        {"settings": {"layout": "sequential"}},
        {"population": 3},
        {"population": {"seeds": 3}},
    ):
        file.write_text(json.dumps({**config, **change}))
        with pytest.raises(CouldNotRun, match=r"config\.json is damaged: "):
            attnlab.resume(folder)
