"""The first pass of a stranger's model: it reads a small input made for it."""

import pytest
import torch
from torch import nn

import attnlab
from attnlab.errors import CouldNotRun
from attnlab.pretrained.attach import attach
from attnlab.pretrained.probe import probe_inputs
from tests.pretrained.families import FAMILIES
from tests.pretrained.folders import llama

pytest.importorskip("transformers")


@pytest.mark.parametrize("ends", [[2, 3], [2], list(range(16)), -1])
def test_a_model_with_several_end_tokens_is_probed_without_them(ends, tmp_path):
    model = attnlab.load(llama(tmp_path / "model", eos_token_id=ends))
    probed = set(probe_inputs(model.foreign)["input_ids"].flatten().tolist())
    assert probed <= set(range(16))
    if ends == [2, 3]:
        assert not probed & {1, 2, 3}


def test_numbers_that_may_be_negative_pass(tmp_path):
    attnlab.load(
        llama(
            tmp_path / "model", max_relative_positions=-1, vision_feature_layer=-2, pad_token_id=-1
        )
    )


class Plain(nn.Module):
    """One block of torch, and whatever is made of what it gives."""

    def __init__(self, makes):
        super().__init__()
        self.block = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.makes = makes

    def forward(self, vectors):
        return self.makes(self.block(vectors))


EXAMPLE = torch.linspace(-1, 1, 40).reshape(1, 5, 8)


@pytest.mark.parametrize(
    ("makes", "what"),
    [
        (torch.sum, "a single number"),
        (lambda found: (found.sum(), found), "a single number"),
        (lambda found: float(found.sum()), "no tensor"),
        (lambda found: None, "no tensor"),
    ],
)
def test_a_model_that_returns_a_number_is_refused(makes, what):
    with pytest.raises(CouldNotRun, match=rf"^Plain returns {what}, .*\(batch, length, width\)\.$"):
        attach(Plain(makes), example={"vectors": EXAMPLE})


@pytest.mark.parametrize(
    ("example", "words"),
    [
        ({"vector": EXAMPLE}, "unexpected keyword argument 'vector'"),
        ({"vectors": EXAMPLE[..., :7]}, "was expecting embedding dimension of 8, but got 7"),
        ({"vectors": "a text"}, "AttributeError"),
        ({}, "missing 1 required"),
    ],
)
def test_an_example_that_does_not_fit_is_told_with_what_the_model_takes(example, words):
    with pytest.raises(CouldNotRun, match=rf"{words}.*It takes \(vectors\); give"):
        attach(Plain(lambda found: found), example=example)


def test_settings_that_make_no_input_are_told_likewise():
    model = FAMILIES["llama"].build(return_dict=False)
    with pytest.raises(CouldNotRun, match="a small input made from its settings"):
        attach(model)
