"""A person opens attention written in several styles: the right weights, or the true reason."""

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention.flex_attention import flex_attention

import attnlab
from attnlab.errors import CouldNotRun

TOKENS = torch.randint(3, 90, (2, 7), generator=torch.Generator().manual_seed(0))


class Softmax(nn.Module):
    def forward(self, scores: Tensor) -> Tensor:
        return scores.softmax(-1)


class Product(nn.Module):
    def forward(self, weights: Tensor, value: Tensor) -> Tensor:
        return weights @ value


class Hand(nn.Module):
    """Attention of four heads, written in one of several styles."""

    def __init__(self, attend: Callable[..., Tensor]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inside, self.outside = nn.Linear(16, 48), nn.Linear(16, 16)
        self.prefix = nn.Parameter(torch.randn(1, 4, 2, 4))
        self.normalize, self.product, self.attend = Softmax(), Product(), attend

    def parts(self, x: Tensor) -> list[Tensor]:
        return [part.unflatten(-1, (4, 4)).transpose(1, 2) for part in self.inside(x).chunk(3, -1)]

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.outside(self.attend(self, *self.parts(x)).transpose(1, 2).flatten(2))
        return found


def in_modules(model: Hand, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    found: Tensor = model.product(model.normalize(query @ key.mT / 2), value)
    return found


def with_prefix(model: Hand, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    key, value = (torch.cat([model.prefix.expand(2, -1, -1, -1), part], 2) for part in (key, value))
    return (query @ key.mT / 2).softmax(-1) @ value


def in_windows(_: Hand, *parts: Tensor) -> Tensor:
    windows = (part.unflatten(2, (2, 3)).transpose(1, 2) for part in parts)
    return F.scaled_dot_product_attention(*windows).transpose(1, 2).flatten(2, 3)


def keys_before_heads(_: Hand, *parts: Tensor) -> Tensor:
    query, key, value = (part.transpose(1, 2) for part in parts)
    weights = torch.einsum("bihd,bjhd->bijh", query, key).softmax(2)
    return torch.einsum("bijh,bjhd->bhid", weights, value)


def flexible(_: Hand, *parts: Tensor) -> Tensor:
    return flex_attention(*parts)


@pytest.mark.parametrize("style", [in_modules, with_prefix])
def test_modules_and_prefixes_are_shown_as_self_attention(
    style: Callable[..., Tensor],
) -> None:
    model, x = Hand(style).eval(), torch.randn(2, 6, 16)
    lab = attnlab.load(model, example=(x,))
    with attnlab.record(lab, "*weights") as recording:
        model(x)
    query, key, _ = model.parts(x)
    if style is with_prefix:
        key = torch.cat([model.prefix.expand(2, -1, -1, -1), key], 2)
    expected = (query @ key.mT / 2).softmax(-1)
    torch.testing.assert_close(recording["layers.0.attention.weights"], expected)


REFUSED = {
    in_windows: "scaled_dot_product_attention of five axes",
    keys_before_heads: "a softmax over another axis than the last",
    flexible: "flex_attention, inside which no hook reaches",
}


@pytest.mark.filterwarnings("ignore:flex_attention called without")
@pytest.mark.parametrize("style", REFUSED)
def test_what_cannot_be_shown_is_refused_with_what_was_met(style: Callable[..., Tensor]) -> None:
    model = Hand(style).eval().requires_grad_(False)
    with pytest.raises(CouldNotRun, match=REFUSED[style]):
        attnlab.load(model, example=(torch.randn(2, 6, 16),))


def test_gradient_times_attention_of_a_tiny_llama_from_disk(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        vocab_size=99, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, initializer_range=0.3,
    )  # fmt: skip
    transformers.LlamaForCausalLM(config).save_pretrained(tmp_path)
    load = transformers.LlamaForCausalLM.from_pretrained
    model, eager = load(tmp_path), load(tmp_path, attn_implementation="eager")
    output = eager(TOKENS, output_attentions=True, use_cache=False)
    own = output.attentions[1]
    own.retain_grad()
    output.logits[:, -1, 5].sum().backward()
    site = "layers.1.attention.weights"
    with attnlab.record(attnlab.load(model), site, gradients=True) as recording:
        model(TOKENS, use_cache=False).logits[:, -1, 5].sum().backward()
    found = recording.gradient(site) * recording[site]
    torch.testing.assert_close(found, (own.grad * own).detach(), rtol=1e-4, atol=1e-5)


def test_a_cut_edge_of_a_bloom_is_minus_infinity_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.BloomConfig(
        vocab_size=99, hidden_size=32, n_layer=2, n_head=4, initializer_range=0.3
    )
    model = transformers.BloomForCausalLM(config).eval()
    lab, real = attnlab.load(model), F.softmax
    with attnlab.edit(lab, attnlab.CutEdge(query=5, key=2)) as certificate:
        found = model(TOKENS).logits
    assert certificate.holds

    def blocked(scores: Tensor, *args: int, **options: object) -> Tensor:
        scores = scores.clone()
        scores[..., 5, 2] = -math.inf
        return real(scores, *args, **options)

    plain = model(TOKENS).logits
    monkeypatch.setattr(F, "softmax", blocked)
    torch.testing.assert_close(found, model(TOKENS).logits, rtol=0, atol=1e-5)
    assert float((found - plain).detach().abs().max()) > 1e-3
