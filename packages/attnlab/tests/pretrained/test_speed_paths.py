"""What is left out for speed in models that are not ours changes no number."""

import gc
import importlib

import pytest

from tests.planting import noticed

pytest.importorskip("transformers")

import torch

import attnlab
from attnlab.edits.effects import Metric, ablate
from attnlab.errors import CouldNotRun, WrongUsage
from attnlab.look import record
from attnlab.parts.probes import Probe
from attnlab.pretrained.backends import registry as products
from attnlab.pretrained.backends.registry import faster_products
from attnlab.pretrained.model import Pretrained
from tests.pretrained.trying import head_zeroed, tried
from tests.sampling import sampled

sweeping = importlib.import_module("attnlab.edits.effects.sweep")
linears = importlib.import_module("attnlab.parts.linear")

TOKENS = torch.randint(3, 101, (2, 9), generator=torch.Generator().manual_seed(1))


def model_of(name):
    """A model in float64."""
    return tried(name, torch.float64).model


def inputs_of(name):
    return (TOKENS, TOKENS[:, :5]) if name == "t5" else TOKENS


def logits_of(model, inputs):
    with torch.no_grad():
        return model(*inputs) if isinstance(inputs, tuple) else model(inputs)


def metric_of(model, inputs):
    """The logit of an answer at the last position: what comes before need not be known."""
    logits = logits_of(model, inputs)
    labels = torch.full(logits.shape[:2], -100)
    labels[:, -1] = logits[:, -1].argmax(-1)
    return Metric("logit", labels), labels[:, -1]


def silenced(name, place):
    """Zero one head before the output projection by a hook."""
    return head_zeroed(tried(name, torch.float64), place.path, place.head)


def zeroed(name, place):
    """Zero one head by an edit."""
    return attnlab.edit(
        model_of(name), attnlab.ZeroHead(site=place.path, head=place.head), certify=False
    )


def check_knock_outs(name, without_head=silenced, stride=1):
    """Hold a sweep to whole passes without a head: the logits of the answers."""
    model, inputs = model_of(name), inputs_of(name)
    metric, answers = metric_of(model, inputs)
    found = ablate(model, inputs, metric=metric)
    for index in range(0, len(found.places), stride):
        with without_head(name, found.places[index]):
            one = logits_of(model, inputs)[torch.arange(2), -1, answers]
        torch.testing.assert_close(found.after[index], one, rtol=0, atol=1e-10)
    return found


@pytest.mark.parametrize("name", sampled(["llama", "bert", "gpt2"], 2))
def test_a_head_knocked_out_in_a_sweep_is_its_slice_zeroed_by_hand_in_a_whole_pass(name):
    check_knock_outs(name)


def test_a_sweep_over_an_encoder_and_a_decoder_equals_edits_one_by_one():
    found = check_knock_outs("t5", zeroed, stride=5)
    assert {place.path.split(".")[0] for place in found.places} == {"encoder", "decoder"}


def test_a_sweep_over_layers_that_are_one_module_equals_edits_one_by_one():
    found = check_knock_outs("albert", zeroed)
    assert len(found.parts) >= 2


def test_the_check_sees_calls_of_a_shared_module_left_out():
    shared = "{path for path, calls in self._calls.items() if calls > 1}"
    with noticed("pretrained.hooks", shared, "set()"):
        check_knock_outs("albert", zeroed)


def count_positions(model, run):
    """Say how many (positions, rows) the output head was given, pass by pass."""
    seen = []
    head = model.foreign.get_output_embeddings()
    hook = head.register_forward_hook(lambda _, given, __: seen.append(tuple(given[0].shape[:2])))
    try:
        run()
    finally:
        hook.remove()
    return seen


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_logits_are_computed_for_the_positions_that_are_asked_alone(name):
    model = model_of(name)
    metric, _ = metric_of(model, TOKENS)
    seen = count_positions(model, lambda: ablate(model, TOKENS, metric=metric))
    assert seen[0][1] == 9  # the plain pass, from which labels may be taken anywhere
    assert {positions for _, positions in seen[1:]} == {1}
    labels = torch.full_like(TOKENS, -100)
    labels[0, 6] = 5  # three from the end, in one of two inputs
    labels[1, 8] = 5
    asked = Metric("logit", labels)
    seen = count_positions(model, lambda: ablate(model, TOKENS, metric=asked))
    assert {positions for _, positions in seen[1:]} == {3}


