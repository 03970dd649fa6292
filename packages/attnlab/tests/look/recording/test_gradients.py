"""Gradients of sites: the right ones, of the right site, where they were asked for."""

from functools import partial

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from attnlab.errors import WrongUsage
from attnlab.look import record
from attnlab.sites import explicit_attention, installed, site_names
from tests.hooks import Change, no_hook_is_left
from tests.random_models import new_model

TOKENS = torch.tensor([[1, 2, 3, 0], [3, 2, 1, 0]])
WEIGHTS = "layers.1.attention.weights"


@pytest.fixture(scope="module")
def model():
    heads = {"d_model": 8, "num_heads": 4, "num_kv_heads": 2}
    return new_model("decoder", vocab_size=4, **heads).double().eval()


def loss_of(model):
    return model(TOKENS).log_softmax(-1)[..., 2].sum()


def test_every_gradient_is_that_of_finite_differences_at_its_own_site(model):
    with record(model, "*", gradients=True) as recording:
        loss_of(model).backward()
    sites = [site for site in site_names(model) if not site.endswith("mask")]
    assert len(sites) == 2 * 12 + 2
    source = torch.Generator().manual_seed(0)
    for site in sites:
        gradient = recording.gradient(site)
        assert gradient.shape == recording.shape(site)
        assert float(gradient.abs().max()) > 0.0, site
        direction = torch.randn(gradient.shape, generator=source, dtype=torch.float64)
        # where blocked, a step would not be small
        direction = direction.masked_fill(gradient == 0.0, 0.0)
        found = []
        for step in (1e-5, -1e-5):
            moved = Change(site, lambda value, by=step * direction: value + by)
            with torch.no_grad(), installed(model, moved):
                found.append(float(loss_of(model)))
        slope = (found[0] - found[1]) / 2e-5
        assert float((gradient * direction).sum()) == pytest.approx(slope, rel=1e-5, abs=1e-7), site


def test_asking_for_gradients_changes_the_output_only_by_the_explicit_path(model):
    with explicit_attention(model):
        explicit = model(TOKENS)
    with record(model, WEIGHTS, gradients=True):
        output = model(TOKENS)
    with record(model, "*output", gradients=True):
        fused = model(TOKENS)
    assert torch.equal(fused, model(TOKENS))
    with explicit_attention(model), record(model, "*", gradients=True):
        assert torch.equal(model(TOKENS), explicit)
    assert (output - explicit).abs().max() < 1e-12
    assert no_hook_is_left(model)


def test_parameters_get_the_same_gradients(model):
    found = []
    for gradients in (None, True):
        model.zero_grad()
        with explicit_attention(model), record(model, "*", gradients=gradients):
            loss_of(model).backward()
        found.append([each.grad.clone() for each in model.parameters()])
    model.zero_grad()
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


def test_gradients_by_pattern_record_these_sites_too(model):
    with record(model, "logits", gradients=WEIGHTS) as recording:
        loss = loss_of(model)
    with pytest.raises(WrongUsage, match=r"backward\(\) has not run yet"):
        recording.gradient(WEIGHTS)
    loss.backward()
    assert recording.gradient(WEIGHTS).shape == recording[WEIGHTS].shape == (2, 4, 4, 4)
    with pytest.raises(WrongUsage, match=r"was not recorded; use .*gradients=True"):
        recording.gradient("logits")


def test_gradients_of_several_backward_passes_add_up_and_the_last_forward_pass_counts(model):
    with record(model, "logits", gradients=True) as recording:
        first = loss_of(model)
        last = model(TOKENS[:1]).sum()
        last.backward(retain_graph=True)
        assert torch.equal(recording.gradient("logits"), torch.ones(1, 4, 4, dtype=torch.float64))
        last.backward()
        first.backward()
    assert torch.equal(recording.gradient("logits"), torch.full((1, 4, 4), 2.0).double())


def test_a_gradient_under_an_edit_is_that_of_the_edited_value(model):
    edit, sites = Change(WEIGHTS, lambda w: 0.0 * w + 0.5), [WEIGHTS, "layers.1.attention.heads"]
    with record(model, sites, gradients=True) as recording, installed(model, edit):
        loss_of(model).backward()
    with record(model, "layers.1.attention.value") as values:
        model(TOKENS)
    value = values["layers.1.attention.value"].repeat_interleave(2, 1)
    expected = recording.gradient(sites[1]) @ value.transpose(-2, -1)
    torch.testing.assert_close(recording.gradient(WEIGHTS), expected, rtol=0, atol=1e-10)
    assert torch.equal(recording[WEIGHTS], torch.full((2, 4, 4, 4), 0.5, dtype=torch.float64))


def test_without_a_graph_there_is_no_gradient_and_the_error_says_why(model):
    with torch.no_grad(), record(model, "logits", gradients=True) as recording:
        model(TOKENS)
    with pytest.raises(WrongUsage, match=r"computed without gradients: under torch.no_grad"):
        recording.gradient("logits")


def test_under_checkpointing_values_are_recorded_once_and_their_gradients_arrive(model):
    block = model.layers[1]
    forward, found = block.forward, []
    for checkpointed in (False, True):
        if checkpointed:
            block.forward = partial(checkpoint, forward, use_reentrant=False)
        try:
            with record(model, "*", gradients=True) as recording:
                loss_of(model).backward()
        finally:
            vars(block).pop("forward", None)
        found.append(recording)
    for site in found[0]:
        assert len(found[1].all(site)) == 1, site
        if not site.endswith("mask"):
            assert torch.equal(found[0].gradient(site), found[1].gradient(site)), site


def test_a_pattern_of_gradients_that_matches_nothing_is_an_error(model):
    words = "no site of this model matches 'logit'"
    with pytest.raises(WrongUsage, match=words), record(model, "*", gradients="logit"):
        pass
