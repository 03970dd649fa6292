"""`attnlab.open` opens whatever attnlab keeps in a folder, and says what it looked for."""

import sys

import pytest
import torch

import attnlab
from attnlab.errors import CouldNotRun, WrongUsage
from attnlab.experiments.population import Population
from attnlab.experiments.report import Report
from attnlab.experiments.sweeps import Sweep
from attnlab.experiments.tune import Search
from attnlab.look import Recording, Summarize
from attnlab.look.corpus import Corpus, CorpusSearch, search_corpus
from attnlab.look.long_text import Document, summarize_document

TINY = {
    "steps": "20", "evaluate_every": "10", "letters": "3", "length": "3", "d_model": "4",
    "d_ff": "4",
}  # fmt: skip
KINDS = {
    "run": Report,
    "population": Population,
    "sweep": Sweep,
    "recording": Recording,
    "document": Document,
    "corpus": CorpusSearch,
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A folder with a tiny one of each kind."""
    home = tmp_path_factory.mktemp("kinds")
    attnlab.run("sorting", out=home / "run", settings=TINY)
    attnlab.train_population("sorting", range(2), out=home / "population", settings=TINY)
    attnlab.sweep("sorting", seeds=[0], out=home / "sweep", settings={"rank": "1,2", **TINY})
    model = attnlab.load(home / "run")
    recording = attnlab.record(model, torch.tensor([[3, 1, 2, 0]]))
    recording.save(home / "recording")
    tokens = torch.tensor([[0, 1, 2, 3, 0, 1]])
    summarize_document(model, tokens, out=home / "document", reduce=Summarize(tiles=2, top=2))
    texts = Corpus(["cab", "abc"], encode=lambda text: ["abc".index(letter) for letter in text])
    search_corpus(model, texts, "entropy", out=home / "corpus")
    return home


@pytest.mark.parametrize("name", KINDS)
def test_a_folder_is_opened_as_what_it_holds(folders, name):
    assert type(attnlab.open(folders / name)) is KINDS[name]
    assert type(attnlab.open(str(folders / name))) is KINDS[name]


def test_a_member_of_a_population_is_a_run(folders):
    assert attnlab.open(folders / "population" / "1").config["seed"] == 1
    with pytest.raises(WrongUsage, match="no member '9'"):
        attnlab.open(folders / "population" / "9")


def test_a_hyper_parameter_search_opens_without_optuna(monkeypatch, tmp_path):
    pytest.importorskip("optuna")
    space = {"learning_rate": "1e-4..1e-2", **TINY}
    attnlab.tune("sorting", trials=2, seeds=[0], out=tmp_path, settings=space)
    assert type(attnlab.open(tmp_path)) is Search
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert len(attnlab.open(tmp_path).trials) == 2


def test_what_look_keeps_is_opened_from_its_own_folder_too(folders, tmp_path):
    model = attnlab.load(folders / "run")
    with attnlab.record(model, "*weights") as recording:
        model(torch.tensor([[3, 1, 2, 0]]))
    recording.save(tmp_path / "recording")
    assert list(attnlab.open(tmp_path)) == list(attnlab.open(tmp_path / "recording"))


def test_a_folder_of_something_else_is_told_what_was_looked_for(folders, tmp_path, monkeypatch):
    with pytest.raises(CouldNotRun, match=r"no config.json \(a run, .*search.json"):
        attnlab.open(tmp_path)
    (tmp_path / "runs" / "sorting").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    for opener in (attnlab.open, attnlab.load, attnlab.show):
        with pytest.raises(CouldNotRun, match="Did you mean runs/sorting"):
            opener("sorting")
    with pytest.raises(CouldNotRun, match="there is no folder"):
        attnlab.open(tmp_path / "none")
    attnlab.save_model(attnlab.load(folders / "run"), tmp_path / "model")
    with pytest.raises(CouldNotRun, match=r"holds a model, but not a run; load it with"):
        attnlab.open(tmp_path / "model")
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(CouldNotRun, match=r"config.json"):
        attnlab.open(tmp_path)
