"""Windows and caps are tried with inputs that would show them missing."""

import pytest
import torch

from attnlab.look.limits import limits_of
from attnlab.pretrained.attach import attach
from tests.pretrained.families import FAMILIES
from tests.pretrained.trying import tried

pytest.importorskip("transformers")


def of_kind(model, kind):
    [limit] = [limit for limit in limits_of(model) if limit.kind == kind]
    return limit


@pytest.mark.parametrize("name", ["mistral", "gemma2"])
def test_a_window_is_reached_and_not_passed(name):
    model = tried(name).model
    limit = of_kind(model, "window")
    assert limit.holds
    assert limit.measured == model.foreign.config.sliding_window


def test_a_cap_is_reached_and_not_passed():
    limit = of_kind(tried("gemma2").model, "cap")
    assert limit.holds
    assert limit.measured == pytest.approx(limit.stated)


def test_a_limit_that_the_model_does_not_keep_is_seen():
    """The config is changed after the model was made, so what it states is not what is computed."""
    model = attach(FAMILIES["gemma2"].build())
    model.foreign.config.attn_logit_softcapping = 7.0
    assert of_kind(model, "cap").holds is False
    model = attach(FAMILIES["llama"].build())
    model.foreign.config.sliding_window = 4
    limit = of_kind(model, "window")
    assert (limit.holds, limit.measured) == (False, 8.0)


def test_a_window_that_is_too_long_to_try_is_not_said_to_hold():
    model = attach(FAMILIES["llama"].build())
    model.foreign.config.sliding_window = 10**6
    assert of_kind(model, "window").holds is None
    assert limits_of(tried("gpt2").model) == []
    assert torch.is_grad_enabled()
