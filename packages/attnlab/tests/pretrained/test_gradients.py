"""Gradients of what is recorded in foreign models: those of the model's own tensors."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import attnlab
from attnlab.errors import WrongUsage
from attnlab.pretrained.attach import attach
from tests.pretrained.trying import eager_copy, tried
from tests.pretrained.written import Attention
from tests.sampling import sampled

BATCH, LENGTH, WIDTH, HEADS = 3, 6, 16, 4
HIDDEN = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)
TOKENS = torch.randint(3, 50, (2, 7), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    "name", sampled(["llama", "bloom", "gpt_oss", "gpt2", "bert", "gemma2", "falcon"], 3)
)
def test_the_gradient_of_weights_is_the_one_that_the_eager_model_s_own_weights_get(name):
    """And the output is what open attention computes."""
    model = tried(name).model
    foreign, real = model.foreign, torch.ones_like(TOKENS)
    real[0, -2:] = 0
    eager, own = eager_copy(foreign), foreign.config.use_cache
    inputs = {"input_ids": TOKENS, "attention_mask": real}
    if name == "falcon":  # its eager attention adds a boolean mask as 0 and 1
        inputs.pop("attention_mask")
    if own:
        inputs["use_cache"] = False
    output = eager(**inputs, output_attentions=True)
    for weights in output.attentions:
        weights.retain_grad()
    output.logits[1, -1, 5].backward()
    with attnlab.edit(model, attnlab.edits.Temperature(temperature=1.0), certify=False):
        opened = foreign(**inputs).logits
    with attnlab.record(model, "*", gradients=True) as recording:
        found = foreign(**inputs).logits
        found[1, -1, 5].backward()
    assert torch.equal(found, opened)
    for layer, weights in enumerate(output.attentions):
        site = f"layers.{layer}.attention.weights"
        size = float(weights.grad.abs().max())
        torch.testing.assert_close(recording.gradient(site), weights.grad, rtol=0, atol=2e-5 * size)
        check_scores(recording, site)


def check_scores(recording, site):
    """Hold the gradient of scores to what the softmax makes of that of the weights."""
    weights, gradient = recording[site], recording.gradient(site)
    expected = weights * (gradient - (gradient * weights).sum(-1, keepdim=True))
    found = recording.gradient(site.replace("weights", "scores"))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)


class Written(Attention):
    """Attention written by hand in several ways, and its weights kept on the graph."""

    def __init__(self, way, dropout=0.0):
        super().__init__()
        self.way, self.dropout = way, dropout
        self.weights, self.scores = torch.empty(0), torch.empty(0)

    def forward(self, x):
        query, key, value = (
            part.flatten(0, 1) if self.way == "flat" else part for part in self.parts(x)
        )
        self.scores = query @ key.mT / math.sqrt(WIDTH // HEADS)
        if self.way == "added mask":
            masked = self.scores + torch.zeros(HIDDEN.shape).masked_fill(HIDDEN, -math.inf)
        else:
            masked = self.scores.masked_fill(HIDDEN, torch.finfo(self.scores.dtype).min)
        self.weights = masked.softmax(-1)
        dropped = F.dropout(self.weights, self.dropout, self.training)
        if self.way == "einsum":
            heads = torch.einsum("bhqk,bhkd->bqhd", dropped, value).flatten(2)
        elif self.way == "flat":
            heads = torch.bmm(dropped, value).unflatten(0, (-1, HEADS)).transpose(1, 2).flatten(2)
        else:
            heads = (dropped @ value).transpose(1, 2).flatten(2)
        return x + self.out(heads)


@pytest.mark.parametrize(
    ("way", "dropout"), [("filled mask", 0.0), ("added mask", 0.5), ("einsum", 0.0), ("flat", 0.5)]
)
def test_the_gradients_of_attention_written_by_hand_are_its_own_tensors_gradients(way, dropout):
    torch.manual_seed(0)
    foreign, x = Written(way, dropout).eval(), torch.randn(BATCH, LENGTH, WIDTH)
    model = attach(foreign, example=(x,))
    foreign.train(dropout > 0)

    def loss():
        torch.manual_seed(1)
        return foreign(x)[1, 4].square().sum()

    own = loss()
    foreign.weights.retain_grad()
    foreign.scores.retain_grad()
    own.backward()
    expected = {"weights": foreign.weights.grad, "scores": foreign.scores.grad}
    with attnlab.record(model, "*", gradients=True) as recording:
        loss().backward()
    for site, gradient in expected.items():
        found = recording.gradient(f"layers.0.attention.{site}")
        torch.testing.assert_close(found.reshape(gradient.shape), gradient, rtol=0, atol=1e-6)
    assert float(recording.gradient("layers.0.attention.heads").abs().max()) > 0.0


class Multi(nn.Module):
    """Multi-head attention of torch."""

    def __init__(self, needs_weights):
        super().__init__()
        self.attend = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
        self.needs_weights = needs_weights

    def forward(self, x):
        found: Tensor = self.attend(x, x, x, attn_mask=HIDDEN, need_weights=self.needs_weights)[0]
        return found


@pytest.mark.parametrize("needs_weights", [True, False])
def test_the_gradient_of_weights_is_that_of_the_heads_times_the_values(needs_weights):
    torch.manual_seed(0)
    x = torch.randn(BATCH, LENGTH, WIDTH)
    foreign = Multi(needs_weights)
    model = attach(foreign.eval(), example=(x,))
    with attnlab.record(model, "*", gradients=True) as recording:
        foreign(x)[1, 4].square().sum().backward()
    site = "layers.0.attention.weights"
    value = recording["layers.0.attention.value"]
    expected = recording.gradient("layers.0.attention.heads") @ value.mT
    torch.testing.assert_close(recording.gradient(site), expected, rtol=0, atol=1e-6)
    check_scores(recording, site)


def test_every_recorded_site_gets_its_gradient_whatever_the_order_of_axes():
    for batch_first in (True, False):
        torch.manual_seed(0)
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 24, batch_first=batch_first)
        foreign = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
        x = torch.randn(BATCH, LENGTH, WIDTH, requires_grad=True)
        model = attach(foreign, example=(x.detach(),))
        with attnlab.record(model, "*", gradients=True) as recording:
            foreign(x).square().sum().backward()
        for site in recording:
            if not site.endswith("mask"):
                assert float(recording.gradient(site).abs().max()) > 0.0, site
        first = recording.gradient("layers.0.residual_before")
        torch.testing.assert_close(first if batch_first else first.transpose(0, 1), x.grad)


def test_the_gradient_of_the_stream_between_is_that_of_the_model_s_own_sum():
    model = tried("gpt2").model
    foreign, own = model.foreign, {}
    foreign.zero_grad()

    def keep(_, args):
        args[0].retain_grad()
        own["sum"] = args[0]

    hook = foreign.transformer.h[0].ln_2.register_forward_pre_hook(keep)
    foreign(TOKENS).logits[1, -1, 5].backward()
    hook.remove()
    gradients = [each.grad.clone() for each in foreign.parameters()]
    foreign.zero_grad()
    with attnlab.record(model, "*between", gradients=True) as recording:
        foreign(TOKENS).logits[1, -1, 5].backward()
    torch.testing.assert_close(
        recording.gradient("layers.0.residual_between"), own["sum"].grad, rtol=1e-5, atol=1e-7
    )
    for before, each in zip(gradients, foreign.parameters(), strict=True):
        torch.testing.assert_close(each.grad, before, rtol=1e-5, atol=1e-6)


def test_where_no_gradient_comes_the_reason_is_true():
    model, site = tried("llama").model, "layers.1.attention.weights"
    foreign = model.foreign

    with torch.no_grad(), attnlab.record(model, site, gradients=True) as recording:
        foreign(TOKENS)
    with pytest.raises(WrongUsage, match="without gradients"):
        recording.gradient(site)
    with attnlab.record(model, site, gradients=True) as recording:
        loss = foreign(TOKENS).logits.sum()
    with pytest.raises(WrongUsage, match=r"backward\(\) has not run yet"):
        recording.gradient(site)
    loss.backward()
    assert recording.gradient(site).shape == recording.shape(site)
