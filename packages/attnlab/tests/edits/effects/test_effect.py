"""The effect of edits: without and with them, side by side."""

import pytest
import torch

from attnlab.edits import ScaleScores, UniformPattern, ZeroHead
from attnlab.edits.application import edit
from attnlab.edits.effects import effect
from attnlab.errors import WrongUsage
from attnlab.models import generate
from attnlab.sites import hooks_of
from tests.random_models import given, run


def test_no_effect_is_exactly_nothing_and_the_baseline_is_not_edited():
    """An edit that changes nothing has no effect; the baseline is not edited."""
    each = given(0, "decoder", dtype=torch.float32)
    plain = run(each)
    kept = effect(*each.whole, UniformPattern(layer=0, head=0, query=0), target=each.labels)
    assert float(kept.logits.difference.abs().max()) == 0.0  # the first query has one key
    found = effect(*each.whole, ZeroHead(layer=0, head=0), target=each.labels)
    assert torch.equal(found.logits.before, plain)
    with edit(each.model, ZeroHead(layer=0, head=0)):
        assert torch.equal(found.logits.after, run(each))
    assert float(found.logits.difference.abs().max()) > 1e-3


@pytest.mark.parametrize("seed", range(4))
def test_figures_are_those_of_the_two_runs(seed):
    each = given(seed, dtype=torch.float64)
    zero = ZeroHead(site="*attention", head=0)
    found = effect(*each.whole, zero, target=each.labels, sites="*residual_after")
    before = run(each)
    with edit(each.model, zero):
        after = run(each)
    assert torch.equal(found.logits.difference, after - before)
    assert torch.equal(found.probabilities.after, after.softmax(-1))
    assert torch.equal(found.choices.before, before.argmax(-1))
    wanted = (before.softmax(-1) * (before.log_softmax(-1) - after.log_softmax(-1))).sum(-1)
    assert torch.allclose(found.divergence, wanted, atol=1e-12)
    labels = each.labels.flatten()
    flat = torch.nn.functional.cross_entropy(after.flatten(0, -2), labels, reduction="none")
    counts = (each.labels != -100).double().view(len(after), -1).sum(1)
    assert torch.allclose(found.loss.after, flat.view(len(after), -1).sum(1) / counts, atol=1e-12)
    site = next(iter(found.recordings.before))
    assert found.at(site).difference.abs().max() > 0
    assert found.certificate.calls
    choices = before[..., 0].numel() if each.real is None else int(each.real.sum())
    assert found.to_mapping()["choices"] == choices
    assert "loss" in str(found)


def test_generations_part_where_the_edit_says_otherwise():
    each = given(8, "decoder", positions="learned", num_layers=2)
    prompt = each.inputs[:, :3]
    zero = ZeroHead(layer=0, head=[0, 1])
    vocabulary = "abcdefghijk"
    told = {"num_tokens": 6, "vocabulary": vocabulary, "sites": "layers.0.attention.heads"}
    found = effect(each.model, prompt, zero, **told)
    before = generate(each.model, prompt, 6).tokens
    with edit(each.model, zero):
        after = generate(each.model, prompt, 6).tokens
    assert torch.equal(found.tokens.before, before)
    assert torch.equal(found.tokens.after, after)
    assert torch.equal(found.logits.before, each.model(prompt))  # the first pass
    for row, step in enumerate(found.diverged_at):
        differs = (before[row] != after[row]).nonzero()
        assert step == (int(differs[0]) - 2 if len(differs) else None)
    assert found.text(0).before == [vocabulary[token] for token in before[0]]
    assert "generated answer" in str(found)


@pytest.mark.parametrize("rows", [1, 3])
def test_generations_that_do_not_part_are_said_to_stay_the_same(rows):
    each = given(8, "decoder", positions="learned")
    prompts = each.inputs[:1, :3].repeat(rows, 1)
    found = effect(each.model, prompts, ScaleScores(layer=0, factor=1.0), num_tokens=3)
    assert found.diverged_at == [None] * rows
    assert str(found).endswith(f"0 of {rows} generated answers change")


def test_an_encoder_decoder_generates_from_source_and_start():
    each = given(3, "encoder-decoder")
    source, start = each.inputs["source"], each.inputs["target"][:, :1]
    uniform = UniformPattern(site="*cross_attention")
    found = effect(each.model, (source, start), uniform, num_tokens=3)
    assert found.tokens.after.shape == (len(source), 4)
    assert found.prompt_length == 1


def test_what_makes_no_sense_is_said():
    each = given(0, "decoder")
    zero = ZeroHead(layer=0, head=0)
    for call, words in (
        (lambda: effect(*each.whole), "effect takes a model, inputs and at least one edit"),
        (lambda: effect("gpt2", each.inputs, zero), "effect takes a model, inputs, then edits"),
        (lambda: effect(*each.whole, ZeroHead(layer=7, head=0)), "layer"),
        (lambda: effect(each.model, {"tokens": each.inputs}, zero, num_tokens=2), "give a prompt"),
        (lambda: effect(*each.whole, zero, num_tokens=-1), "num_tokens must be"),
        (lambda: effect(*each.whole, zero).at("logits"), "sites="),
        (lambda: effect(*each.whole, zero).text(), "num_tokens="),
    ):
        with pytest.raises(WrongUsage) as caught:
            call()
        assert words in str(caught.value)
    assert hooks_of(each.model) == []
    found = effect(*each.whole, zero, num_tokens=2)
    for row in (each.num_rows, -1, "first"):
        with pytest.raises(WrongUsage, match="there are the inputs 0 to"):
            found.text(row)
