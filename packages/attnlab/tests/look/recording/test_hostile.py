"""Recordings that were changed by hand: refused at once, in a sentence, before memory is taken."""

import json
import shutil

import pytest
import torch

from attnlab.errors import CouldNotRun
from attnlab.look import open_recording, record
from tests.random_models import new_model, tokens

WEIGHTS, STREAM = "layers.0.attention.weights", "layers.0.residual_after"


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    model = new_model("decoder", num_layers=1)
    with torch.no_grad(), record(model, [WEIGHTS, STREAM, "*mask"]) as recording:
        model(tokens(3, 7))
    folder = recording.save(tmp_path_factory.mktemp("saved"))
    assert open_recording(folder)[WEIGHTS].shape == (3, 4, 7, 7)
    return folder


def _first(document):
    return document["passed"][WEIGHTS][0]["fields"]


DECEITS = {
    "an attention of a thousand million": lambda d: _first(d)["held"]["fields"]["mask"][
        "fields"
    ].update(num_queries=10**9, num_keys=10**9),
    "a text of a thousand million": lambda d: d["reads"][0]["fields"].update(
        ids=None, shape=[3, 10**9]
    ),
    "too many heads": lambda d: d["heads"].update({"layers.0.attention": 9}),
    "weights that are a stream": lambda d: _first(d).update(
        held=d["passed"][STREAM][0]["fields"]["held"]
    ),
    "a name that is code": lambda d: _first(d).update(
        held={"kind": "__import__('os').abort()", "fields": {"a": 1}}
    ),
}


@pytest.mark.parametrize("deceit", DECEITS.values(), ids=DECEITS)
def test_a_recording_that_lies_is_refused(deceit, saved, tmp_path):
    document = json.loads((saved / "recording.json").read_text())
    deceit(document)
    shutil.copy(saved / "recording.safetensors", tmp_path)
    (tmp_path / "recording.json").write_text(json.dumps(document))
    with pytest.raises(CouldNotRun, match="is damaged"):
        open_recording(tmp_path)


def test_a_mask_is_written_out_within_the_budget_only():
    model = new_model("decoder", d_model=8, num_heads=2, num_layers=1, max_length=1024)
    with torch.no_grad(), record(model, ["*weights", "*mask"], budget="512 KiB") as recording:
        model(torch.zeros(1, 1024, dtype=torch.int64))
    site = "layers.0.attention.mask"
    for ask in (
        lambda: recording[site],
        lambda: recording.blocked(WEIGHTS),
        lambda: recording.tile(site, head=0),
        lambda: recording.joined(site),
    ):
        with pytest.raises(CouldNotRun, match=r"budget is 512\.0 KiB"):
            ask()
    assert recording.tile(site, head=0, queries=slice(0, 8)).shape == (8, 1024)
