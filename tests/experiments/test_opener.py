"""`attnlab.open` opens whatever attnlab keeps in a folder, and says what it looked for."""

import sys
from pathlib import Path

import pytest
import torch

import attnlab
from attnlab.errors import CouldNotRun, WrongUsage
from attnlab.experiments.population import Population
from attnlab.experiments.report import Report
from attnlab.experiments.sweeps import Sweep
from attnlab.experiments.tune import Search
from attnlab.look import Recording
from attnlab.look.corpus import CorpusSearch
from attnlab.look.long_text import Document

KEPT = Path(__file__).parents[1] / "fixtures" / "first_house"
KINDS = {
    "run": Report,
    "population": Population,
    "sweep": Sweep,
    "recording": Recording,
    "document": Document,
    "corpus": CorpusSearch,
}


@pytest.mark.parametrize("name", KINDS)
def test_a_folder_is_opened_as_what_it_holds(name):
    assert type(attnlab.open(KEPT / name)) is KINDS[name]
    assert type(attnlab.open(str(KEPT / name))) is KINDS[name]


def test_a_member_of_a_population_is_a_run():
    assert attnlab.open(KEPT / "population" / "1").config["seed"] == 1
    with pytest.raises(WrongUsage, match="no member '9'"):
        attnlab.open(KEPT / "population" / "9")


def test_a_hyper_parameter_search_needs_optuna_for_its_trials_alone(monkeypatch):
    pytest.importorskip("optuna")
    assert type(attnlab.open(KEPT / "search")) is Search
    monkeypatch.setitem(sys.modules, "optuna", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert type(attnlab.open(KEPT / "search")) is Report


def test_what_look_keeps_is_opened_from_its_own_folder_too(tmp_path):
    model = attnlab.load(KEPT / "run")
    with attnlab.record(model, "*weights") as recording:
        model(torch.tensor([[3, 1, 2, 0]]))
    recording.save(tmp_path / "recording")
    assert list(attnlab.open(tmp_path)) == list(attnlab.open(tmp_path / "recording"))


def test_a_folder_of_something_else_is_told_what_was_looked_for(tmp_path):
    with pytest.raises(
        CouldNotRun, match=r"nothing to open: no config.json \(a run, .*search.json"
    ):
        attnlab.open(tmp_path)
    with pytest.raises(CouldNotRun, match="there is no folder"):
        attnlab.open(tmp_path / "none")
    attnlab.save_model(attnlab.load(KEPT / "run"), tmp_path / "model")
    with pytest.raises(CouldNotRun, match=r"holds a model, but not a run; load it with"):
        attnlab.open(tmp_path / "model")
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(CouldNotRun, match=r"config.json"):
        attnlab.open(tmp_path)
