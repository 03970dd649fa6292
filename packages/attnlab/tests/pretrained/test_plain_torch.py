"""Models of plain torch: multi-head attention in all its forms, its layers and stacks."""

import copy
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import attnlab
import attnlab.edits as op
from attnlab.errors import WrongUsage
from attnlab.pretrained.attach import attach
from attnlab.pretrained.backends.multi_head import SlowPath
from attnlab.pretrained.model import Pretrained
from tests.planting import fault_tests, faults_of
from tests.pretrained.families import stirred
from tests.pretrained.written import Block, TokensReader

# torch warns of its own fast path, once a process.
pytestmark = pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")

BATCH, QUERIES, KEYS, WIDTH, HEADS = 3, 5, 7, 16, 4


def drawn(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


def slowly(model, *given, **options):
    """What torch itself computes where its fast path is left."""
    with torch.no_grad(), SlowPath():
        return model(*given, **options)


def as_added(blocked):
    """A boolean mask as torch adds it to scores."""
    return torch.zeros(blocked.shape).masked_fill(blocked, float("-inf"))


MODULES: dict[str, dict[str, Any]] = {
    "plain": {},
    "batch first": {"batch_first": True},
    "without bias": {"bias": False},
    "own keys": {"add_bias_kv": True},
    "a zero key": {"add_zero_attn": True},
    "both": {"add_bias_kv": True, "add_zero_attn": True, "batch_first": True},
    "other widths": {"kdim": 6, "vdim": 10},
}
BLOCKED = drawn(QUERIES, KEYS, seed=5) > 0.5
BLOCKED[:, 0] = False
PADDING = torch.zeros(BATCH, KEYS, dtype=torch.bool)
PADDING[1, -2:] = PADDING[2, 1] = True
CALLS: dict[str, dict[str, Any]] = {
    "weights": {},
    "weights of each head": {"average_attn_weights": False},
    "no weights": {"need_weights": False},
    "padding": {"key_padding_mask": PADDING},
    "padding, no weights": {"key_padding_mask": PADDING, "need_weights": False},
    "added padding": {"key_padding_mask": as_added(PADDING)},
    "blocked": {"attn_mask": BLOCKED, "average_attn_weights": False},
    "blocked, no weights": {"attn_mask": BLOCKED, "need_weights": False},
    "both masks": {"attn_mask": BLOCKED, "key_padding_mask": PADDING},
    "added": {"attn_mask": drawn(QUERIES, KEYS, seed=6), "need_weights": False},
    "added for each head": {"attn_mask": drawn(BATCH * HEADS, QUERIES, KEYS, seed=7)},
    "blocked for each head": {
        "attn_mask": BLOCKED.repeat(BATCH * HEADS, 1, 1),
        "key_padding_mask": PADDING,
    },
}


def multi_head(named):
    options = MODULES[named]
    module = stirred(nn.MultiheadAttention(WIDTH, HEADS, **options))
    query = drawn(QUERIES, BATCH, WIDTH)
    key = drawn(KEYS, BATCH, options.get("kdim", WIDTH), seed=1)
    if options.get("batch_first"):
        query, key = query.transpose(0, 1), key.transpose(0, 1)
    value = drawn(KEYS, BATCH, options["vdim"], seed=2) if "vdim" in options else key
    return module, (query, key, value)


ALWAYS = ("both masks",)
CASES = [
    pytest.param(
        named, called, marks=() if named == "plain" or called in ALWAYS else pytest.mark.slow
    )
    for named in MODULES
    for called in CALLS
]


@pytest.mark.parametrize(("named", "called"), CASES)
def test_multi_head_attention_is_computed_as_torch_does_to_the_bit(named, called):
    module, given = multi_head(named)
    told, model = CALLS[called], attach(module, example=given)
    own_output, own_weights = slowly(module, *given, **told)
    with torch.no_grad(), attnlab.record(model, "*") as recording:
        output, weights = module(*given, **told)
    assert torch.equal(output, own_output)
    assert (weights is None) == (own_weights is None)
    assert weights is None or torch.equal(weights, own_weights)
    openly = {**told, "need_weights": True, "average_attn_weights": False}
    _, of_heads = slowly(module, *given, **openly)
    assert (recording["layers.0.cross_attention.weights"] - of_heads).abs().max() <= 1e-6
    blocked = recording.blocked("layers.0.cross_attention.weights", row=1, head=0)
    assert blocked is None or torch.equal(blocked, of_heads[1, 0] == 0.0)
    if named in ("plain", "both", "other widths"):
        check_edits(module, given, told, model)


def check_edits(module, given, told, model):
    """Edits do what is done by hand."""
    site, width = "layers.0.cross_attention", WIDTH // HEADS
    by_hand = copy.deepcopy(module)
    with torch.no_grad():
        by_hand.out_proj.weight[:, width : 2 * width] = 0.0
    with torch.no_grad(), attnlab.edit(model, op.ZeroHead(site=site, head=1)) as certificate:
        output, weights = module(*given, **told)
    own, own_weights = slowly(by_hand, *given, **told)
    assert (output - own).abs().max() < 1e-6
    assert weights is None or torch.equal(weights, own_weights)
    assert certificate.holds
    assert certificate.identity == 0.0
    assert certificate.backend == "multi-head"
    allowed = torch.zeros(QUERIES, KEYS, dtype=torch.bool)
    allowed[2, 4] = True
    add = op.AddToScores(site=site, query=2, key=4, amount=1.5)
    with torch.no_grad(), attnlab.edit(model, add) as certificate:
        output, _ = module(*given, **told)
    masks = {
        name: told[name] if told[name].is_floating_point() else as_added(told[name])
        for name in ("attn_mask", "key_padding_mask")
        if name in told
    }
    masks["attn_mask"] = masks.get("attn_mask", torch.zeros(QUERIES, KEYS)) + 1.5 * allowed
    own, _ = slowly(module, *given, **{**told, **masks})
    assert (output - own).abs().max() < 2e-6
    assert certificate.holds
    assert certificate.identity == 0.0


def test_an_input_without_a_batch_is_a_batch_of_one():
    module = stirred(nn.MultiheadAttention(WIDTH, HEADS))
    query, key = drawn(QUERIES, WIDTH), drawn(KEYS, WIDTH, seed=1)
    model = attach(module, example=(query, key, key))
    own = slowly(module, query, key, key, key_padding_mask=PADDING[1])
    with torch.no_grad(), attnlab.record(model, "*weights") as recording:
        output, weights = module(query, key, key, key_padding_mask=PADDING[1])
    assert torch.equal(output, own[0])
    assert torch.equal(weights, own[1])
    assert recording.shape("layers.0.cross_attention.weights") == (1, HEADS, QUERIES, KEYS)


@pytest.mark.parametrize("told", [{"attn_mask": BLOCKED[:1]}, {"key_padding_mask": PADDING[:1]}])
def test_what_torch_refuses_is_refused_also_while_somebody_looks(told):
    module, given = multi_head("plain")
    model = attach(module, example=given)
    with pytest.raises((RuntimeError, AssertionError)):
        slowly(module, *given, **told)
    with pytest.raises((RuntimeError, AssertionError)), attnlab.record(model, "*weights"):
        module(*given, **told)


@pytest.mark.parametrize(("padded", "weights"), [(False, True), (True, False)])
def test_a_causal_hint_is_taken_as_torch_takes_it(padded, weights):
    module = stirred(nn.MultiheadAttention(WIDTH, HEADS, batch_first=True))
    x, mask = drawn(BATCH, KEYS, WIDTH), nn.Transformer.generate_square_subsequent_mask(KEYS)
    model = attach(module, example=(x, x, x))
    told = {
        "attn_mask": mask,
        "is_causal": True,
        "need_weights": weights,
        "key_padding_mask": PADDING.float() * -9.0 if padded else None,
    }
    own, own_weights = slowly(module, x, x, x, **told)
    with torch.no_grad(), attnlab.record(model, "*weights") as recording:
        output, found = module(x, x, x, **told)
    assert torch.equal(output, own)
    assert not weights or torch.equal(found, own_weights)
    assert float(recording["layers.0.attention.weights"].triu(1).max()) == 0.0
    with pytest.raises(RuntimeError, match="attn_mask"), attnlab.record(model, "*weights"):
        module(x, x, x, is_causal=True)


def test_gradients_and_dropout_are_torch_s_own():
    module = stirred(nn.MultiheadAttention(WIDTH, HEADS, dropout=0.5))
    x = drawn(KEYS, BATCH, WIDTH)
    model = attach(module, example=(x, x, x))
    module.train()
    found = []
    for looks in (False, True):
        module.zero_grad()
        torch.manual_seed(2)
        with SlowPath() if not looks else attnlab.record(model, "*query"):
            output, weights = module(x, x, x)
        (output.square().sum() + weights.square().sum()).backward()
        found.append((output, weights, *(each.grad.clone() for each in module.parameters())))
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


STACKS = [
    (batch_first, norm_first) for batch_first in (True, False) for norm_first in (True, False)
]


def encoder(batch_first, norm_first):
    layer = nn.TransformerEncoderLayer(
        WIDTH, HEADS, 24, batch_first=batch_first, norm_first=norm_first
    )
    return stirred(nn.TransformerEncoder(layer, 2, enable_nested_tensor=False))


@contextmanager
def counted(monkeypatch):
    """Count the calls of torch's fast path."""
    calls: list[str] = []
    for name in ("_transformer_encoder_layer_fwd", "_native_multi_head_attention"):
        function = getattr(torch, name)

        def fast(*args, name=name, function=function, **options):
            calls.append(name)
            return function(*args, **options)

        monkeypatch.setattr(torch, name, fast)
    yield calls


def test_the_fast_path_is_left_while_somebody_looks_and_only_then(monkeypatch):
    module, x = encoder(True, False), drawn(BATCH, QUERIES, WIDTH)
    model = attach(module, example=(x,))
    with torch.no_grad(), counted(monkeypatch) as calls:
        plain = module(x)
        assert len(calls) == 2
        with attnlab.record(model, "*weights"):
            found = module(x)
        with attnlab.edit(model, op.ZeroHead(layer=0, head=0), certify=False):
            module(x)
        assert len(calls) == 2
        again = module(x)
    assert len(calls) == 4
    assert torch.equal(plain, again)
    assert torch.equal(found, slowly(module, x))
    assert (found - plain).abs().max() < 2e-6


def own_stream(module, x, norm_first):
    """What hooks at the layers' own modules see, by the names of sites; the stream by adding up."""
    seen: dict[str, Tensor] = {}
    with torch.no_grad(), SlowPath():
        for index, layer in enumerate(module.layers):
            path = f"layers.{index}"
            seen[f"{path}.residual_before"] = x
            given = layer.norm1(x) if norm_first else x
            added = layer.self_attn(given, given, given)[0]
            between = x + added if norm_first else layer.norm1(x + added)
            hidden = F.relu(layer.linear1(layer.norm2(between) if norm_first else between))
            fed = layer.linear2(hidden)
            x = between + fed if norm_first else layer.norm2(between + fed)
            seen |= {f"{path}.attention.output": added, f"{path}.residual_between": between}
            seen |= {f"{path}.feed_forward.hidden": hidden, f"{path}.feed_forward.output": fed}
            seen[f"{path}.residual_after"] = x
    return seen


@pytest.mark.parametrize(("batch_first", "norm_first"), STACKS)
def test_every_site_of_an_encoder_shows_what_is_computed_there(batch_first, norm_first):
    module = encoder(batch_first, norm_first)
    x = drawn(BATCH, QUERIES, WIDTH) if batch_first else drawn(QUERIES, BATCH, WIDTH)
    model = attach(module, example=(x,))
    with torch.no_grad(), attnlab.record(model, "*") as recording:
        found = model(x)
    assert torch.equal(found, slowly(module, x))
    own = own_stream(module, x, norm_first)
    assert set(own) <= set(recording)
    for site, value in own.items():
        value = value if batch_first else value.transpose(0, 1)
        assert (recording[site] - value).abs().max() < 2e-6, site


def test_a_whole_transformer_has_two_stacks_and_looks_across():
    module = stirred(nn.Transformer(WIDTH, HEADS, 2, 2, 24, batch_first=True))
    source, target = drawn(BATCH, KEYS, WIDTH), drawn(BATCH, QUERIES, WIDTH, seed=1)
    model = attach(module, example=(source, target))
    told = {
        "tgt_mask": nn.Transformer.generate_square_subsequent_mask(QUERIES, dtype=torch.bool),
        "src_key_padding_mask": PADDING,
        "memory_key_padding_mask": PADDING,
    }
    with torch.no_grad(), attnlab.record(model, "*") as recording:
        found = model(source, target, **told)
    assert torch.equal(found, slowly(module, source, target, **told))
    shape = recording.shape("decoder.layers.1.cross_attention.weights")
    assert shape == (BATCH, HEADS, QUERIES, KEYS)
    assert recording.real("encoder.layers.0.attention.weights", 1)[1] == (~PADDING[1]).tolist()
    assert float(recording["decoder.layers.0.attention.weights"].triu(1).max()) == 0.0
    zero = op.ZeroHead(site="decoder.layers.*.cross_attention", head=1)
    with torch.no_grad(), attnlab.edit(model, zero) as certificate:
        model(source, target, **told)
    assert certificate.holds
    assert certificate.effects[""].largest > 0.0
    assert "decoder.layers.0.residual_after_cross" in recording


class Packed(nn.Module):
    """Queries, keys and values in one projection, fused or written out."""

    def __init__(self, fused=True, causal=False, flat=False, shared=1):
        super().__init__()
        self.fused_attn, self.causal, self.flat, self.shared = fused, causal, flat, shared
        self.q = nn.Linear(WIDTH, WIDTH)
        self.kv = nn.Linear(WIDTH, 2 * WIDTH // shared)
        self.proj = nn.Linear(WIDTH, WIDTH)
        self.scale = (WIDTH // HEADS) ** -0.5

    def forward(self, x):
        batch, length, width = x.shape
        q = self.q(x).view(batch, length, HEADS, -1).transpose(1, 2)
        k, v = self.kv(x).view(batch, length, 2, HEADS // self.shared, -1).permute(2, 0, 3, 1, 4)
        if self.flat:
            q, k, v = (each.reshape(batch * HEADS, length, -1) for each in (q, k, v))
        if self.fused_attn:
            shares = self.shared > 1
            gathered = F.scaled_dot_product_attention(
                q, k, v, is_causal=self.causal, enable_gqa=shares
            )
        else:
            k, v = (each.repeat_interleave(self.shared, 1) for each in (k, v))
            scores = (q * self.scale) @ k.transpose(-2, -1)
            if self.causal:
                hidden = torch.ones(length, length, dtype=torch.bool).triu(1)
                scores = scores.masked_fill(hidden, float("-inf"))
            gathered = scores.softmax(dim=-1) @ v
        heads = gathered.view(batch, HEADS, length, -1).transpose(1, 2)
        return self.proj(heads.reshape(batch, length, width))


def reader(**options):
    """A small language model of plain torch: ids (batch, length) in, logits out."""
    return TokensReader([lambda: Block(Packed(**options))] * 2)


TOKENS = torch.randint(0, 10, (2, QUERIES), generator=torch.Generator().manual_seed(3))
FORMS: dict[str, dict[str, Any]] = {
    "plain": {},
    "flat and causal": {"flat": True, "causal": True},
    "grouped": {"shared": 2},
}


@pytest.mark.parametrize("form", FORMS)
def test_fused_attention_and_the_same_written_out_show_and_do_the_same(form):
    seen, outputs = [], []
    for fused in (True, False):
        module = stirred(reader(fused=fused, **FORMS[form]))
        model = attach(module, example=(TOKENS,))
        assert {each.backend for each in model.backends} == {"sdpa" if fused else "softmax"}
        with torch.no_grad(), attnlab.record(model, "*") as recording:
            assert torch.equal(model(TOKENS), module(TOKENS))
        assert recording.shape("layers.0.attention.weights") == (2, HEADS, QUERIES, QUERIES)
        names = recording.tokens("layers.0.attention.weights", 1).key
        assert names == list(map(str, TOKENS[1].tolist()))
        seen.append(recording)
        by_hand, width = copy.deepcopy(module), WIDTH // HEADS
        with torch.no_grad():
            by_hand.layers[1].attention.proj.weight[:, 2 * width : 3 * width] = 0.0
            with attnlab.edit(model, op.ZeroHead(layer=1, head=2)) as certificate:
                found = model(TOKENS)
        assert (found - by_hand(TOKENS)).abs().max() < 1e-6
        assert certificate.holds
        assert certificate.identity == 0.0
        add = op.AddToScores(layer=0, head=1, key=0, amount=2.0)
        with torch.no_grad(), attnlab.edit(model, add) as certificate:
            outputs.append(model(TOKENS))
        assert certificate.holds
        assert certificate.identity == 0.0
    both = set(seen[0]) & set(seen[1])
    assert both >= {f"layers.1.{site}" for site in ("attention.scores", "feed_forward.hidden")}
    assert "layers.0.residual_between" in both
    for site in both:
        one, other = (each[site].float() for each in seen)
        if site.endswith(".value"):  # written out, each head has its own
            one = one.repeat_interleave(HEADS // one.shape[1], 1)
        one, other = (each.masked_fill(each == float("-inf"), 0.0) for each in (one, other))
        assert (one - other).abs().max() < 1e-5, site
    assert (outputs[0] - outputs[1]).abs().max() < 1e-5


@pytest.mark.parametrize(
    ("form", "is_half"), [("plain", True), ("flat and causal", True), ("grouped", False)]
)
def test_an_opened_attention_of_half_precision_is_computed_in_full(form, is_half):
    module = stirred(reader(**FORMS[form]))
    module = module.to(torch.bfloat16) if is_half else module
    model = attach(module, example=(TOKENS,))
    with (
        torch.no_grad(),
        torch.autocast("cpu", torch.bfloat16, enabled=not is_half),
        attnlab.edit(model, op.Temperature(temperature=1.0)) as certificate,
        attnlab.record(model, "*weights") as recording,
    ):
        model(TOKENS)
    assert certificate.identity == 0.0
    assert all(rows.off == 0 for rows in certificate.rows.values())
    assert all(recording[site].dtype == torch.float32 for site in recording)


class Looks(nn.Module):
    """Attention with its norm, added to the stream here or by whoever calls it."""

    def __init__(self, adds):
        super().__init__()
        self.adds, self.norm = adds, nn.LayerNorm(WIDTH)
        self.attend = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)

    def forward(self, x, memory=None):
        normed = self.norm(x)
        sides = (normed, normed) if memory is None else (memory, memory)
        found = self.attend(normed, *sides, need_weights=False)[0]
        return x + found if self.adds else found


class Feeds(nn.Module):
    def __init__(self, adds):
        super().__init__()
        self.adds, self.norm = adds, nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 24), nn.Linear(24, WIDTH)

    def forward(self, x):
        found = self.down(F.relu(self.up(self.norm(x))))
        return x + found if self.adds else found


class Turns(nn.Module):
    """An encoder and a decoder whose lists hold attention and feed-forward in turns."""

    def __init__(self, nested, adds):
        super().__init__()
        self.nested, self.adds = nested, adds
        self.read = self._listed([Looks, Feeds])
        self.write = self._listed([Looks, Looks, Feeds])

    def _listed(self, kinds):
        layers = [[kind(self.adds) for kind in kinds] for _ in range(2)]
        if self.nested:
            return nn.ModuleList(nn.ModuleList(each) for each in layers)
        return nn.ModuleList(module for each in layers for module in each)

    def parts(self, stack):
        return [part for each in stack for part in each] if self.nested else list(stack)

    def forward(self, source, target, seen=None):
        looked, memory = 0, source
        for stack in (self.read, self.write):
            x = source if stack is self.read else target
            for part in self.parts(stack):
                looked = 0 if isinstance(part, Feeds) else looked + 1
                found = part(x, memory) if looked == 2 else part(x)
                x = found if self.adds else x + found
                if seen is not None:
                    seen.append(x)
            memory = x
        return x


CROSS = "write.layers.1.cross_attention"


@pytest.mark.parametrize(("nested", "adds"), [(True, True), (True, False), (False, True)])
def test_where_attention_and_feed_forward_take_turns_in_a_list_both_are_one_layer(nested, adds):
    module = stirred(Turns(nested, adds))
    given = drawn(BATCH, KEYS, WIDTH), drawn(BATCH, QUERIES, WIDTH, seed=1)
    model = attach(module, example=given)
    assert sorted(path for path, _ in model.attention_points()) == [
        *(f"read.layers.{number}.attention" for number in range(2)),
        *(
            f"write.layers.{n}.{kind}"
            for n in range(2)
            for kind in ("attention", "cross_attention")
        ),
    ]
    seen: list[Tensor] = []
    with torch.no_grad(), attnlab.record(model, "*") as recording:
        plain = module(*given, seen)
    if adds:
        shown = ["residual_between", "residual_after_cross", "residual_after"]
        sites = [f"read.layers.{number}.{each}" for number in range(2) for each in shown[::2]]
        sites += [f"write.layers.{number}.{each}" for number in range(2) for each in shown]
        for site, value in zip(sites, seen, strict=True):
            assert (recording[site] - value).abs().max() < 2e-6, site
        assert recording.shape("write.layers.1.feed_forward.hidden") == (BATCH, QUERIES, 24)
    else:
        assert not [site for site in recording if site.endswith("residual_after")]
    by_hand = copy.deepcopy(module)
    cross, zero = by_hand.parts(by_hand.write)[4].attend, op.ZeroHead(site=CROSS, head=0)
    with torch.no_grad():
        cross.out_proj.weight[:, : WIDTH // HEADS] = 0.0
        with attnlab.edit(model, zero) as certificate:
            found = module(*given)
    expected = slowly(by_hand, *given)
    assert (found - expected).abs().max() < 1e-6 * float(expected.abs().max())
    assert certificate.holds
    assert not torch.equal(found, plain)


def test_a_model_that_nobody_described_asks_for_an_example():
    module = reader()
    with pytest.raises(WrongUsage, match=r"takes \(tokens\)"):
        attach(module)
    with pytest.raises(WrongUsage, match="does not take such an example"):
        attach(module, example=(TOKENS, TOKENS))
    with pytest.raises(WrongUsage, match="inputs by name or in their order"):
        attach(module, example="tokens")  # type: ignore[arg-type]
    model = attach(module, example=TOKENS)
    assert attnlab.sites.site_names(model) == attnlab.sites.site_names(
        attach(module, example={"tokens": TOKENS})
    )
    with pytest.raises(WrongUsage, match="at most 1 inputs"):
        model(TOKENS, TOKENS)


def test_an_edited_mask_blocks_what_torch_s_own_mask_blocks():
    module, x = (
        stirred(nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)),
        drawn(2, KEYS, WIDTH),
    )
    model, hidden = attach(module, example=(x, x, x)), torch.zeros(KEYS, KEYS, dtype=torch.bool)
    with torch.no_grad(), attnlab.edit(model, op.CutEdge(query=2, key=4), certify=False):
        found, _ = module(x, x, x, attn_mask=hidden)
    hidden[2, 4] = True
    assert (found - slowly(module, x, x, x, attn_mask=hidden)[0]).abs().max() < 2e-6


def test_a_copy_is_attended_by_nobody():
    x = drawn(BATCH, QUERIES, WIDTH)
    model = attach(encoder(True, True), example=(x,))
    with torch.no_grad():
        plain = model(x)
        other: Pretrained = copy.deepcopy(model)
        with attnlab.edit(model, op.ZeroHead(layer=0, head=0)):
            changed = model(x)
            assert torch.equal(other(x), plain)
            assert torch.equal(copy.deepcopy(model)(x), plain)
    assert not torch.equal(changed, plain)


GRADIENTS = {
    "gradients": torch.enable_grad,
    "no gradients": torch.no_grad,
    "inference": torch.inference_mode,
}
RIGHT_PADDED = torch.zeros(BATCH, KEYS, dtype=torch.bool)
RIGHT_PADDED[1, -2:] = RIGHT_PADDED[2, -1:] = True


def padded(nested, norm_first, norm):
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 24, batch_first=True, norm_first=norm_first)
    last = nn.LayerNorm(WIDTH) if norm else None
    return stirred(
        nn.TransformerEncoder(layer, 2, last, enable_nested_tensor=nested and not norm_first)
    )


def check_padded(module, given, padding=RIGHT_PADDED, gradients="no gradients", model=None):
    """What a module makes of padding is the same while it is looked at; return it."""
    model = model or attach(module, example=given)
    with GRADIENTS[gradients]():
        plain = module(*given, src_key_padding_mask=padding)
        with attnlab.record(model, "*weights") as recording:
            found = module(*given, src_key_padding_mask=padding)
    within = 0.0 if gradients == "gradients" else 4e-6
    assert float((found - plain).detach().abs().max()) <= within
    blocked = padding if padding.dtype == torch.bool else padding < 0
    site = next(site for site in recording if "cross" not in site)
    assert float(recording[site][1][..., blocked[1]].max()) == 0.0
    return plain


@pytest.mark.parametrize(
    ("nested", "norm_first", "norm", "gradients"),
    [
        *((True, False, True, gradients) for gradients in GRADIENTS),
        (False, False, False, "inference"),
        (False, True, True, "gradients"),
    ],
)
def test_a_padded_encoder_gives_the_same_while_looked_at(nested, norm_first, norm, gradients):
    module, given = padded(nested, norm_first, norm), (drawn(BATCH, KEYS, WIDTH),)
    model = attach(module, example=given)
    for padding in (PADDING, RIGHT_PADDED, as_added(RIGHT_PADDED)):
        check_padded(module, given, padding, gradients, model)


@pytest.mark.parametrize("gradients", GRADIENTS)
def test_a_decoder_reads_of_padding_what_it_reads_when_nobody_looks(gradients):
    module = stirred(nn.Transformer(WIDTH, HEADS, 2, 2, 24, batch_first=True))
    given = drawn(BATCH, KEYS, WIDTH), drawn(BATCH, QUERIES, WIDTH, seed=1)
    check_padded(module, given, gradients=gradients)


def test_padding_is_computed_where_the_input_alone_wants_a_gradient():
    module = padded(True, False, False).requires_grad_(False)
    check_padded(module, (drawn(BATCH, KEYS, WIDTH).requires_grad_(),), gradients="gradients")


class Whole(nn.TransformerEncoder):
    def forward(self, tokens, src_key_padding_mask=None):
        return super().forward(self.embed(tokens), src_key_padding_mask=src_key_padding_mask)


class Alone(nn.TransformerEncoder):
    def forward(self, tokens, src_key_padding_mask=None):
        stream = self.embed(tokens)
        for layer in self.layers:
            stream = layer(stream, src_key_padding_mask=src_key_padding_mask)
        return stream


@pytest.mark.parametrize("kind", [Whole, Alone])
def test_padding_of_an_encoder_with_a_forward_of_its_own_is_what_that_forward_makes_of_it(kind):
    module = kind(nn.TransformerEncoderLayer(WIDTH, HEADS, 24, batch_first=True), 2)
    module.embed = nn.Embedding(20, WIDTH)
    plain = check_padded(stirred(module), (torch.arange(BATCH * KEYS).view(BATCH, KEYS) % 20,))
    assert bool((plain[1, -1] == 0.0).all()) == (kind is Whole)


def test_the_check_at_opening_takes_an_example_whose_padding_torch_leaves_out():
    module, x = padded(True, False, False), drawn(BATCH, KEYS, WIDTH)
    found = attach(module, example={"src": x, "src_key_padding_mask": RIGHT_PADDED}).fast_path
    assert found is not None
    assert 0.0 < found <= 4e-6


def test_with_another_mode_at_work_torch_leaves_its_fast_path_and_padding_is_computed():
    with SlowPath():
        plain = check_padded(padded(True, False, False), (drawn(BATCH, KEYS, WIDTH),))
    assert float(plain[1, -1].abs().max()) > 0.0


@pytest.mark.parametrize("gradients", GRADIENTS)
@pytest.mark.parametrize(
    "edit", [op.ZeroHead(layer=0, head=1), op.Temperature(layer=0, temperature=1.0)]
)
def test_the_certificate_compares_with_the_own_call_and_tells_the_fast_path(gradients, edit):
    module, x = encoder(True, False), drawn(BATCH, KEYS, WIDTH)
    model = attach(module, example=(x,))
    with GRADIENTS[gradients]():
        plain = module(x, src_key_padding_mask=RIGHT_PADDED).detach()
        with SlowPath():
            slow = module(x, src_key_padding_mask=RIGHT_PADDED).detach()
        with attnlab.edit(model, edit) as certificate:
            found = module(x, src_key_padding_mask=RIGHT_PADDED).detach()
    effect = certificate.effects[""]
    assert effect.identity == 0.0
    assert effect.largest == float((found - plain).abs().max())
    told = float((slow - plain).abs().max())
    assert effect.fast_path == (told or None)
    assert (gradients == "gradients") == (effect.fast_path is None)
    line = f"of which leaving torch's fast path, where no hook runs: {told:.3g}"
    assert (line in str(certificate)) == (effect.fast_path is not None)


def test_the_check_at_opening_measures_the_fast_path():
    module, x = encoder(True, False), drawn(BATCH, QUERIES, WIDTH)
    with torch.no_grad():
        plain = module(x)
    found = attach(module, example=(x,)).fast_path
    assert found == float((plain - slowly(module, x)).abs().max()) > 0.0
    module = encoder(False, False)  # with the length first torch has no fast path
    assert attach(module, example=(x,)).fast_path is None


FIND, ADDED = "point = self._find(_BACKENDS[func])", "return added == 0.0"
SIDES, HINT = "_with_weights(point, query, key, value,", 'needs_weights and arguments["attn_mask"]'
HINT += " is not None"
WHOLE, SUM = "structures = _alternating(blocks, trace) or tuple", "if joined.adds is not None:"
FREE = "DisableTorchFunction():"
multi_head_check = test_multi_head_attention_is_computed_as_torch_does_to_the_bit
edited_mask = test_an_edited_mask_blocks_what_torch_s_own_mask_blocks
hint = test_a_causal_hint_is_taken_as_torch_takes_it
wanted = test_padding_is_computed_where_the_input_alone_wants_a_gradient
half = test_an_opened_attention_of_half_precision_is_computed_in_full
sites = test_every_site_of_an_encoder_shows_what_is_computed_there
decoder = test_a_decoder_reads_of_padding_what_it_reads_when_nobody_looks
told = test_the_certificate_compares_with_the_own_call_and_tells_the_fast_path
turns = test_where_attention_and_feed_forward_take_turns_in_a_list_both_are_one_layer
forms = test_fused_attention_and_the_same_written_out_show_and_do_the_same
ZERO = op.ZeroHead(layer=0, head=1)
FAULTS: dict[str, list[tuple[Any, ...]]] = {
    "backends.multi_head": [
        (ADDED, ADDED.replace("==", "!="), multi_head_check, "plain", "blocked"),
        ("masked_fill_(~mask,", "masked_fill_(mask,", edited_mask),
        (HINT, "False", hint, False, True),  # a causal hint hides the mask
        ("mask = added", "mask = None", multi_head_check, "plain", "both masks"),
        ('arguments["average_attn_weights"]:', "False:", multi_head_check, "plain", "weights"),
        (SIDES, SIDES.replace("key, value", "value, key"), multi_head_check, "plain", "weights"),
        (FREE, f"{FREE[:-1]}, torch.no_grad():", wanted),  # left out where torch computes it
    ],
    "backends.functions": [
        (FIND, "point = None", multi_head_check, "plain", "weights"),  # the fast path in silence
        ("if dtype in _HALF:", "if False:", half, "plain", True),
    ],
    "attention_call": [("return value.transpose(0, 1)", "return value", sites, False, True)],
    "hooks": [("output.masked_fill(where[..., None], 0.0)", "output", decoder, "inference")],
    "pass_state": [
        ("if not isinstance(hook, ModuleHook)}", "if hook}", told, "no gradients", ZERO),
    ],
    "structure": [
        (WHOLE, "structures = tuple", turns, False, True),  # numbered module by module
        (SUM, "if True:", turns, True, False),  # what modules are given, taken for the stream
    ],
    "tracing": [("rows = self._batch", "rows = 1", forms, "flat and causal")],  # heads for inputs
}


test_every_fault_has_its_place_in_the_code, test_a_planted_fault_is_noticed = fault_tests(
    faults_of(FAULTS, "pretrained.")
)