def test_a_metric_that_sees_all_logits_is_given_all():
    model = model_of("gpt2")
    asked = Metric(lambda logits: logits.sum((1, 2)))
    seen = count_positions(model, lambda: ablate(model, TOKENS, metric=asked))
    assert {positions for _, positions in seen} == {9}


def test_blocks_before_a_case_are_not_computed_again():
    model, calls = model_of("gpt2"), []
    metric, _ = metric_of(model, TOKENS)
    hook = model.foreign.transformer.h[0].mlp.register_forward_hook(lambda *_: calls.append(1))
    try:
        ablate(model, TOKENS, metric=metric, parts="layers.1.attention")
    finally:
        hook.remove()
    assert len(calls) == 1  # the plain pass


def test_small_batches_give_what_large_ones_give(monkeypatch):
    model = model_of("llama")
    metric, _ = metric_of(model, TOKENS)
    large = ablate(model, TOKENS, metric=metric)
    monkeypatch.setattr(sweeping, "_CACHED", 1)
    seen = count_positions(model, lambda: ablate(model, TOKENS, metric=metric))
    assert {rows for rows, _ in seen} == {2}  # one case at a time, of two inputs
    small = ablate(model, TOKENS, metric=metric)
    torch.testing.assert_close(small.after, large.after, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", ["gpt2", "t5"])
def test_a_pass_keeps_no_cache_that_nobody_is_given_and_its_logits_stay_the_same(name):
    model, given = model_of(name), inputs_of(name)
    named = model.arguments(*given) if isinstance(given, tuple) else {"input_ids": given}
    told = []
    hook = model.foreign.register_forward_hook(
        lambda _, __, output: told.append(output.get("past_key_values"))
    )
    try:
        with torch.no_grad():
            ours = model(**named)
            theirs = model.foreign(**named).logits
            model(**named, use_cache=True)
    finally:
        hook.remove()
    assert torch.equal(ours, theirs)
    assert told[0] is None
    assert told[1] is not None
    assert told[2] is not None  # who says so gets it


def test_a_cache_that_is_given_goes_on_being_filled():
    model = model_of("gpt2")
    with torch.no_grad():
        whole = model(TOKENS)
        cache = model.foreign(TOKENS[:, :6]).past_key_values
        rest = model(TOKENS[:, 6:], past_key_values=cache)
    torch.testing.assert_close(rest, whole[:, 6:], rtol=0, atol=1e-10)
    assert cache.get_seq_length() == 9


def a_block_of_the_layer_after(monkeypatch):
    """The known block's output is stale: that of the model before the last of its blocks."""
    real = sweeping.known_before

    def known(baseline, site, times):
        found = real(baseline, site, times)
        for earlier in found:
            if earlier.endswith("residual_after"):
                found[earlier] = lambda: sweeping.copies(baseline.values["embedding"], times)
        return found

    monkeypatch.setattr(sweeping, "known_before", known)


def rows_mixed_up(monkeypatch):
    """Copies are laid row by row, the batch copy by copy."""
    monkeypatch.setattr(sweeping, "copies", lambda value, times: value.repeat_interleave(times, 0))


def one_position_too_early(monkeypatch):
    """Of the last two positions, the logits of the first are kept."""
    kept = {"logits_to_keep": torch.tensor([-2])}
    monkeypatch.setattr(Pretrained, "last_alone", lambda self, number: kept)


@pytest.mark.parametrize(
    "fault", sampled([one_position_too_early, a_block_of_the_layer_after, rows_mixed_up], 1)
)
def test_a_planted_fault_is_seen(monkeypatch, fault):
    fault(monkeypatch)
    with pytest.raises(AssertionError, match="not close"):
        check_knock_outs("gpt2")


def test_a_pass_that_makes_a_cache_unasked_is_seen(monkeypatch):
    model = model_of("gpt2")
    monkeypatch.setattr(model, "_takes", {})
    with pytest.raises(AssertionError):
        test_a_pass_keeps_no_cache_that_nobody_is_given_and_its_logits_stay_the_same("gpt2")


@pytest.fixture
def small_ones_too(monkeypatch):
    """Products of any size take the faster path, which is said to be there."""
    if linears.matrix_path_probe().ratio is None:
        pytest.skip("this torch has no oneDNN path")  # nothing could be faster
    monkeypatch.setattr(linears, "_SMALLEST_FLOPS", 0)


def check_faster(model, monkeypatch):
    """Every product is computed by the other path, and the logits are the same but for rounding."""
    calls, real = [], linears._onednn
    with torch.no_grad():
        plain = model(TOKENS)
        monkeypatch.setattr(linears, "_onednn", lambda *given: calls.append(1) or real(*given))
        with faster_products(model):
            faster = model(TOKENS)
            with record(model, "layers.*.attention.weights") as recording:
                assert torch.equal(model(TOKENS), faster)
        counted = len(calls)
        assert torch.equal(model(TOKENS), plain)  # nothing is left behind
    kinds = [type(each).__name__ for each in model.foreign.modules()]
    assert counted == 2 * (kinds.count("Linear") + kinds.count("Conv1D"))
    assert len(calls) == counted
    torch.testing.assert_close(faster, plain, rtol=0, atol=1e-5)
    torch.testing.assert_close(recording["layers.1.attention.weights"].sum(-1), torch.ones(2, 4, 9))


@pytest.mark.usefixtures("small_ones_too")
@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_faster_products_are_the_same_for_as_long_as_asked_for(monkeypatch, name):
    check_faster(tried(name).model, monkeypatch)


@pytest.mark.usefixtures("small_ones_too")
def test_a_product_that_forgets_its_bias_is_seen(monkeypatch):
    turned = "linear(x, layer.weight.t(), layer.bias)"
    with noticed("pretrained.backends.registry", turned, turned.replace(", layer.bias", "")):
        check_faster(tried("gpt2").model, monkeypatch)


@pytest.mark.usefixtures("small_ones_too")
def test_a_layer_that_somebody_has_changed_is_left_as_it_is():
    head = tried("gpt2").model.foreign.lm_head
    head.forward = changed = lambda x: torch.zeros(*x.shape[:-1], 101)
    try:
        with faster_products(tried("gpt2").model), torch.no_grad():
            assert not tried("gpt2").model(TOKENS).any()
        assert head.forward is changed
    finally:
        del head.forward


def test_faster_products_leave_float64_to_the_bit_and_are_gone_when_the_pass_breaks_off():
    model = model_of("gpt2")
    with torch.no_grad():
        plain = model(TOKENS)
        with faster_products(model):
            assert torch.equal(model(TOKENS), plain)
        with pytest.raises(IndexError), faster_products(model):
            model(TOKENS + 1000)
    assert not [path for path, each in model.foreign.named_modules() if "forward" in vars(each)]


def test_faster_products_are_refused_where_there_is_no_such_path(monkeypatch):
    none = Probe(None, False, "no oneDNN in this torch")
    monkeypatch.setattr(products, "matrix_path_probe", lambda: none)
    with pytest.raises(CouldNotRun, match="no oneDNN"), faster_products(model_of("gpt2")):
        pass
    with pytest.raises(WrongUsage, match="got a str"), faster_products("gpt2"):
        pass


def test_speed_is_one_switch_for_both_paths_called_or_within(monkeypatch):
    from attnlab.parts import fused

    monkeypatch.setattr(linears._PATH, "setting", None)
    monkeypatch.setattr(fused._PATH, "setting", None)
    with attnlab.speed(matrix="default", attention="default"):
        assert (linears._PATH.setting, fused._PATH.setting) == ("default", "default")
        choice = attnlab.speed(matrix="onednn")
        assert (linears._PATH.setting, fused._PATH.setting) == ("onednn", "default")
        choice.end()
        choice.end()  # which changes nothing more
        assert linears._PATH.setting == "default"
    assert (linears._PATH.setting, fused._PATH.setting) == (None, None)
    attnlab.speed(matrix="onednn")  # kept by nobody, and still in use
    gc.collect()
    assert linears._PATH.setting == "onednn"
    products._in_use[-1].end()
    assert linears._PATH.setting is None


def test_speed_of_a_model_takes_its_faster_products_and_a_mistake_chooses_nothing():
    model, before = model_of("gpt2"), linears._PATH.setting
    with attnlab.speed(model):
        assert any("forward" in vars(each) for each in model.modules())
    assert not any("forward" in vars(each) for each in model.modules())
    with pytest.raises(WrongUsage, match="choose what to speed up"):
        attnlab.speed()
    with pytest.raises(WrongUsage, match="got a str"):
        attnlab.speed("gpt2", matrix="onednn")
    assert linears._PATH.setting is before
    with pytest.raises(WrongUsage, match="the matrix path must be one of"):
        attnlab.speed(matrix="mkl")
