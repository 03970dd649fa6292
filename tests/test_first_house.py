"""Folders, recordings and edits that an earlier version wrote still open and say the same.

`tests/fixtures/first_house` was written by version 0.1.0 at commit 60b3197 (figures and pages left
out); its numbers stay as they are. The model's weights are random: what is held is that its numbers
come back.
"""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import attnlab
from attnlab.cli import main

FIRST = Path(__file__).parent / "fixtures" / "first_house"


@pytest.fixture
def model():
    return attnlab.load(FIRST / "model").eval()


@pytest.fixture
def expected():
    return load_file(FIRST / "expected.safetensors")


def test_a_saved_model_gives_the_same_logits(model, expected):
    with torch.no_grad():
        torch.testing.assert_close(model(expected["ids"][None, :9]), expected["logits"])


def test_edits_written_as_json_do_what_they_did(model, expected):
    edits = attnlab.edits.edits_from_json((FIRST / "edits.json").read_text())
    with torch.no_grad(), attnlab.edit(model, *edits):
        edited = model(expected["ids"][None, :9])
    assert len(edits) == 16
    torch.testing.assert_close(edited, expected["edited"])
    assert not torch.allclose(edited, expected["logits"])


def test_a_recording_holds_what_the_model_shows_today(model, expected):
    first = attnlab.open(FIRST / "recording")
    with torch.no_grad(), attnlab.record(model, "*") as today:
        model(expected["ids"][None, :9])
    assert sorted(first) == sorted(today)
    for site in today:
        torch.testing.assert_close(first[site], today[site])


def test_a_summarized_text_opens():
    text = attnlab.open(FIRST / "document")
    assert len(list((FIRST / "document" / "layers").iterdir())) == 2
    assert text.summary(0).entropy.shape[-1] == 40


def test_a_corpus_search_opens_with_its_heads():
    found = attnlab.open(FIRST / "corpus")
    assert [row["head"] for row in found.table()]
    assert len(found.table()) == 6


def test_a_finished_run_opens_with_its_claims_and_model():
    report = attnlab.open(FIRST / "run")
    claims = json.loads((FIRST / "run" / "claims.json").read_text())
    assert [claim.passed for claim in report.claims] == [claim["passed"] for claim in claims]
    assert sum(each.numel() for each in report.model.parameters()) == 480


def test_a_population_opens_with_every_seed():
    population = attnlab.open(FIRST / "population")
    assert len(population.seeds) == 2
    assert isinstance(attnlab.load(FIRST / "population" / "1"), torch.nn.Module)


@pytest.mark.parametrize("kind", ["run", "population", "sweep", "search"])
def test_the_command_line_shows_every_kind_of_folder(kind, capsys):
    claims = json.loads((FIRST / kind / "claims.json").read_text())
    assert main(["show", str(FIRST / kind)]) == int(not all(claim["passed"] for claim in claims))
    assert "all inputs right" in capsys.readouterr().out or kind != "run"


def test_a_stopped_run_is_gone_on_with(tmp_path):
    shutil.copytree(FIRST / "stopped", tmp_path / "stopped")
    report = attnlab.resume(tmp_path / "stopped")
    assert report.claims
