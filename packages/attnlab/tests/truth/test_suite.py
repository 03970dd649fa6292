"""The suite as files: read without attnlab, labels derived again, faults found."""

import contextlib
import io
import json
import runpy
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest
import torch
from safetensors.torch import load_file, save_file

from attnlab.truth import DIALS, make_suite, suite, write_suite

NAMES = ("where-c", "shift", "reverse", "what-precedes")
SCRIPTS = Path(suite.__file__).parent


@pytest.fixture
def folder(tmp_path, proved):
    write_suite(tmp_path, [proved[name] for name in NAMES])
    return tmp_path


def relabelled(folder, *names):
    """Run the script here; return its exit status and what it prints."""
    with (
        contextlib.redirect_stdout(io.StringIO()) as printed,
        mock.patch.object(sys, "argv", ["relabel.py", str(folder), *names]),
        pytest.raises(SystemExit) as ended,
    ):
        runpy.run_path(str(folder / "relabel.py"), run_name="__main__")
    return ended.value.code, printed.getvalue()


@contextlib.contextmanager
def changed_labels(folder):
    told = json.loads((folder / "suite.json").read_text())
    yield told["circuits"]["shift"]
    (folder / "suite.json").write_text(json.dumps(told))


@contextlib.contextmanager
def changed_tensors(folder, name="shift"):
    tensors = load_file(folder / f"{name}.safetensors")
    yield tensors
    save_file(tensors, folder / f"{name}.safetensors")


def test_the_reader_has_a_hundred_lines_and_needs_numpy_alone(folder):
    words = (SCRIPTS / "read.py").read_text()
    assert len(words.splitlines()) <= 100
    assert {path.suffix for path in folder.iterdir()} == {".safetensors", ".json", ".py"}
    for script in ("read.py", "relabel.py"):
        imports = [line for line in (folder / script).read_text().splitlines() if "import" in line]
        assert not [line for line in imports if "torch" in line or "pickle" in line]


def test_the_reader_gives_what_the_model_gives(folder, proved):
    reader = runpy.run_path(str(SCRIPTS / "read.py"))
    for name in NAMES:
        circuit, _ = proved[name]
        asked = circuit.answers >= 0
        found = torch.from_numpy(reader["NumpyCircuit"](folder, name).logits())
        torch.testing.assert_close(found[asked], circuit.logits()[asked], atol=1e-9, rtol=0)


def test_all_labels_are_derived_again_without_attnlab(folder):
    """-I hides attnlab's folder and the current one."""
    command = [sys.executable, "-I", str(folder / "relabel.py"), str(folder)]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout + found.stderr
    assert "DIFFERS" not in found.stdout
    last = found.stdout.splitlines()[-1]
    number = last.split()[0]
    assert last == f"{number} of {number} labels agree"


@pytest.mark.parametrize("what", ["used", "needed"])
def test_a_flipped_label_is_found(folder, what):
    with changed_labels(folder) as labels:
        labels[what][0] = not labels[what][0]
    status, words = relabelled(folder, "shift")
    assert status == 1
    assert f"{labels['units'][0]} {what}" in words


def test_a_flipped_edge_and_a_missing_one_are_found(folder):
    with changed_labels(folder) as labels:
        sender, receiver, is_needed = labels["edges"][0]
        labels["edges"][0] = [sender, receiver, not is_needed]
    assert f"{sender} to {receiver}" in relabelled(folder, "shift")[1]
    with changed_labels(folder) as labels:
        del labels["edges"][0]
    status, words = relabelled(folder, "shift")
    assert (status, "left out" in words) == (1, True)


def test_a_changed_weight_is_found(folder):
    with changed_tensors(folder, "reverse") as tensors:
        tensors["layers.1.attention.output.weight"] *= 0.9  # all answers stay right
    status, words = relabelled(folder, "reverse")
    assert (status, "the file has changed since it was written" in words) == (1, True)


def test_a_head_that_is_not_told_is_found(folder):
    with changed_labels(folder) as labels, changed_tensors(folder) as tensors:
        for what in ("units", "used", "needed"):
            del labels[what][1]
        tensors["by_input"] = tensors["by_input"][:, [0, 2]].contiguous()
    assert "left out" in relabelled(folder, "shift")[1]


def test_an_input_that_is_labelled_wrong_is_found(folder):
    with changed_tensors(folder) as tensors:
        tensors["by_input"][7, 0] ^= True
    assert "an input's units" in relabelled(folder, "shift")[1]


def test_circuits_that_do_not_bear_a_dial_are_named(monkeypatch):
    def broken(circuit, labels, random):
        found = circuit.rebuilt("broken", circuit.network)
        with torch.no_grad():
            found.model.head.bias += torch.arange(len(found.model.head.bias)) * 9.0
        return found

    monkeypatch.setitem(DIALS, "broken", broken)
    monkeypatch.setattr(suite, "circuit_names", lambda ladder: ["shift", "half"])
    found = make_suite(None, "broken")
    assert found.circuits == ()
    assert [reason.partition(":")[0] for reason in found.refused] == ["shift", "half"]


@pytest.mark.slow
@pytest.mark.parametrize("dial", [None, *DIALS])
def test_the_whole_suite_is_small_and_every_label_is_derived_again(tmp_path, dial):
    found = make_suite(None, dial)
    assert write_suite(tmp_path, found.circuits) <= 5_000_000
    if dial in (None, "rotate", "norm"):
        assert not found.refused
    assert len(found.circuits) >= 45
    status, words = relabelled(tmp_path)
    assert status == 0, words
