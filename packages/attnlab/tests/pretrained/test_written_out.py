"""Attention that a model writes out itself."""

from fnmatch import fnmatch

import pytest
import torch
from torch import Tensor, nn

import attnlab
from attnlab.errors import CouldNotRun, WrongUsage
from tests.planting import noticed
from tests.pretrained.written import Attention, Layers, SoftmaxAttention, X
from tests.sampling import first_of_each

TRIL = torch.ones(6, 6).tril()
usual = SoftmaxAttention.weights


def kind(name, **methods):
    """A kind of attention, written out; `usual` gives its usual weights."""
    return type(name, (SoftmaxAttention,), methods)


def opened(kind):
    """Two layers of a kind, and their hook points."""
    model = Layers(kind).eval()
    return model, attnlab.load(model, example=(X,))


def check_weights(kind):
    """The weights of both layers are shown, and are those that the kind makes."""
    model, lab = opened(kind)
    recording = attnlab.record(lab, (X,), "*.weights")
    assert len(recording) == 2
    layer = model.layers[0]
    expected = layer.weights(*layer.parts(X)[:2])
    assert torch.equal(recording["layers.0.attention.weights"], expected)


def one_head(query, key, value):
    return (query @ key.mT).softmax(-1) @ value


class Masked(SoftmaxAttention):
    """The mask multiplies the weights, which are normalized again."""

    def weights(self, query, key):
        weights = super().weights(query, key) * TRIL
        return weights / weights.sum(-1, keepdim=True)


class MaskedInPlace(SoftmaxAttention):
    """The same, in place."""

    def weights(self, query, key):
        weights = super().weights(query, key)
        weights *= TRIL
        weights[..., 0, 0] = 2.0
        return weights


class MaskedUnseen(SoftmaxAttention):
    """The same, behind the back of the tensor's version."""

    def weights(self, query, key):
        weights = super().weights(query, key)
        weights.data.mul_(TRIL)
        return weights


