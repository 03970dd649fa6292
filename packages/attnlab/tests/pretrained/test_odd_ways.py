"""Foreign models in ways nobody was asked about: gone back over, copied, compiled, loaded twice."""

import threading
from collections.abc import Callable
from contextlib import nullcontext

import pytest
import torch
from torch import Tensor, nn

import attnlab
from attnlab.errors import CouldNotRun, WrongUsage
from attnlab.pretrained.attach import attach
from attnlab.pretrained.backends.registry import is_replaced
from attnlab.pretrained.probe import probe_inputs
from tests.planting import fault_tests, faults_of
from tests.pretrained.families import FAMILIES, stirred
from tests.pretrained.trying import difference, furthest, tried
from tests.pretrained.written import TokensReader
from tests.sampling import sampled

transformers = pytest.importorskip("transformers")

fused = torch.nn.functional.scaled_dot_product_attention
FALCON = "falcon (new)"
SITE = "layers.0.attention"
SECOND = attnlab.ZeroHead(site=SITE, head=1)
# Gone back over, copied, compiled


def _gradients(foreign, inputs, change):
    foreign.zero_grad()
    with change:
        foreign(**inputs)["logits"].square().sum().backward()
    return [each.grad.clone() for each in foreign.parameters() if each.grad is not None]


@pytest.mark.parametrize("name", sampled(["bloom", FALCON, "llama"], 2))
def test_gradients_under_a_recording_are_right_where_a_block_is_computed_once_more(name):
    foreign = FAMILIES[name].build(hidden_dropout=0.0, attention_dropout=0.0)
    inputs, model = probe_inputs(foreign), attach(foreign)
    foreign.train()
    expected = _gradients(foreign, inputs, nullcontext())
    foreign.activation_checkpointing_enable({"use_reentrant": False})
    found = _gradients(foreign, inputs, attnlab.record(model, "*.attention.weights"))
    assert furthest(found, expected) <= 1e-4 * float(expected[0].abs().max())


@pytest.mark.parametrize(
    ("name", "reentrant"), [("llama", True), ("llama", False), (FALCON, True), ("bloom", False)]
)
def test_an_edit_is_refused_where_a_block_would_be_computed_once_more_without_it(name, reentrant):
    foreign = FAMILIES[name].build(hidden_dropout=0.0, attention_dropout=0.0)
    inputs, model = probe_inputs(foreign), attach(foreign)
    foreign.train().activation_checkpointing_enable({"use_reentrant": reentrant})
    with (
        pytest.raises(CouldNotRun, match="under activation checkpointing"),
        attnlab.edit(model, SECOND, certify=False),
    ):
        foreign(**inputs)


def test_a_block_that_is_called_by_itself_as_checkpointing_calls_it_is_recorded():
    foreign, inputs, model = tried("bloom").foreign, tried("bloom").inputs, tried("bloom").model
    block, calls = foreign.get_submodule("transformer.h.0"), []
    handle = block.register_forward_pre_hook(
        lambda _, args, kwargs: calls.append((args, kwargs)), with_kwargs=True
    )
    foreign(**inputs)
    handle.remove()
    args, kwargs = calls[0]
    with torch.no_grad(), attnlab.record(model, "layers.0.attention.weights") as recording:
        block(*args, **kwargs)
    assert list(recording) == ["layers.0.attention.weights"]


# Loaded twice, inside one another, under another's function


@pytest.mark.parametrize("name", ["llama", FALCON])
def test_two_pairs_of_doors_of_one_model_at_once_are_refused(name):
    foreign = FAMILIES[name].build()
    first, second = attach(foreign), attach(foreign)
    with (
        pytest.raises(WrongUsage, match="was loaded twice"),
        attnlab.record(first, "*"),
        attnlab.record(second, "*"),
    ):
        pass
    edited = []
    for model in (first, second):
        with attnlab.edit(model, SECOND), torch.no_grad():
            edited.append(model(**first.example))
    assert torch.equal(*edited)


def test_a_model_can_be_loaded_while_another_is_looked_at_and_several_at_once():
    each, found = tried("llama"), list[int]()

    def load(seed):
        found.append(len(list(attach(FAMILIES["llama"].build(seed=seed)).attention_points())))

    with attnlab.record(each.model, "*") as recording:
        threads = [threading.Thread(target=load, args=(seed,)) for seed in (1, 2)]
        for thread in threads:
            thread.start()
        load(3)
        assert torch.equal(each.run(), each.plain)
        for thread in threads:
            thread.join()
    assert found == [2, 2, 2]
    assert f"{SITE}.weights" in recording
    assert not is_replaced()


def test_an_attention_function_that_the_user_put_into_the_table_is_used_and_stays_there():
    table = transformers.modeling_utils.ALL_ATTENTION_FUNCTIONS
    usual, calls = table["sdpa"], list[nn.Module]()

    def own(module, *args, **options):
        calls.append(module)
        return usual(module, *args, **options)

    each = tried("llama")
    table["sdpa"] = own
    try:
        with attnlab.record(each.model, "*.heads"):
            each.run()
        assert len(calls) == 2
        assert table["sdpa"] is own
    finally:
        del table["sdpa"]


