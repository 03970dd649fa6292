"""A family says where sites are that a survey cannot find, and what it says is tried."""

import pytest
import torch

import attnlab
from attnlab.errors import WrongUsage
from attnlab.pretrained import model as families
from attnlab.pretrained.attach import attach
from attnlab.pretrained.model import Family, register_family
from attnlab.sites import site_names
from tests.pretrained.trying import tried

pytest.importorskip("transformers")


@pytest.fixture
def granite():
    return tried("granite").foreign


def test_a_site_that_the_survey_leaves_out_is_there_when_the_family_says_where(granite):
    assert "layers.0.attention.output" not in site_names(attach(granite))
    model = attach(granite, family=Family("granite", attention="self_attn.o_proj"))
    given, projection = [], granite.model.layers[1].self_attn.o_proj
    hook = projection.register_forward_hook(lambda _, __, output: given.append(output))
    try:
        with torch.no_grad(), attnlab.record(model, "layers.1.attention.output") as recording:
            model(torch.arange(5)[None])
    finally:
        hook.remove()
    assert torch.equal(recording["layers.1.attention.output"], given[0])


def test_a_registered_family_is_used_for_its_type_alone(granite, monkeypatch):
    monkeypatch.setattr(families, "_FAMILIES", {})
    register_family(Family("granite", attention="self_attn.o_proj"))
    assert "layers.0.attention.output" in site_names(attach(granite))
    register_family(Family("gpt2", attention="nothing"))
    attach(granite)


def test_a_path_that_is_not_there_is_an_error(granite):
    with pytest.raises(WrongUsage, match=r"oproj'; did you mean 'self_attn\.o_proj'"):
        attach(granite, family=Family("granite", attention="self_attn.oproj"))
    with pytest.raises(WrongUsage, match="has no module"):
        attach(granite, family=Family("granite", down="self_attn.unused"))


@pytest.mark.parametrize("named", ["", None, 5])
def test_a_family_without_a_type_is_refused(named):
    with pytest.raises(WrongUsage, match="named by the model_type"):
        Family(named, attention="self_attn.o_proj")


def test_a_module_that_is_never_called_is_an_error(granite):
    granite.model.layers[0].add_module("idle", torch.nn.Linear(2, 2))
    granite.model.layers[1].add_module("idle", torch.nn.Linear(2, 2))
    try:
        with pytest.raises(WrongUsage, match="visited 0 times in one pass, not once"):
            attach(granite, family=Family("granite", feed_forward="idle"))
    finally:
        del granite.model.layers[0].idle, granite.model.layers[1].idle


def test_only_families_are_registered():
    with pytest.raises(WrongUsage, match="a family is a Family"):
        register_family("granite")
