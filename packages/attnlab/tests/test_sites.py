"""The hook point: what a hook sees and changes, and that looking changes nothing."""

import copy
import itertools

import pytest
import torch
from torch import nn

from attnlab.errors import WrongUsage
from attnlab.parts.attend import attention_scores, attention_weights
from attnlab.parts.heads import share_heads
from attnlab.sites import (
    SITES,
    AttentionCall,
    Hook,
    explicit_attention,
    installed,
    matches,
    site_names,
)
from tests.random_models import make_block
from tests.sampling import sampled

POSITIONS = ("none", "rotary", "alibi")


class Recorder(Hook):
    """Keeps what it sees of the sites it wants, and returns it (or what `change` says)."""

    def __init__(self, wanted=None, change=lambda site, value: value):
        self.wanted, self.change, self.seen = wanted, change, {}

    def wants(self, site):
        return self.wanted is None or site in self.wanted

    def visit(self, site, value):
        assert site not in self.seen, f"{site} was visited twice"
        self.seen[site] = value.detach().clone()
        return self.change(site, value)


class Stack(nn.Module):
    """Two blocks, so that names have paths."""

    def __init__(self, position="none", **options):
        super().__init__()
        options |= {"num_kv_heads": 2, "dtype": torch.float32}
        blocks = [make_block(position=position, **options) for _ in range(2)]
        self.layers = nn.ModuleList(blocks)

    def forward(self, x, mask="causal", memory=None):
        seen = None if memory is None else torch.ones(1, 7).bool()
        for layer in self.layers:
            x = layer(x, mask=mask, memory=memory, memory_mask=seen)
        return x


def tokens(length=5, seed=0):
    return torch.randn(2, length, 28, generator=torch.Generator().manual_seed(seed))


def memory_of(is_decoder):
    return tokens(7, seed=1) if is_decoder else None


VARIANTS = itertools.product(POSITIONS, ("pre", "post", "none"), (False, True))
FEW = [("none", "pre", True), ("rotary", "post", True), ("alibi", "none", False)]


@pytest.mark.parametrize("variant", sampled(VARIANTS, FEW), ids=str)
def test_looking_at_every_site_changes_nothing(variant):
    position, norm_place, is_decoder = variant
    model = Stack(position, norm_place=norm_place, is_decoder=is_decoder)
    arguments = {"memory": memory_of(is_decoder)}
    weights = {name for name in site_names(model) if name.endswith("weights")}
    with installed(model, Recorder(weights)):  # the same path, with as little looked at as it needs
        explicit = model(tokens(), **arguments)
    recorder = Recorder()
    with installed(model, recorder):
        watched = model(tokens(), **arguments)
    assert torch.equal(watched, explicit)
    assert sorted(recorder.seen) == sorted(site_names(model))
    for one in (explicit, watched):  # the fused kernel is another computation of the same
        assert one.isfinite().all()
        assert (one - model(tokens(), **arguments)).abs().max() < 1e-5


def test_looking_past_the_weights_leaves_the_fused_kernel_in_place_and_changes_nothing():
    model = Stack(is_decoder=True)
    plain = model(tokens(), memory=memory_of(True))
    wanted = {name for name in site_names(model) if not name.endswith(("weights", "scores"))}
    recorder = Recorder(wanted)
    with installed(model, recorder):
        assert torch.equal(model(tokens(), memory=memory_of(True)), plain)
    assert set(recorder.seen) == wanted


def test_every_site_has_a_word_in_the_vocabulary_and_its_path():
    model = Stack(is_decoder=True)
    names = site_names(model)
    assert {name.rsplit(".", 1)[-1] for name in names} <= set(SITES)
    assert len(names) == len(set(names))
    assert "layers.1.cross_attention.weights" in names
    assert "layers.0.feed_forward.hidden" in names
    assert "layers.0.residual_between" in names
    assert "layers.0.residual_after_cross" in names
    assert "layers.0.residual_after_cross" not in site_names(Stack())


def test_values_have_the_shapes_the_vocabulary_gives():
    model, recorder = Stack(is_decoder=True), Recorder()
    with installed(model, recorder):
        model(tokens(), memory=memory_of(True))
    shapes = {name.removeprefix("layers.0."): tuple(v.shape) for name, v in recorder.seen.items()}
    expected = {
        (2, 4, 5, 7): ["attention.query", "attention.heads", "cross_attention.weights"],
        (2, 2, 5, 7): ["attention.key", "attention.value"],
        (2, 4, 5, 5): ["attention.weights", "attention.scores"],
        (2, 5, 28): ["attention.output", "residual_before", "residual_after"],
        (2, 5, 31): ["feed_forward.hidden"],
    }
    for shape, names in expected.items():
        assert {shapes[name] for name in names} == {shape}