def test_a_mask_that_is_given_by_its_name_is_a_mask():
    settings = {**FAMILIES["qwen3_moe"].settings, "num_dense_layers": 2}
    settings |= {"num_local_experts": 4, "num_shared_experts": 1}
    foreign = stirred(transformers.AfmoeForCausalLM(transformers.AfmoeConfig(**settings)))
    model, ids = attach(foreign), torch.randint(3, 101, (2, 7))
    mask = torch.ones_like(ids)
    mask[0, :3] = 0
    with torch.no_grad(), attnlab.record(model, "*.weights") as recording:
        model(ids, attention_mask=mask)
    foreign.set_attn_implementation("eager")
    with torch.no_grad():
        own = foreign(input_ids=ids, attention_mask=mask, output_attentions=True).attentions
    for layer, weights in enumerate(own):
        found = recording[f"layers.{layer}.attention.weights"]
        assert difference(found[0, :, 3:], weights[0, :, 3:]) <= 1e-6
        assert difference(found[1], weights[1]) <= 1e-6


@pytest.mark.parametrize("how", ["output_attentions", "eager", "flex_attention"])
def test_a_pass_that_attends_in_another_way_than_the_doors_know_is_told(how):
    foreign = FAMILIES[FALCON if how != "flex_attention" else "llama"].build()
    model, inputs = attach(foreign), probe_inputs(foreign)
    if how != "output_attentions":
        foreign.config._attn_implementation = how
    told = {"output_attentions": True} if how == "output_attentions" else {}
    for pattern in ("*.weights", "*.heads"):
        with (
            pytest.raises(CouldNotRun, match="set_attn_implementation"),
            attnlab.record(model, pattern),
        ):
            foreign(**inputs, **told)
    assert not is_replaced()


def test_ids_are_batch_first_also_where_a_stream_is_not_and_both_lengths_are_one():
    each = tried("xlnet")
    ids = torch.tensor([[5, 6], [7, 8]])
    with torch.no_grad(), attnlab.record(each.model, "*.weights") as recording:
        each.foreign(input_ids=ids)
    assert [recording.tokens(f"{SITE}.weights", row).query for row in (0, 1)] == [
        ["5", "6"],
        ["7", "8"],
    ]


def test_a_second_attention_in_one_call_is_not_taken_for_cross_attention():
    config = transformers.DiffLlamaConfig(**FAMILIES["llama"].settings)
    foreign = stirred(transformers.DiffLlamaForCausalLM(config))
    points = dict(attach(foreign).attention_points())
    assert list(points) == [
        f"layers.{layer}.{name}" for layer in (0, 1) for name in ("attention", "attention_1")
    ]
    assert not any(point.is_cross for point in points.values())


def test_a_name_is_looked_for_where_ids_are_known_and_the_certificate_says_where_they_are_not():
    each = tried("gpt2")
    ids = torch.tensor([[9, 8, 7, 6]])
    with torch.no_grad():
        cache = each.foreign(input_ids=ids).past_key_values
        edit = attnlab.CutEdge(site=SITE, key="9")
        with attnlab.edit(each.model, edit, vocabulary=str) as certificate:
            each.foreign(input_ids=torch.tensor([[5, 9, 4]]), past_key_values=cache)
    assert any("'9'" in line and "are unknown" in line for line in certificate.not_checked)
    with attnlab.edit(each.model, edit, vocabulary=str) as certificate:
        each.foreign(input_ids=ids)
    assert certificate.not_checked == []


# Modules of anybody's, their axes in every order


class Attention(nn.Module):
    """Attention with 4 heads, written in one of several ways."""

    def __init__(self, form):
        super().__init__()
        self.form, self.qkv, self.out = form, nn.Linear(16, 48), nn.Linear(16, 16)

    def forward(self, x):
        query, key, value = self.qkv(x).chunk(3, -1)
        return self.out(FORMS[self.form](query * 0.5, key, value))


def _apart(side):
    return side.unflatten(-1, (4, 4))


def _heads_last(query, key, value):
    scores = torch.einsum("bqhd,bkhd->bqhk", _apart(query), _apart(key))
    return torch.einsum("bqhk,bkhd->bqhd", scores.softmax(-1), _apart(value)).flatten(2)


def _keys_first(query, key, value):
    weights = torch.einsum("bqhd,bkhd->bhkq", _apart(query), _apart(key)).softmax(-2)
    return (weights.mT @ _apart(value).transpose(1, 2)).transpose(1, 2).flatten(2)


def _heads_folded_outside(*sides):
    attended = fused(*(torch.cat(each.split(4, 2)) for each in sides), scale=1.0)
    return torch.cat(attended.split(len(sides[0])), 2)


def _heads_before_inputs(*sides):
    attended = fused(*(_apart(each).permute(2, 0, 1, 3) for each in sides), scale=1.0)
    return attended.permute(1, 2, 0, 3).flatten(2)


def _usual(*sides):
    attended = fused(*(_apart(each).transpose(1, 2) for each in sides), scale=1.0)
    return attended.transpose(1, 2).flatten(2)