class Talking(SoftmaxAttention):
    """Heads are mixed by a layer after the softmax."""

    def __init__(self):
        super().__init__()
        self.talk = nn.Linear(4, 4)

    def weights(self, query, key):
        return self.talk(super().weights(query, key).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


Turned = kind(
    "Turned", weights=lambda self, q, k: usual(self, q, k).mT
)  # keys share themselves out


SinkLeftOut = kind(
    "SinkLeftOut",
    weights=lambda self, q, k: nn.functional.pad(q @ k.mT, (0, 1)).softmax(-1)[..., :-1],
)
InPlaceByNothing = kind(
    "InPlaceByNothing",
    weights=lambda self, q, k: usual(self, q, k).masked_fill_(torch.zeros(6, 6).bool(), 0.0),
)


class Selected(SoftmaxAttention):
    """Scores are selected before the softmax, so that its weights are what mixes the tokens."""

    def weights(self, query, key):
        scores = query @ key.mT / 2
        return scores.masked_fill(scores < scores.topk(2, -1).values[..., -1:], -1e9).softmax(-1)


Twice = kind("Twice", weights=lambda self, q, k: (once := usual(self, q, k)) @ once)
ValuesFirst = kind(
    "ValuesFirst", mix=lambda self, q, k, v: torch.einsum("bhjd,bhij->bhid", v, self.weights(q, k))
)


class ValuesTurned(SoftmaxAttention):
    """Values, (width, key), times weights, (key, query), as in attention over pictures."""

    def mix(self, query, key, value):
        weights = self.weights(query, key).flatten(0, 1)
        return torch.bmm(value.flatten(0, 1).mT, weights.permute(0, 2, 1)).mT.unflatten(0, (2, 4))


Named = kind("Named", mix=lambda self, q, k, v: torch.matmul(input=self.weights(q, k), other=v))


class BothFirst(SoftmaxAttention):
    """Both softmaxes run before the first product."""

    def mix(self, query, key, value):
        halves = [slice(2), slice(2, 4)]
        weights = [self.weights(query[:, half], key[:, half]) for half in halves]
        return torch.cat([w @ value[:, half] for w, half in zip(weights, halves, strict=True)], 1)


FewerQueries = kind(
    "FewerQueries",
    weights=lambda self, q, k: usual(self, q[:, :, :4], k).mT,
    mix=lambda self, q, k, v: self.weights(q, k) @ v[:, :, :4],
)


WEIGHTS = [
    Masked,
    MaskedInPlace,
    MaskedUnseen,
    Talking,
    Turned,
    SinkLeftOut,
    InPlaceByNothing,
    Selected,
]
PRODUCTS = [Twice, ValuesFirst, ValuesTurned, Named, BothFirst, FewerQueries]


@pytest.mark.parametrize("kind", [SoftmaxAttention, *WEIGHTS, *PRODUCTS])
@torch.no_grad()
def test_the_matrix_that_multiplies_the_values_is_shown_and_its_product_edited(kind):
    (model, lab), x = opened(kind), X
    plain = model(X)
    with attnlab.record(lab, "*") as recording:
        assert torch.equal(model(X), plain)
    assert max(recording.witness().values()) < 1e-6
    for number, layer in enumerate(model.layers):
        query, key, value = layer.parts(x)
        weights, values, heads = (
            torch.cat(
                [recording[site] for site in recording if fnmatch(site, f"*.{number}.*{end}")], 1
            )
            for end in ("weights", "value", "heads")
        )
        assert torch.equal(weights, layer.weights(query, key))
        assert torch.allclose(values, value[:, :, : values.shape[2]], atol=1e-6)
        assert torch.allclose(layer.mix(query, key, value), heads, atol=1e-6)
        x = x + layer(x)
    part = next(iter(recording.witness()))
    with attnlab.edit(lab, attnlab.ZeroHead(site=part, head=1)):
        zeroed = model(X)
    by_hand = model.layers[0].mix(*model.layers[0].parts(X)).clone()
    by_hand[:, 1] = 0.0
    x = X + model.layers[0].out(by_hand.transpose(1, 2).flatten(2))
    assert torch.allclose(zeroed, x + model.layers[1](x), atol=1e-6)


@torch.no_grad()
def test_an_edit_of_weights_that_are_shown_at_the_product_reaches_the_values():
    model, lab = opened(Masked)
    plain = model(X)
    even = attnlab.edits.UniformPattern(site="layers.1.attention", head=0)
    with attnlab.edit(lab, even), attnlab.record(lab, "*.heads") as recording:
        assert not torch.equal(model(X), plain)
    value = model.layers[1].parts(X + model.layers[0](X))[2]
    even = TRIL / TRIL.sum(-1, keepdim=True)  # over what the model's mask leaves
    heads = recording["layers.1.attention.heads"][:, 0]
    assert torch.allclose(heads, even @ value[:, 0], atol=1e-6)


def test_an_edit_of_values_and_the_gradient_of_values_reach_attention_that_is_written_out():
    (model, lab), part = opened(Masked), "layers.1.attention"
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


def test_a_witness_moves_with_an_edit_of_heads_and_needs_all_three():
    _, lab = opened(Masked)
    zeroed = attnlab.ZeroHead(layer=1, head=0)
    with torch.no_grad(), attnlab.edit(lab, zeroed), attnlab.record(lab, "*") as recording:
        lab(X)
    found = recording.witness()
    assert found["layers.0.attention"] < 1e-6
    assert found["layers.1.attention"] > 1e-3
    with pytest.raises(WrongUsage, match="needs weights, values and heads"):
        attnlab.record(lab, (X,), "*.weights").witness()


class Sometimes(SoftmaxAttention):
    """A mask after the softmax that comes in some passes only."""

    mask: Tensor | None = None
    in_place = False

    def weights(self, query, key):
        weights = super().weights(query, key)
        if self.mask is None:
            return weights
        return weights.mul_(self.mask) if self.in_place else weights * self.mask


@torch.no_grad()
@pytest.mark.parametrize("in_place", [False, True])
def test_weights_that_are_changed_in_a_later_pass_alone_are_refused_there(*, in_place):
    model, lab = opened(Sometimes)
    model.layers[1].mask, model.layers[1].in_place = TRIL, in_place
    with (
        pytest.raises(CouldNotRun, match="this pass changes the weights"),
        attnlab.record(lab, "*.weights"),
    ):
        model(X)
    with attnlab.record(lab, "*.heads") as recording:  # no weights are shown
        model(X)
    assert len(recording) == 2


def test_gradients_of_torch_func_pass_through_edits_of_attention_that_is_written_out():
    (model, lab), zero = opened(SoftmaxAttention), attnlab.ZeroHead(layer=1, head=2)
    x = X.clone().requires_grad_()
    with attnlab.edit(lab, zero):
        model(x).square().sum().backward()
        found = torch.func.grad(lambda x: model(x).square().sum())(X)
    assert torch.allclose(found, x.grad, atol=1e-6)
    with attnlab.edit(lab, zero), torch.no_grad():
        expected = model(X)
        assert torch.allclose(torch.vmap(lambda x: model(x[None])[0])(X), expected, atol=1e-6)


class OwnBackward(SoftmaxAttention):
    """Attention in a function that computes its gradients itself."""

    class Function(torch.autograd.Function):
        @staticmethod
        def forward(ctx, query, key, value):
            weights = (query @ key.mT / 2).softmax(-1)
            ctx.save_for_backward(query, key, value, weights)
            return weights @ value

        @staticmethod
        def backward(ctx, gradient):
            query, key, value, weights = ctx.saved_tensors
            of_weights = gradient @ value.mT
            of_scores = weights * (of_weights - (of_weights * weights).sum(-1, keepdim=True)) / 2
            return of_scores @ key, of_scores.mT @ query, weights.mT @ gradient

    def mix(self, query, key, value):
        return self.Function.apply(query, key, value)


def test_an_edit_inside_a_function_with_gradients_of_its_own_is_refused_where_they_are_asked_for():
    (model, lab), zero = opened(OwnBackward), attnlab.ZeroHead(layer=1, head=2)
    with (
        pytest.raises(CouldNotRun, match="own backward"),
        attnlab.edit(lab, zero),
    ):
        model(X)
    usual, of_usual = opened(SoftmaxAttention)
    with torch.no_grad():
        with attnlab.edit(lab, zero):
            found = model(X)
        with attnlab.edit(of_usual, zero):
            assert torch.equal(usual(X), found)


def test_dropout_in_training_changes_no_weights_that_are_shown():
    class Dropping(SoftmaxAttention):
        def weights(self, query, key):
            return nn.functional.dropout(super().weights(query, key), 0.5, training=self.training)

    model = Layers(Dropping)
    lab = attnlab.load(model, example=(X,))
    with torch.no_grad(), attnlab.record(lab, "*.weights") as recording:
        model(X)
    sums = recording["layers.1.attention.weights"].sum(-1)
    assert torch.allclose(sums, torch.ones_like(sums))


# Linear attention: no weights over tokens exist.
OverFeatures = kind(
    "OverFeatures", mix=lambda self, q, k, v: q.softmax(-1) @ (k.softmax(-2).mT @ v)
)


KeysAlone = kind("KeysAlone", mix=lambda self, q, k, v: q @ (k.mT.softmax(-1) @ v))


class Experts(SoftmaxAttention):
    """A router and four experts."""

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(4, 4)
        self.experts = nn.ModuleList([nn.Linear(4, 4) for _ in range(4)])

    def mix(self, query, key, value):
        shares = self.router(query).softmax(-1)
        outputs = torch.stack([expert(query) for expert in self.experts], -2)
        return (shares.unsqueeze(-2) @ outputs).squeeze(-2)


class AttentionAndExperts(Experts):
    """Attention beside a router, whose softmax comes first."""

    def mix(self, query, key, value):
        return super().mix(query, key, value) + SoftmaxAttention.mix(self, query, key, value)


class Windows(SoftmaxAttention):
    """Every query has a window of three keys of its own."""

    def mix(self, query, key, value):
        keys, values = (
            nn.functional.pad(part, (0, 0, 1, 1)).unfold(2, 3, 1).mT for part in (key, value)
        )
        weights = (query.unsqueeze(-2) @ keys.mT).squeeze(-2).softmax(-1)
        return (weights.unsqueeze(-2) @ values).squeeze(-2)


class Codebook(SoftmaxAttention):
    """A softmax over a table of the model's own."""

    def __init__(self):
        super().__init__()
        self.choose, self.table = nn.Linear(4, 6), nn.Parameter(torch.randn(6, 4))

    def mix(self, query, key, value):
        return self.choose(query).softmax(-1) @ self.table


class Channels(SoftmaxAttention):
    """Features are compared and mixed, in every token alike."""

    def mix(self, query, key, value):
        query, key = (nn.functional.normalize(part.mT, dim=-1) for part in (query, key))
        return ((query @ key.mT).softmax(-1) @ value.mT).mT


class ScaledChannels(SoftmaxAttention):
    """The same, with scaled values, by einsum."""

    def mix(self, query, key, value):
        weights = torch.einsum("bhnd,bhne->bhde", query, key).softmax(-1)
        return torch.einsum("bhde,bhne->bhnd", weights, value)

    def parts(self, x):
        made = (2 * part(x) for part in (self.query, self.key, self.value))
        return [part.unflatten(-1, (4, 4)).transpose(1, 2) for part in made]


class Slots(SoftmaxAttention):
    """A soft mixture of experts: slots are filled from the tokens, and shared out to them."""

    def mix(self, query, key, value):
        x = query.transpose(1, 2).flatten(2)
        scores = self.key(x)[..., :5]
        slots = self.value(scores.softmax(1).mT @ x)
        return (scores.softmax(2) @ slots).unflatten(-1, (4, 4)).transpose(1, 2)


MeanOfHeads = kind(
    "MeanOfHeads", mix=lambda self, q, k, v: self.weights(q, k).mean(1, keepdim=True) @ v
)
BySum = kind(
    "BySum", mix=lambda self, q, k, v: (self.weights(q, k).unsqueeze(-1) * v.unsqueeze(2)).sum(3)
)
Sigmoid = kind("Sigmoid", weights=lambda self, q, k: (q @ k.mT).sigmoid())
Mapped = kind("Mapped", mix=lambda self, *parts: torch.vmap(one_head)(*parts))


REFUSED: list[tuple[type[Attention], str]] = [
    (Channels, "features of a token"),
    (ScaledChannels, "features of a token"),
    (Slots, "soft mixture of experts"),
    (OverFeatures, "over features"),
    (KeysAlone, "linear attention"),
    (Experts, "experts or windows"),
    (Windows, "experts or windows"),
    (Codebook, "not tokens"),
    # met, and cannot be shown
    (MeanOfHeads, r"a softmax over the last axis of \(2, 4, 6, 6\) without a product"),
    (BySum, r"a softmax over the last axis of \(2, 4, 6, 6\) without a product"),
    (Sigmoid, "sigmoid of a product of two activations"),
    (Mapped, "operations under torch.vmap"),
]


@pytest.mark.parametrize(("kind", "words"), REFUSED)
def test_what_mixes_no_tokens_or_cannot_be_shown_is_refused_and_the_reason_said(kind, words):
    with pytest.raises(CouldNotRun, match=f"no attention was found .* {words}"):
        opened(kind)


class RelativeValues(SoftmaxAttention):
    """The weights multiply the values and a vector for each distance too (Shaw et al. 2018)."""

    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.randn(11, 4))

    def of_distances(self, weights):
        distances = torch.arange(6) - torch.arange(6)[:, None]
        return torch.einsum("bhij,ijd->bhid", weights, self.table[distances + 5])

    def mix(self, query, key, value):
        weights = self.weights(query, key)
        return weights @ value + self.of_distances(weights)


