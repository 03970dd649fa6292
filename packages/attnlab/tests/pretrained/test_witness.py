"""The witness: the weights that are shown are the matrix that multiplies the values, whatever lies
between it and the softmax; and a softmax that mixes no tokens is not taken for attention."""

import pytest
import torch
from parts.planting import planted
from torch import Tensor, nn

import attnlab
from attnlab.errors import CouldNotRun
from tests.pretrained.written import Layers, SoftmaxAttention, X

TRIL = torch.ones(6, 6).tril()


class Masked(SoftmaxAttention):
    """The mask multiplies the weights, which are normalized again."""

    def weights(self, query: Tensor, key: Tensor) -> Tensor:
        weights = super().weights(query, key) * TRIL
        return weights / weights.sum(-1, keepdim=True)


class MaskedInPlace(SoftmaxAttention):
    """The same, in place."""

    def weights(self, query: Tensor, key: Tensor) -> Tensor:
        weights = super().weights(query, key)
        weights *= TRIL
        weights[..., 0, 0] = 2.0
        return weights


class TopTwo(SoftmaxAttention):
    """Only the two largest weights stay."""

    def weights(self, query: Tensor, key: Tensor) -> Tensor:
        weights = super().weights(query, key)
        top = weights.topk(2, -1)
        return torch.zeros_like(weights).scatter(-1, top.indices, top.values)


class AboveThreshold(SoftmaxAttention):
    """Weights below the second largest are set to zero."""

    def weights(self, query: Tensor, key: Tensor) -> Tensor:
        weights = super().weights(query, key)
        return weights.masked_fill(weights < weights.topk(2, -1).values[..., -1:], 0.0)


