"""attnlab truth: what it lists, shows, writes and scores, and what it says of mistakes."""

import json

import pytest

from attnlab.cli import main
from attnlab.truth import suite

NAMES = ["shift", "half"]


@pytest.fixture
def few(monkeypatch):
    monkeypatch.setattr(suite, "circuit_names", lambda ladder: NAMES)


def test_circuits_are_listed_with_their_decoys(capsys):
    assert main(["truth", "list", "--ladder", "position", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert rows[0] == {
        "circuit": "shift",
        "ladder": "position",
        "inputs": 3 + 9 + 27 + 81,
        "heads": 3,
        "decoys": "sharp, sharp",
    }
    assert main(["truth", "list", "--ladder", "places"]) == 2
    assert "there is no ladder 'places'" in capsys.readouterr().err


def test_the_labels_of_a_circuit_are_shown(capsys):
    assert main(["truth", "show", "where-c"]) == 0
    words = capsys.readouterr().out
    assert "where-c (content): 120 inputs" in words
    assert "twin           yes    no" in words
    assert main(["truth", "show", "half", "--json", "--dial", "rotate"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["units"][0]["inputs it changes alone"] == "81"
    assert len(told["edges"]) == 3


def test_the_suite_is_written_and_never_over_another(few, tmp_path, capsys):
    assert main(["truth", "write", str(tmp_path / "suite")]) == 0
    assert "2 circuits" in capsys.readouterr().out
    names = {path.name for path in (tmp_path / "suite").iterdir()}
    assert {"suite.json", "read.py", "relabel.py", "half.safetensors"} <= names
    assert main(["truth", "write", str(tmp_path / "suite")]) == 3


def test_a_method_of_ones_own_is_scored(few, tmp_path, capsys):
    file = tmp_path / "mine.py"
    file.write_text(
        "def first(model, inputs, answers):\n"
        "    parts = {name: each.layout.num_heads for name, each in model.named_modules()\n"
        "             if hasattr(each, 'layout')}\n"
        "    return {f'{path}.{n}': -n for path in parts for n in range(parts[path])}\n"
        "def wrong(model, inputs, answers):\n"
        "    return first(model, inputs, answers) | {'attention.9': 1.0}\n"
    )
    out = tmp_path / "scores"
    assert main(["truth", "score", f"{file}:first", "--json", "--out", str(out)]) == 0
    told = json.loads(capsys.readouterr().out)
    (row,) = told["methods"]
    assert (row["circuits"], row["all"]) == (1, 2)
    assert row["method"] == f"{file}:first"
    baselines = [row["method"] for row in told["baselines"]]
    assert baselines == ["head-number", "head-number-reversed", "layer-number", "random"]
    assert {path.name for path in out.iterdir()} == {"scores.json", "truth.png", "truth.svg"}
    assert "head-number" in (out / "truth.svg").read_text()
    assert main(["truth", "score", f"{file}:wrong"]) == 3
    assert "scores 'attention.9', no head of" in capsys.readouterr().err


def test_the_table_says_how_many_circuits_enter(few, capsys):
    assert main(["truth", "score", "random"]) == 0
    words = " ".join(capsys.readouterr().out.split())
    assert "1 of 2 circuits have used and unused heads" in words
    assert "head-number-reversed 0." in words
    assert "The last 4 methods look at no model." in words
    assert "AUROC" in words


def test_an_unknown_method_is_told_before_anything_is_built(capsys):
    assert main(["truth", "score", "raw-atention"]) == 2
    assert "there is no method 'raw-atention'" in capsys.readouterr().err