class RelativeFirst(RelativeValues):
    """The same, in the other order."""

    def mix(self, query, key, value):
        weights = self.weights(query, key)
        return self.of_distances(weights) + weights @ value


@pytest.mark.parametrize("kind", [RelativeValues, RelativeFirst])
@torch.no_grad()
def test_a_product_that_is_not_all_of_a_head_is_not_shown_as_its_output(kind):
    check_weights(kind)
    model, lab = opened(kind)
    with (
        pytest.raises(WrongUsage, match="no 'heads'"),
        attnlab.edit(lab, attnlab.ZeroHead(layer=0, head=1)),
    ):
        pass
    cut = attnlab.CutEdge(layer=0, head=1, query=3, key=2, renormalize=False)
    with attnlab.edit(lab, cut):
        edited = model(X)
    assert float((edited - model(X))[:, 3].abs().max()) > 1e-4


class LengthFirst(nn.Module):
    """Attention over (length, batch, width), with the heads joined to the batch."""

    def __init__(self):
        super().__init__()
        self.project, self.out = nn.Linear(16, 48), nn.Linear(16, 16)

    def weights(self, x):
        length, batch, _ = x.shape
        joined = (t.reshape(length, batch * 4, 4) for t in self.project(x).chunk(3, -1))
        query, key, value = (part.transpose(0, 1) for part in joined)
        blocked = torch.full((length, length), float("-inf")).triu(1)
        return (query @ key.mT / 2 + blocked).softmax(-1), value

    def forward(self, x):
        weights, value = self.weights(x)
        return self.out((weights @ value).transpose(0, 1).reshape(x.shape))


