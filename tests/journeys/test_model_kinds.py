"""A person opens attention written in several styles: the right weights, or the true reason."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention.flex_attention import flex_attention

import attnlab
from attnlab.errors import CouldNotRun


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