def _in_pieces(*sides):
    pieces = zip(*(each.split(4, 1) for each in sides), strict=True)
    return torch.cat([_usual(*piece) for piece in pieces], 1)


FORMS: dict[str, Callable[..., Tensor]] = {
    "heads last": _heads_last,
    "keys first": _keys_first,
    "heads folded outside": _heads_folded_outside,
    "heads before inputs": _heads_before_inputs,
    "usual": _usual,
    "in pieces": _in_pieces,
}


def reader(form):
    return stirred(TokensReader([lambda: Attention(form)]))


def ids_of(batch, length):
    return torch.randint(0, 10, (batch, length), generator=torch.Generator().manual_seed(7))


@pytest.mark.parametrize(
    ("form", "batch"),
    [
        *(("heads last", 1), ("keys first", 1), ("heads folded outside", 1)),
        *(("heads before inputs", 1), ("heads before inputs", 2)),
    ],
)
def test_attention_whose_axes_stand_in_another_order_is_refused(form, batch):
    with pytest.raises(CouldNotRun, match="of 2 heads has 1" if batch == 2 else None):
        attach(reader(form), example=(ids_of(batch, 6),))


def test_weights_that_give_nan_are_named():
    module = reader("usual")
    with torch.no_grad():
        module.tokens.weight[:] = float("nan")
    with pytest.raises(CouldNotRun, match="gives NaN for a small input"):
        attach(module, example=(ids_of(1, 6),))


def test_a_text_in_the_place_of_ids_is_told_what_to_do():
    with pytest.raises(WrongUsage, match=r"model\(\*\*model\.inputs\(text\)\)"):
        tried("gptj").model("John and Mary")


def test_pooling_heads_count_where_the_first_output_does_not_go_through_them():
    config = transformers.SiglipVisionConfig(**FAMILIES["vit"].settings)
    assert len(attach(transformers.SiglipVisionModel(config).eval()).backends) == 3


def test_a_model_that_takes_no_short_text_is_tried_at_its_own_length():
    sizes = {"vocab_size": 100, "d_model": 32, "n_head": 4, "d_head": 8, "d_inner": 48}
    config = transformers.FunnelConfig(**sizes, block_sizes=[1, 1], num_decoder_layers=1)
    found = attach(transformers.FunnelModel(config).eval()).backends
    assert len(found) == 3
    assert all(each.effect > 0 for each in found)


def test_what_attends_once_for_each_piece_is_edited_in_all_of_them():
    module = reader("in pieces")
    model = attach(module, example=(ids_of(1, 4),))
    ids, attention = ids_of(2, 12), module.layers[0]
    with torch.no_grad():
        hook = attention.out.register_forward_pre_hook(
            lambda _, args: (args[0].clone().index_fill(-1, torch.arange(4, 8), 0.0),)
        )
        expected = module(ids)
        hook.remove()
        with (
            attnlab.edit(model, attnlab.ZeroHead(head=1)),
            attnlab.record(model, "*.weights") as recording,
        ):
            assert torch.equal(model(ids), expected)
    assert len(recording.all(next(iter(recording)))) == 3


@torch.no_grad()
def test_rows_of_windows_are_not_taken_for_inputs():
    foreign = FAMILIES["swin"].build()
    model, inputs = attach(foreign), probe_inputs(foreign)
    site = next(path for path, _ in model.attention_points())
    with (
        pytest.raises(WrongUsage, match=r"rows for 1 input, such as windows .* leave row= out"),
        attnlab.edit(model, attnlab.ZeroHead(site=site, head=0, row=0)),
    ):
        model(**inputs)
    with attnlab.edit(model, attnlab.ZeroHead(site=site, head=0)) as certificate:
        model(**inputs)
    assert certificate.holds


def test_what_attends_more_often_than_the_doors_know_is_told():
    class Thrice(Attention):
        def forward(self, x):
            times = 3 if x.shape[1] > 6 else 2
            return self.out(sum(_usual(*self.qkv(x).chunk(3, -1)) * n for n in range(1, times + 1)))

    module = reader("usual")
    module.layers[0] = stirred(Thrice("usual"), 1)
    model = attach(module, example=(ids_of(1, 6),))
    assert len(list(model.attention_points())) == 2
    with (
        pytest.raises(CouldNotRun, match="attends more than 2 times"),
        attnlab.record(model, "*.weights"),
    ):
        model(ids_of(1, 9))


block_alone = test_a_block_that_is_called_by_itself_as_checkpointing_calls_it_is_recorded
orders = test_attention_whose_axes_stand_in_another_order_is_refused


FAULTS = {
    "hooks": [("self._intercept(place)", 'self._intercept("")', block_alone)],
    "backends.functions": [("return dim in", "return True or dim in", orders, "keys first", 1)],
    "verify": [("not _begins_with(twice, heads)", "0", orders, "heads folded outside", 1)],
}
test_every_fault_has_its_place_in_the_code, test_a_planted_fault_is_noticed = fault_tests(
    faults_of(FAULTS, "pretrained.")
)