class Talking(SoftmaxAttention):
    """Heads are mixed by a layer after the softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.talk = nn.Linear(4, 4)

    def weights(self, query: Tensor, key: Tensor) -> Tensor:
        return self.talk(super().weights(query, key).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class TalkingByEinsum(Talking):
    """Heads are mixed by an einsum after the softmax."""

    def weights(self, query: Tensor, key: Tensor) -> Tensor:
        return torch.einsum(
            "bhij,gh->bgij", SoftmaxAttention.weights(self, query, key), self.talk.weight
        )


class Gated(SoftmaxAttention):
    """A gate multiplies the weights."""

    def weights(self, query: Tensor, key: Tensor) -> Tensor:
        return super().weights(query, key) * (key @ query.mT).sigmoid()


class Difference(SoftmaxAttention):
    """The difference of two softmaxes mixes the tokens."""

    def weights(self, query: Tensor, key: Tensor) -> Tensor:
        return super().weights(query, key) - 0.3 * super().weights(key, query)


class Turned(SoftmaxAttention):
    """Keys share themselves out among queries."""

    def weights(self, query: Tensor, key: Tensor) -> Tensor:
        return super().weights(query, key).mT


class Selected(SoftmaxAttention):
    """Scores are selected before the softmax, so that its weights are what mixes the tokens."""

    def weights(self, query: Tensor, key: Tensor) -> Tensor:
        scores = query @ key.mT / 2
        return scores.masked_fill(scores < scores.topk(2, -1).values[..., -1:], -1e9).softmax(-1)


CHANGED = [
    Masked, MaskedInPlace, TopTwo, AboveThreshold, Talking, TalkingByEinsum, Gated, Difference,
    Turned,
]  # fmt: skip


@torch.no_grad()
def _check_shown(kind: type[SoftmaxAttention]) -> None:
    model = Layers(kind).eval()
    lab, plain, x = attnlab.load(model, example=(X,)), model(X), X
    with attnlab.record(lab, "*") as recording:
        assert torch.equal(model(X), plain)
    for number, layer in enumerate(model.layers):
        query, key, value = layer.parts(x)
        weights = layer.weights(query, key)
        part = f"layers.{number}.attention"
        assert torch.equal(recording[f"{part}.weights"], weights)
        assert torch.allclose(recording[f"{part}.value"], value, atol=1e-6)
        assert torch.allclose(weights @ value, recording[f"{part}.heads"], atol=1e-6)
        assert recording.witness()[part] < 1e-6
        x = x + layer(x)


@pytest.mark.parametrize("kind", [SoftmaxAttention, Selected, *CHANGED])
def test_the_matrix_that_multiplies_the_values_is_shown(kind: type[SoftmaxAttention]) -> None:
    _check_shown(kind)


@torch.no_grad()
def test_an_edit_of_weights_that_are_shown_at_the_product_reaches_the_values() -> None:
    model = Layers(Masked).eval()
    lab, plain = attnlab.load(model, example=(X,)), model(X)
    even = attnlab.edits.UniformPattern(site="layers.1.attention", head=0)
    with attnlab.edit(lab, even), attnlab.record(lab, "*.heads") as recording:
        assert not torch.equal(model(X), plain)
    value = model.layers[1].parts(X + model.layers[0](X))[2]
    even = TRIL / TRIL.sum(-1, keepdim=True)  # over what the model's mask leaves
    assert torch.allclose(
        recording["layers.1.attention.heads"][:, 0], even @ value[:, 0], atol=1e-6
    )


def test_an_edit_of_values_and_the_gradient_of_values_reach_attention_that_is_written_out() -> None:
    model = Layers(Masked).eval()
    lab, part = attnlab.load(model, example=(X,)), "layers.1.attention"
    plain = model(X)
    with attnlab.record(lab, (f"{part}.value", f"{part}.heads"), gradients=True) as recording:
        output = model(X)
        assert torch.equal(output, plain)
        output.sum().backward()
    weights = model.layers[1].weights(*model.layers[1].parts(X + model.layers[0](X))[:2])
    expected = weights.mT @ recording.gradient(f"{part}.heads")
    assert torch.allclose(recording.gradient(f"{part}.value"), expected, atol=1e-6)
    zero = attnlab.edits.ZeroValue(site=part, head=2)
    with torch.no_grad(), attnlab.edit(lab, zero), attnlab.record(lab, "*.heads") as recording:
        model(X)
    assert float(recording[f"{part}.heads"][:, 2].abs().max()) == 0.0
    assert float(recording[f"{part}.heads"][:, 1].abs().min()) > 0.0


def test_a_witness_moves_with_an_edit_of_heads_and_needs_all_three() -> None:
    lab = attnlab.load(Layers(Masked).eval(), example=(X,))
    zeroed = attnlab.ZeroHead(layer=1, head=0)
    with torch.no_grad(), attnlab.edit(lab, zeroed), attnlab.record(lab, "*") as recording:
        lab(X)
    found = recording.witness()
    assert found["layers.0.attention"] < 1e-6
    assert found["layers.1.attention"] > 1e-3
    with attnlab.record(lab, "*.weights") as recording:
        lab(X)
    with pytest.raises(attnlab.errors.WrongUsage, match="needs weights, values and heads"):
        recording.witness()


class Sometimes(SoftmaxAttention):
    """A mask after the softmax that comes in some passes only."""

    mask: Tensor | None = None
    in_place = False

    def weights(self, query: Tensor, key: Tensor) -> Tensor:
        weights = super().weights(query, key)
        if self.mask is None:
            return weights
        return weights.mul_(self.mask) if self.in_place else weights * self.mask


@torch.no_grad()
@pytest.mark.parametrize("in_place", [False, True])
def test_weights_that_are_changed_in_a_later_pass_alone_are_refused_there(
    *, in_place: bool
) -> None:
    model = Layers(Sometimes).eval()
    lab = attnlab.load(model, example=(X,))
    model.layers[1].mask, model.layers[1].in_place = TRIL, in_place
    with (
        pytest.raises(CouldNotRun, match="this pass changes the weights"),
        attnlab.record(lab, "*.weights"),
    ):
        model(X)
    with attnlab.record(lab, "*.heads") as recording:  # no weights are shown
        model(X)
    assert len(recording) == 2


def test_dropout_in_training_changes_no_weights_that_are_shown() -> None:
    class Dropping(SoftmaxAttention):
        def weights(self, query: Tensor, key: Tensor) -> Tensor:
            return nn.functional.dropout(super().weights(query, key), 0.5, training=self.training)

    model = Layers(Dropping)
    lab = attnlab.load(model, example=(X,))
    with torch.no_grad(), attnlab.record(lab, "*.weights") as recording:
        model(X)
    sums = recording["layers.1.attention.weights"].sum(-1)
    assert torch.allclose(sums, torch.ones_like(sums))


class OverFeatures(SoftmaxAttention):
    """Linear attention: q and k have a softmax each, and no weights over tokens exist."""

    def mix(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return query.softmax(-1) @ (key.softmax(-2).mT @ value)


class OverFeaturesByEinsum(SoftmaxAttention):
    """The same with tokens on the last axis."""

    def mix(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        context = torch.einsum("bhdn,bhen->bhde", key.mT.softmax(-1), value.mT)
        return torch.einsum("bhde,bhdn->bhen", context, query.mT.softmax(-2)).mT


class KeysAlone(SoftmaxAttention):
    """A softmax over the tokens of every feature of the keys."""

    def mix(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return query @ (key.mT.softmax(-1) @ value)


class Experts(SoftmaxAttention):
    """A router and four experts."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(4, 4)
        self.experts = nn.ModuleList([nn.Linear(4, 4) for _ in range(4)])

    def routed(self, query: Tensor) -> Tensor:
        shares = self.router(query).softmax(-1)
        outputs = torch.stack([expert(query) for expert in self.experts], -2)
        return (shares.unsqueeze(-2) @ outputs).squeeze(-2)

    def mix(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return self.routed(query)


class AttentionAndExperts(Experts):
    """Attention beside a router, whose softmax comes first."""

    def mix(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return self.routed(query) + SoftmaxAttention.mix(self, query, key, value)


class Windows(SoftmaxAttention):
    """Every query has a window of three keys of its own."""

    def mix(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        keys, values = (
            nn.functional.pad(part, (0, 0, 1, 1)).unfold(2, 3, 1).mT for part in (key, value)
        )
        weights = (query.unsqueeze(-2) @ keys.mT).squeeze(-2).softmax(-1)
        return (weights.unsqueeze(-2) @ values).squeeze(-2)


class Codebook(SoftmaxAttention):
    """A softmax over a table of the model's own."""

    def __init__(self) -> None:
        super().__init__()
        self.choose, self.table = nn.Linear(4, 6), nn.Parameter(torch.randn(6, 4))

    def mix(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return self.choose(query).softmax(-1) @ self.table


class Channels(SoftmaxAttention):
    """Features are compared and mixed, in every token alike."""

    def mix(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        query, key = (nn.functional.normalize(part.mT, dim=-1) for part in (query, key))
        return ((query @ key.mT).softmax(-1) @ value.mT).mT


class ScaledChannels(SoftmaxAttention):
    """The same, with scaled values, by einsum."""

    def mix(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        weights = torch.einsum("bhnd,bhne->bhde", query, key).softmax(-1)
        return torch.einsum("bhde,bhne->bhnd", weights, value)

    def parts(self, x: Tensor) -> list[Tensor]:
        made = (2 * part(x) for part in (self.query, self.key, self.value))
        return [part.unflatten(-1, (4, 4)).transpose(1, 2) for part in made]


class FusedChannels(SoftmaxAttention):
    """The same by fused attention."""

    def mix(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return nn.functional.scaled_dot_product_attention(query.mT, key.mT, value.mT).mT


class Slots(SoftmaxAttention):
    """A soft mixture of experts: slots are filled from the tokens, and shared out to them."""

    def mix(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        x = query.transpose(1, 2).flatten(2)
        scores = self.key(x)[..., :5]
        slots = self.value(scores.softmax(1).mT @ x)
        return (scores.softmax(2) @ slots).unflatten(-1, (4, 4)).transpose(1, 2)


NONE = [
    (Channels, "features of a token"),
    (ScaledChannels, "features of a token"),
    (FusedChannels, "features of a token"),
    (Slots, "soft mixture of experts"),
    (OverFeatures, "over features"),
    (OverFeaturesByEinsum, "linear attention"),
    (KeysAlone, "linear attention"),
    (Experts, "experts or windows"),
    (Windows, "experts or windows"),
    (Codebook, "not tokens"),
]


@pytest.mark.parametrize(("kind", "words"), NONE)
def test_a_softmax_that_mixes_no_tokens_is_refused_and_the_reason_said(
    kind: type[SoftmaxAttention], words: str
) -> None:
    with pytest.raises(CouldNotRun, match=f"no attention was found .* {words}"):
        attnlab.load(Layers(kind).eval(), example=(X,))


@torch.no_grad()
def test_a_router_beside_attention_is_not_taken_for_it() -> None:
    model = Layers(AttentionAndExperts).eval()
    lab = attnlab.load(model, example=(X,))
    with attnlab.record(lab, "*.weights") as recording:
        model(X)
    query, key, _ = model.layers[0].parts(X)
    assert torch.equal(
        recording["layers.0.attention.weights"],
        SoftmaxAttention.weights(model.layers[0], query, key),
    )
    assert len(recording) == 2


FAULTS = [
    ("tracing", "weights.differ_from(product.matrix.reshape(shape))", "False", Masked),
    ("backends.products", "chosen[..., places, start + places]", "chosen[..., 0, 0]", Masked),
    ("tracing", "self.copied.reshape(", "self.made[0].reshape(", MaskedInPlace),
    ("backends.functions", "point.shows_product", "False", Masked),
]


@pytest.mark.parametrize(("module", "old", "new", "kind"), FAULTS)
def test_a_planted_fault_in_what_is_shown_is_seen(
    module: str, old: str, new: str, kind: type[SoftmaxAttention]
) -> None:
    with (
        planted(f"attnlab.pretrained.{module}", old, new),
        pytest.raises((AssertionError, CouldNotRun)),
    ):
        _check_shown(kind)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("if self._lineage.is_product(product.value)", "if False"),
        ("if self._lineage.is_weight(product.value)", "if False"),
        ("reason is None and shape is None", "False"),
        ("len(others) < len(trace.attentions)", "False"),
        ("if self._lineage.is_over_features(product", "if False and (product"),
        ("any(_are_same_numbers(weights.scores", "any(False and (weights.scores"),
    ],
)
def test_a_softmax_that_is_wrongly_taken_for_attention_is_seen(old: str, new: str) -> None:
    def check() -> None:
        for kind, words in NONE:
            test_a_softmax_that_mixes_no_tokens_is_refused_and_the_reason_said(kind, words)

    with (
        planted("attnlab.pretrained.tracing", old, new),
        pytest.raises((AssertionError, pytest.fail.Exception)),
    ):
        check()