@pytest.mark.parametrize("sizes", [(4, 2), (2, 4), (4, 4)])  # 8 rows are 2 · 4 and 4 · 2
@torch.no_grad()
def test_heads_that_are_joined_to_a_batch_on_the_second_axis_are_told_from_inputs(sizes):
    torch.manual_seed(0)
    model, x = LengthFirst().eval(), torch.randn(*sizes, 16)
    lab, site = attnlab.load(model, example=(x,)), "layers.0.attention"
    with attnlab.record(lab, f"{site}.weights") as recording:
        plain = model(x)
    weights, value = model.weights(x)
    assert torch.equal(recording[f"{site}.weights"], weights.unflatten(0, (sizes[1], 4)))
    heads = (weights @ value).unflatten(0, (sizes[1], 4))
    heads[1, 2] = 0.0
    expected = model.out(heads.permute(2, 0, 1, 3).reshape(x.shape))
    with attnlab.edit(lab, attnlab.ZeroHead(layer=0, head=2, row=1)):
        edited = model(x)
    assert torch.allclose(edited, expected, atol=1e-6)
    assert torch.equal(edited[:, 0], plain[:, 0])


@torch.no_grad()
def test_batch_first_cross_attention_whose_queries_do_not_meet_is_not_taken_for_length_first():
    class Cross(SoftmaxAttention):
        def forward(self, x, memory):
            joined = (self.query(x), self.key(memory), self.value(memory))
            query, key, value = (
                part.unflatten(-1, (4, 4)).transpose(1, 2).flatten(0, 1) for part in joined
            )
            self.seen = (query @ key.mT).softmax(-1)
            return self.out((self.seen @ value).unflatten(0, (-1, 4)).transpose(1, 2).flatten(2))

    torch.manual_seed(0)
    model, memory = Cross().eval(), torch.randn(2, 5, 16)
    lab = attnlab.load(model, example=(X, memory))
    with attnlab.record(lab, "*.weights") as recording:
        model(X, memory)
    (site,) = recording
    assert torch.equal(recording[site], model.seen.unflatten(0, (2, 4)))


