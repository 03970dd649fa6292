"""Recordings from files that were made to deceive: refused at once, in a sentence, before memory is
taken."""

import hashlib
import json

import pytest
import safetensors.torch
import torch

from attnlab.errors import CouldNotRun
from attnlab.look import open_recording, record
from attnlab.models import Decoder, DecoderConfig
from attnlab.seeds import isolated

WEIGHTS, STREAM = "layers.0.attention.weights", "layers.0.residual_after"


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved")
    with isolated(0, "hostile"):
        model = Decoder(DecoderConfig(vocab_size=11, d_model=16, num_heads=4, num_layers=1)).eval()
        with torch.no_grad(), record(model, [WEIGHTS, STREAM, "*mask"]) as recording:
            model(torch.randint(0, 11, (3, 7)))
    return recording.save(folder)


def _first(document):
    return document["passed"][WEIGHTS][0]


def _masks(document, **told):
    for each in (_first(document)["mask"], _first(document)["held"]["mask"]):
        each.update(told)


def _tensor(document, tensors, value, **told):
    tensors["new"] = value
    _masks(document, mask="new", **told)


def _query(tensors, document, change):
    name = _first(document)["held"]["query"]
    tensors[name] = change(tensors[name])


DECEITS = {
    "an attention of a thousand million": lambda d, t: _first(d)["held"]["mask"].update(
        queries=10**9, keys=10**9
    ),
    "a mask of a million million": lambda d, t: _first(d)["mask"].update(queries=10**6, keys=10**6),
    "a mask without numbers": lambda d, t: _first(d)["mask"].update(
        mask=None, queries=10**9, keys=10**9
    ),
    "a mask of another size": lambda d, t: _first(d)["mask"].update(queries=3, keys=3),
    "a mask of fewer keys": lambda d, t: _first(d)["held"]["mask"].update(keys=3),
    "a mask for other heads": lambda d, t: _tensor(d, t, torch.ones(9, 9, 7, 7).bool()),
    "a mask of five axes": lambda d, t: _tensor(d, t, torch.ones(1, 1, 1, 7, 7).bool()),
    "a mask of whole numbers": lambda d, t: _tensor(d, t, torch.ones(7, 7).long()),
    "a text of a thousand million": lambda d, t: d["reads"][0].update(ids=None, shape=[3, 10**9]),
    "a past of a thousand million": lambda d, t: d["reads"][0].update(offset=10**9),
    "a text of half a token": lambda d, t: d["reads"][0].update(ids=None, shape=[3, 7.5]),
    "a text less than empty": lambda d, t: d["reads"][0].update(ids=None, shape=[3, -5]),
    "edits that are none": lambda d, t: d["reads"][0].update(edits=[5]),
    "too many heads": lambda d, t: d["heads"].update({"layers.0.attention": 9}),
    "no heads": lambda d, t: d["heads"].clear(),
    "a scale beyond numbers": lambda d, t: _first(d)["held"].update(scale=10**400),
    "queries that are whole numbers": lambda d, t: _query(t, d, torch.Tensor.long),
    "queries of another kind than keys": lambda d, t: _query(t, d, torch.Tensor.double),
    "a stream that is one number": lambda d, t: t.update(
        {d["passed"][STREAM][0]["held"]["value"]: torch.tensor(1.0)}
    ),
    "weights that are a stream": lambda d, t: _first(d).update(held=d["passed"][STREAM][0]["held"]),
    "a stream that is weights": lambda d, t: d["passed"][STREAM][0].update(held=_first(d)["held"]),
    "weights that are a mask": lambda d, t: _first(d).update(held=_first(d)["mask"]),
    "a name that is code": lambda d, t: _first(d).update(
        held={"kind": "reduced", "name": "__import__('os').abort()", "fields": {"a": {"plain": 1}}}
    ),
}


@pytest.mark.parametrize("deceit", DECEITS.values(), ids=DECEITS)
def test_a_recording_that_lies_is_refused(deceit, saved, tmp_path):
    document = json.loads((saved / "recording.json").read_text())
    tensors = safetensors.torch.load_file(saved / "recording.safetensors")
    deceit(document, tensors)
    file = tmp_path / "recording.safetensors"
    safetensors.torch.save_file(tensors, file)
    document["tensors"] = {
        name: [str(each.dtype).removeprefix("torch."), *each.shape]
        for name, each in tensors.items()
    }
    document["sha256"] = hashlib.sha256(file.read_bytes()).hexdigest()
    (tmp_path / "recording.json").write_text(json.dumps(document))
    with pytest.raises(CouldNotRun, match="is damaged"):
        open_recording(tmp_path)


def test_what_is_true_is_read(saved):
    assert open_recording(saved)[WEIGHTS].shape == (3, 4, 7, 7)


def test_a_mask_is_written_out_within_the_budget_only():
    with isolated(0, "long"):
        model = Decoder(
            DecoderConfig(vocab_size=11, d_model=8, num_heads=2, num_layers=1, max_length=4096)
        ).eval()
    with torch.no_grad(), record(model, ["*weights", "*mask"], budget="4 MiB") as recording:
        model(torch.zeros(1, 4096, dtype=torch.int64))
    site = "layers.0.attention.mask"
    for ask in (
        lambda: recording[site],
        lambda: recording.blocked(WEIGHTS),
        lambda: recording.tile(site, head=0),
        lambda: recording.joined(site),
    ):
        with pytest.raises(CouldNotRun, match=r"budget is 4\.0 MiB"):
            ask()
    assert recording.tile(site, head=0, queries=slice(0, 8)).shape == (8, 4096)
