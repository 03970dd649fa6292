"""`attnlab.course.check`, as it answers in a notebook."""

import pytest

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


def test_where_nothing_is_defined_that_is_all_that_is_said():
    words = "layer_norm: nothing that it asks for is defined here: LayerNormalization"
    assert repr(check("layer_norm", {})) == words