@torch.no_grad()
@pytest.mark.parametrize("size", [1e-20, 0.0])
def test_heads_that_are_zeros_or_too_small_to_count_load(size):
    class Faint(SoftmaxAttention):
        def __init__(self):
            super().__init__()
            self.value.weight.data.mul_(size)
            self.value.bias.data.zero_()

    check_weights(Faint)


@torch.no_grad()
def test_heads_that_the_output_never_hears_of_are_refused():
    class Deaf(SoftmaxAttention):
        def forward(self, x):
            super().forward(x)
            return self.out(x)

    with pytest.raises(CouldNotRun, match="nothing that the model returns"):
        opened(Deaf)


@torch.no_grad()
def test_a_router_beside_attention_is_not_taken_for_it():
    check_weights(AttentionAndExperts)


def test_a_head_whose_zeros_make_nan_is_no_head_without_effect():
    class Divided(SoftmaxAttention):
        def mix(self, query, key, value):
            ones = torch.ones_like(value[..., :1])
            sums = self.weights(query, key) @ torch.cat((value, ones), -1)
            return sums[..., :-1] / sums[..., -1:]

    assert opened(Divided)[1].backends


def test_copies_of_a_model_are_refused_by_name():
    with pytest.raises(WrongUsage, match=r"DataParallel runs copies .* model\.module"):
        attnlab.load(nn.DataParallel(Layers(SoftmaxAttention)), example=(X,))


