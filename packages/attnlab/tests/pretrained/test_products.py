"""Products of weights with values in other forms than weights @ values; what cannot be shown is
named; and queries whose positions are unknown are not counted from the end."""

import pytest
import torch
from parts.planting import planted
from torch import Tensor, nn

import attnlab
from attnlab.errors import CouldNotRun, WrongUsage
from tests.pretrained.written import Layers, SoftmaxAttention, X

TRIL = torch.ones(6, 6).tril()


class ValuesFirst(SoftmaxAttention):
    """An einsum whose weights are the second factor."""

    def mix(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return torch.einsum("bhjd,bhij->bhid", value, self.weights(query, key))


class Turned(SoftmaxAttention):
    """Values, (width, key), times weights, (key, query), as in attention over pictures."""

    def mix(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        weights = self.weights(query, key).flatten(0, 1)
        return torch.bmm(value.flatten(0, 1).mT, weights.permute(0, 2, 1)).mT.unflatten(0, (2, 4))


class Named(SoftmaxAttention):
    """Both factors come by name."""

    def mix(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return torch.matmul(input=self.weights(query, key), other=value)


class BothFirst(SoftmaxAttention):
    """Both softmaxes run before the first product."""

    def mix(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        halves = [slice(2), slice(2, 4)]
        weights = [self.weights(query[:, half], key[:, half]) for half in halves]
        return torch.cat([w @ value[:, half] for w, half in zip(weights, halves, strict=True)], 1)


class Twice(SoftmaxAttention):
    """Weights are multiplied with weights first."""

    def weights(self, query: Tensor, key: Tensor) -> Tensor:
        once = super().weights(query, key)
        return once @ once


class Back(SoftmaxAttention):
    """Keys share themselves out among fewer queries."""

    def weights(self, query: Tensor, key: Tensor) -> Tensor:
        return super().weights(query[:, :, :4], key).mT

    def mix(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return self.weights(query, key) @ value[:, :, :4]


FORMS = [ValuesFirst, Turned, Named, BothFirst, Twice, Back]


@torch.no_grad()
def _check(kind: type[SoftmaxAttention]) -> None:
    model = Layers(kind).eval()
    lab, plain = attnlab.load(model, example=(X,)), model(X)
    with attnlab.record(lab, "*") as recording:
        assert torch.equal(model(X), plain)
    found = [recording[site] for site in recording if site.startswith("layers.0.")]
    query, key, value = model.layers[0].parts(X)
    expected = model.layers[0].weights(query, key)
    weights = [recording[s] for s in recording if s.startswith("layers.0.") and "weights" in s]
    assert torch.allclose(torch.cat(weights, 1), expected, atol=1e-6)
    assert all(each < 1e-6 for each in recording.witness().values()), found
    part = next(iter(recording.witness()))
    with attnlab.edit(lab, attnlab.ZeroHead(site=part, head=1)):
        zeroed = model(X)
    by_hand = model.layers[0].mix(query, key, value).clone()
    by_hand[:, 1] = 0.0
    x = X + model.layers[0].out(by_hand.transpose(1, 2).flatten(2))
    assert torch.allclose(zeroed, x + model.layers[1](x), atol=1e-6)


@pytest.mark.parametrize("kind", FORMS)
def test_a_product_in_any_form_is_shown_and_edited(kind: type[SoftmaxAttention]) -> None:
    _check(kind)


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        ("self.place == 1 and", "False and", Turned),
        ("len(places) != 1", "not places", Twice),
        ("for name in _NAMES if", "for name in () if", Named),
        ("enumerate(factors)", "enumerate(factors[:1])", ValuesFirst),
    ],
)
def test_a_planted_fault_is_noticed(old: str, new: str, kind: type[SoftmaxAttention]) -> None:
    with (
        planted("attnlab.pretrained.backends.products", old, new),
        pytest.raises((AssertionError, CouldNotRun)),
    ):
        _check(kind)


class MeanOfHeads(SoftmaxAttention):
    """One matrix for all heads."""

    def mix(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return self.weights(query, key).mean(1, keepdim=True) @ value


class SinkLeftOut(SoftmaxAttention):
    """The softmax has a column more than there are keys."""

    def weights(self, query: Tensor, key: Tensor) -> Tensor:
        return nn.functional.pad(query @ key.mT, (0, 1)).softmax(-1)[..., :-1]


class BySum(SoftmaxAttention):
    """No product of matrices."""

    def mix(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return (self.weights(query, key).unsqueeze(-1) * value.unsqueeze(2)).sum(3)


class Sigmoid(SoftmaxAttention):
    """No softmax."""

    def weights(self, query: Tensor, key: Tensor) -> Tensor:
        return (query @ key.mT).sigmoid()


class Mapped(SoftmaxAttention):
    """A function of one head is mapped over all."""

    def mix(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return torch.vmap(lambda q, k, v: (q @ k.mT).softmax(-1) @ v)(query, key, value)


UNSEEN = [
    (MeanOfHeads, r"a softmax over the last axis of \(2, 4, 6, 6\) without a product"),
    (SinkLeftOut, r"a softmax over the last axis of \(2, 4, 6, 7\) without a product"),
    (BySum, r"a softmax over the last axis of \(2, 4, 6, 6\) without a product"),
    (Sigmoid, "sigmoid of a product of two activations"),
    (Mapped, "operations under torch.vmap"),
]


@pytest.mark.parametrize(("kind", "words"), UNSEEN)
def test_what_was_met_and_cannot_be_shown_is_named(
    kind: type[SoftmaxAttention], words: str
) -> None:
    with pytest.raises(CouldNotRun, match=f"no attention was found .* {words}"):
        attnlab.load(Layers(kind).eval(), example=(X,))


def test_a_head_whose_zeros_make_nan_is_no_head_without_effect() -> None:
    class Divided(SoftmaxAttention):
        def mix(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            ones = torch.ones_like(value[..., :1])
            sums = self.weights(query, key) @ torch.cat((value, ones), -1)
            return sums[..., :-1] / sums[..., -1:]

    assert attnlab.load(Layers(Divided).eval(), example=(X,)).backends


def test_copies_of_a_model_are_refused_by_name() -> None:
    with pytest.raises(WrongUsage, match=r"DataParallel runs copies .* model\.module"):
        attnlab.load(nn.DataParallel(Layers(SoftmaxAttention)), example=(X,))


class Prefix(SoftmaxAttention):
    """Two keys of the model's own come before those of the tokens."""

    def mix(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        own = self.out.weight.reshape(1, 4, 16, 4)[:, :, :2].expand(len(query), -1, -1, -1)
        return super().mix(query, torch.cat((own, key), 2), torch.cat((own, value), 2))


class First(SoftmaxAttention):
    """The first token alone has a query, as in class attention."""

    def mix(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return torch.cat((super().mix(query[:, :, :1], key, value), value[:, :, 1:]), 2)


class Pieces(SoftmaxAttention):
    """Queries come in two pieces."""

    def mix(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return torch.cat([super(Pieces, self).mix(q, key, value) for q in query.split(3, 2)], 2)


@pytest.mark.parametrize("kind", [Prefix, First, Pieces])
def test_queries_are_not_counted_from_the_end_where_their_positions_are_unknown(
    kind: type[SoftmaxAttention],
) -> None:
    model = Layers(kind).eval()
    lab = attnlab.load(model, example=(X,))
    with (
        pytest.raises(WrongUsage, match="which positions of the input the queries are is unknown"),
        attnlab.edit(lab, attnlab.CutEdge(query=5, key=2)),
    ):
        model(X)


@torch.no_grad()
@pytest.mark.parametrize("added", ["add_bias_kv", "add_zero_attn"])
def test_keys_that_multi_head_attention_adds_at_the_end_move_no_query(added: str) -> None:
    torch.manual_seed(0)
    model = nn.MultiheadAttention(16, 4, batch_first=True, **{added: True}).eval()
    lab = attnlab.load(model, example=(X, X, X))
    with attnlab.record(lab, "*.weights") as before:
        model(X, X, X)
    with (
        attnlab.edit(lab, attnlab.CutEdge(query=3, key=1)),
        attnlab.record(lab, "*.weights") as after,
    ):
        model(X, X, X)
    site = "layers.0.attention.weights"
    moved = (before[site] - after[site]).abs().amax((0, 1, 3)) > 1e-6
    assert moved.nonzero().flatten().tolist() == [3]
    assert float(after[site][:, :, 3, 1].max()) == 0.0
