"""`attnlab.course.check`, as it answers in a notebook."""

import pytest
import torch
from torch import nn

from attnlab.errors import WrongUsage
from attnlab_course import check


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    """Work in an empty folder, where no log is."""
    monkeypatch.chdir(tmp_path)


def own_softmax(scores, dim=-1):
    return scores.exp() / scores.exp().sum(dim, keepdim=True)


def test_a_function_in_place_of_a_mapping_is_answered_in_a_sentence():
    with pytest.raises(WrongUsage, match=r'check\("softmax", {"softmax": own_softmax}\)'):
        check("softmax", own_softmax)
    assert "values" in repr(check("softmax", {"softmax": own_softmax}))


class LayerNormalization(nn.Module):
    """With a weight that is no parameter."""

    def __init__(self, width, eps=1e-5):
        super().__init__()
        self.eps, self.weight = eps, torch.ones(width)
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x):
        shares = (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True) + self.eps).sqrt()
        return self.weight * shares + self.bias


@pytest.mark.filterwarnings("ignore:var.*degrees of freedom:UserWarning")  # of a width of 1
def test_a_plain_tensor_in_place_of_a_parameter_is_named_beside_another_mistake():
    said = check("layer_norm", {"LayerNormalization": LayerNormalization})
    assert said.outcome.mistake.name == "no parameters; unbiased"
    assert "`nn.Parameter`: a plain tensor is none" in repr(said)
    assert "expected the keys weight, bias; got bias" in repr(said)


def test_every_prediction_that_is_no_answer_is_said_to_be_none():
    said = repr(check("predict_attention", {"score_variance": 16, "leak": "0.9", "shuffled": None}))
    assert "score_variance: 16 is incorrect" in said
    assert "\n    leak must be 'nearly all' or " in said
    assert "\n    shuffled is not filled in: " in said


def torch_softmax(scores, dim=-1):
    return torch.softmax(scores, dim).nan_to_num(0.0)


def test_what_is_not_allowed_is_said_and_nothing_of_what_stands_beside():
    words = "\n  uses softmax, which this exercise does not allow; a teacher will look at it"
    assert repr(check("softmax", {"softmax": torch_softmax})).endswith(words)
    assert "does not allow" not in repr(check("softmax", {"softmax": own_softmax}))


def test_where_nothing_is_defined_that_is_all_that_is_said():
    words = "layer_norm: nothing that it asks for is defined here: LayerNormalization"
    assert repr(check("layer_norm", {})) == words