class Prefix(SoftmaxAttention):
    """Two keys of the model's own come before those of the tokens."""

    def mix(self, query, key, value):
        own = self.out.weight.reshape(1, 4, 16, 4)[:, :, :2].expand(len(query), -1, -1, -1)
        return super().mix(query, torch.cat((own, key), 2), torch.cat((own, value), 2))


First = kind(
    "First",  # the first token alone has a query, as in class attention
    mix=lambda self, q, k, v: torch.cat((usual(self, q[:, :, :1], k) @ v, v[:, :, 1:]), 2),
)
Pieces = kind(
    "Pieces",  # queries come in two pieces
    mix=lambda self, q, k, v: torch.cat([usual(self, each, k) @ v for each in q.split(3, 2)], 2),
)


@pytest.mark.parametrize("kind", [Prefix, First, Pieces])
def test_queries_are_not_counted_from_the_end_where_their_positions_are_unknown(kind):
    model, lab = opened(kind)
    with (
        pytest.raises(WrongUsage, match="which positions of the input the queries are is unknown"),
        attnlab.edit(lab, attnlab.CutEdge(query=5, key=2)),
    ):
        model(X)


@torch.no_grad()
@pytest.mark.parametrize("added", ["add_bias_kv", "add_zero_attn"])
def test_keys_that_multi_head_attention_adds_at_the_end_move_no_query(added):
    torch.manual_seed(0)
    model = nn.MultiheadAttention(16, 4, batch_first=True, **{added: True}).eval()
    lab, site = attnlab.load(model, example=(X, X, X)), "layers.0.attention.weights"
    before = attnlab.record(lab, (X, X, X), site)
    with attnlab.edit(lab, attnlab.CutEdge(query=3, key=1)):
        after = attnlab.record(lab, (X, X, X), site)
    moved = (before[site] - after[site]).abs().amax((0, 1, 3)) > 1e-6
    assert moved.nonzero().flatten().tolist() == [3]
    assert float(after[site][:, :, 3, 1].max()) == 0.0


FAULTS = [  # of a kind that is shown, under which it is not
    ("tracing", "weights.differ_from(product.matrix.reshape(shape))", "False", Masked),
    ("tracing", "self.copied.reshape(", "self.made[0].reshape(", MaskedUnseen),
    ("tracing", "version_of(self.made[0]) != self.version", "False", InPlaceByNothing),
    ("backends.products", "or _is_of_some_keys(output, weights)", "", SinkLeftOut),
    ("backends.functions", "point.shows_product", "False", Masked),
    ("backends.products", "chosen[..., places, start + places]", "chosen[..., 0, 0]", Masked),
    ("backends.products", "self.place == 1 and", "False and", ValuesTurned),
    ("backends.products", "len(places) != 1", "not places", Twice),
    ("backends.products", "for name in _NAMES if", "for name in () if", Named),
    ("backends.products", "enumerate(factors)", "enumerate(factors[:1])", ValuesFirst),
]


@pytest.mark.parametrize(
    ("module", "old", "new", "kind"), first_of_each(FAULTS, lambda fault: fault[0])
)
def test_a_planted_fault_in_what_is_shown_is_seen(module, old, new, kind):
    with noticed(f"pretrained.{module}", old, new):
        test_the_matrix_that_multiplies_the_values_is_shown_and_its_product_edited(kind)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("if self._lineage.is_product(product.value)", "if False"),
        ("if self._lineage.is_weight(product.value)", "if False"),
        ("reason is None and shape is None", "False"),
        ("len(others) < len(trace.attentions)", "False"),
        ("if self._lineage.is_over_features(product", "if False and (product"),
        ("if is_one_of(weights.scores, self._across)", "if False"),
    ],
)
def test_a_softmax_that_is_wrongly_taken_for_attention_is_seen(old, new):
    with noticed("pretrained.tracing", old, new):
        for kind, words in REFUSED:
            test_what_mixes_no_tokens_or_cannot_be_shown_is_refused_and_the_reason_said(kind, words)