def test_the_sites_fit_together():
    model, recorder = Stack("alibi"), Recorder()
    with installed(model, recorder):
        output = model(tokens())
    seen = recorder.seen
    assert torch.equal(
        seen["layers.0.attention.weights"], seen["layers.0.attention.scores"].softmax(-1)
    )
    blocked = torch.ones(5, 5).triu(1).bool()
    assert (seen["layers.0.attention.scores"][..., blocked] == float("-inf")).all()
    assert (seen["layers.0.attention.mask"][..., blocked] == float("-inf")).all()
    added = seen["layers.0.residual_before"] + seen["layers.0.attention.output"]
    assert torch.equal(added, seen["layers.0.residual_between"])
    assert torch.equal(seen["layers.0.residual_after"], seen["layers.1.residual_before"])
    assert torch.equal(seen["layers.1.residual_after"], output)


@pytest.mark.parametrize(
    "site",
    sorted(set(site_names(Stack())) - {"layers.0.attention.mask", "layers.1.attention.mask"}),
)
def test_what_an_hook_returns_is_what_the_model_goes_on_with(site):
    model = Stack()
    plain = model(tokens())

    def scramble(_, value):
        return value.flip(-1) if value.isfinite().all() else value.roll(1, 0)

    with installed(model, Recorder({site}, scramble)):
        assert (model(tokens()) - plain).abs().max() > 1e-3
    assert torch.equal(model(tokens()), plain)


def test_a_copy_made_under_a_hook_is_another_model():
    model, recorder = Stack(), Recorder()
    with installed(model, recorder):
        copy.deepcopy(model)(tokens())
    assert recorder.seen == {}


def test_one_hook_stands_at_a_door_once():
    model, recorder = Stack(), Recorder()
    with installed(model, recorder):
        again = installed(model.layers[1], recorder)
        with pytest.raises(WrongUsage, match="already installed at 'Block'"), again:
            pass
        model(tokens())
    assert set(recorder.seen) == set(site_names(model))


@pytest.mark.parametrize("changes", [False, True])
def test_only_who_may_change_the_weights_opens_the_attention(changes, monkeypatch):
    model, calls = Stack(), []
    looker = Recorder({"layers.0.attention.weights"})
    looker.changes = changes
    looker.watch = lambda part, call: calls.append((part, call))
    plain = model(tokens())
    with installed(model, looker):
        output = model(tokens())
    assert [part for part, _ in calls] == ["layers.0.attention", "layers.1.attention"]
    assert [call.is_explicit for _, call in calls] == [changes, False]
    assert torch.equal(output, plain) is not changes
    first = calls[0][1]
    assert isinstance(first, AttentionCall)
    weights = attention_weights(
        attention_scores(first.query, share_heads(first.key, 4), first.mask, scale=first.scale)
    )
    with installed(model, other := Recorder({"layers.0.attention.weights"})):
        model(tokens())
    assert torch.equal(weights, other.seen["layers.0.attention.weights"])


RESIDUAL = "layers.0.residual_after"


def test_what_is_known_already_is_not_computed():
    model, recorder = Stack(), Recorder()
    with installed(model, recorder):
        plain = model(tokens())
    known = {name: recorder.seen[name] for name in (RESIDUAL, "layers.1.attention.heads")}
    queries = {f"layers.{layer}.attention.query" for layer in (0, 1)}
    supplier = Recorder({RESIDUAL, *queries, "logits"})
    supplier.supply = known.get
    with installed(model, supplier):
        assert torch.equal(model(tokens()), plain)
    assert list(supplier.seen) == [RESIDUAL]


def test_a_value_of_another_shape_is_refused_with_the_site_named():
    model = Stack()
    cut = Recorder({"layers.0.attention.heads"}, lambda _, value: value[:1])
    words = r"layers.0.attention.heads must have shape \(2, 4, 5, 7\); got \(1, 4, 5, 7\)"
    with installed(model, cut), pytest.raises(WrongUsage, match=words):
        model(tokens())


def test_patterns_name_sites_and_one_that_names_none_is_an_error():
    model = Stack()
    weights = [f"layers.{i}.attention.weights" for i in (0, 1)]
    assert matches("layers.*.attention.weights", model) == weights
    assert matches("*", model) == site_names(model)
    with pytest.raises(WrongUsage, match=r"did you mean 'layers\.0\.attention\.weights'\? Known: "):
        matches("layers.0.attention.wieghts", model)
    with pytest.raises(WrongUsage, match="Linear has no sites"):
        matches("*", nn.Linear(2, 3))


def test_parts_are_opened_by_their_paths_and_only_for_a_while():
    model = Stack()
    path = "layers.0.attention"
    with explicit_attention(model, [path]):
        paths = [
            name for name, part in model.named_modules() if getattr(part, "is_explicit", False)
        ]
        assert paths == [path]
        assert model.get_submodule(path)(torch.zeros(1, 3, 28)).weights is not None
    assert model.get_submodule(path)(torch.zeros(1, 3, 28)).weights is None
