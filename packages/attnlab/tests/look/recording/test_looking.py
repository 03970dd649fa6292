"""Recording changes nothing, leaves nothing behind, and shows what was there."""

from contextlib import ExitStack, nullcontext

import numpy as np
import pytest
import torch

from attnlab.errors import CouldNotRun, WrongUsage
from attnlab.look import record
from attnlab.parts.heads import multi_head_attention
from attnlab.seeds import isolated
from attnlab.sites import installed, site_names
from tests.hooks import Change, Watcher, no_hook_is_left, parameters_hash
from tests.random_models import any_case, new_model, run
from tests.sampling import sampled

TOKENS = torch.tensor([[1, 2, 3, 0], [3, 2, 1, 0]])


def decoder(seed=0, **options):
    return new_model("decoder", seed, **{"vocab_size": 4, "d_model": 8, **options})


@torch.no_grad()
def recorded(model, sites, *hooks, **options):
    """A pass over some tokens, with hooks that are installed inside the recording."""
    with record(model, sites) as recording, ExitStack() as stack:
        for hook in hooks:
            stack.enter_context(installed(model, hook))
        model(TOKENS, **options)
    return recording


@torch.no_grad()
def look(seed):
    """Run a case bare and recorded, with its weights computed in NumPy too."""
    each = any_case(seed)
    model, plain, before = each.model, run(each), parameters_hash(each.model)
    watcher = Watcher()
    with record(model, "*") as recording, installed(model, watcher):
        output = run(each)
    assert torch.equal(output.nan_to_num(7.0), plain.nan_to_num(7.0)), seed
    assert no_hook_is_left(model), seed
    assert parameters_hash(model) == before, seed
    assert all(site in recording or site.endswith("mask") for site in site_names(model)), seed
    tolerance = 1e-12 if plain.dtype == torch.float64 else 1e-6
    for site, (expected,) in watcher.weights.items():
        weights = recording[site].double().numpy()
        assert np.abs(weights - expected).max(initial=0.0) <= tolerance, (seed, site)
        blocked = recording.blocked(site)
        assert blocked is None or float(recording[site][0, :, blocked].abs().sum()) == 0.0


@pytest.mark.parametrize("start", sampled(range(0, 500, 15), 1))
def test_a_recording_shows_every_site_and_changes_nothing(start):
    for seed in range(start, start + 15):
        look(seed)


@torch.no_grad()
def test_recording_beside_an_edit_changes_the_edited_output_by_exactly_nothing():
    for seed in range(10):
        each = any_case(seed)
        site = next(name for name in site_names(each.model) if name.endswith("weights"))
        with installed(each.model, Change(site, lambda value: value.flip(-1))):
            edited = run(each)
            with record(each.model, "*") as recording:
                again = run(each)
        assert torch.equal(again.nan_to_num(7.0), edited.nan_to_num(7.0)), seed
        assert recording.edits == [{"kind": "changed", "site": site}]


def test_weights_of_an_edited_attention_are_the_edited_ones():
    model, site = decoder(), "layers.0.attention.weights"
    edit = Change(site, lambda value: torch.full_like(value, 0.25))
    recording = recorded(model, "*attention.weights", edit)
    assert torch.equal(recording[site], torch.full((2, 4, 4, 4), 0.25))
    tile = recording.tile(site, head=1, row=1, queries=slice(1, 3))
    assert torch.equal(tile, torch.full((2, 4), 0.25))
    assert torch.equal(recording.blocked(site), torch.ones(4, 4).triu(1).bool())
    assert recording["layers.1.attention.weights"].shape == (2, 4, 4, 4)
    assert len(recording.all(site)) == 1


def test_an_edited_query_gives_the_weights_of_the_edited_query():
    watcher, site = Watcher(), "layers.0.attention.weights"
    edit = Change("layers.0.attention.query", lambda value: value.flip(-2))
    recording = recorded(decoder(), site, edit, watcher)
    np.testing.assert_allclose(recording[site].numpy(), *watcher.weights[site], atol=1e-6)


def test_an_edited_mask_is_the_one_that_is_known():
    site = "layers.0.attention.mask"
    edit = Change(site, lambda mask: mask & ~torch.eye(4).bool())
    recording = recorded(decoder(), ["*attention.weights", site], edit)
    hidden = torch.ones(4, 4).triu(0).bool()
    assert torch.equal(recording.blocked("layers.0.attention.weights"), hidden)
    assert torch.equal(recording[site], ~hidden)
    past = torch.ones(4, 4).tril().bool()
    assert torch.equal(recording.blocked("layers.1.attention.weights"), ~past)
    assert float(recording["layers.0.attention.weights"][:, :, 0].abs().max()) == 0.0
    assert len(recording.all(site)) == 1


def test_masks_that_differ_from_layer_to_layer_are_kept_apart():
    model, seen = decoder(), torch.tensor([True, False, True, True])
    sites = [f"layers.{layer}.attention.weights" for layer in (0, 1)]
    other = torch.tensor([True, True, False, True])
    edit = Change("layers.1.attention.mask", lambda mask: mask & other)
    recording = recorded(model, sites, edit, mask=seen)
    past = torch.ones(4, 4).tril().bool()
    assert torch.equal(~recording.blocked(sites[0]), past & seen)
    assert torch.equal(~recording.blocked(sites[1]), past & seen & other)
    recording = recorded(model, sites, mask=seen)
    kept = [recording._store.of(site)[-1].mask.mask for site in sites]
    assert kept[0] is kept[1]  # the same mask is kept once


@torch.no_grad()
@pytest.mark.parametrize("scale", [None, True, False, 0.3, 2])
def test_weights_made_on_demand_have_the_scale_of_their_attention(scale):
    part, watcher = multi_head_attention(8, 2, scale=scale), Watcher()
    with record(part, ["weights", "scores"]) as recording, installed(part, watcher):
        part(torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(0)))
    np.testing.assert_allclose(recording["weights"].numpy(), *watcher.weights["weights"], atol=1e-6)
    torch.testing.assert_close(recording["scores"].softmax(-1), recording["weights"])


def test_what_is_recorded_is_not_reached_by_later_changes_in_place():
    model, stream = decoder(norm_place="none"), "layers.0.residual_before"
    sites = [stream, *(f"layers.0.attention.{name}" for name in ("weights", "query", "mask"))]
    raw = []
    takers = [Change(site, lambda value: raw.append(value) or value) for site in sites[::2]]
    spoiled = Change("layers.0.attention.heads", lambda value: [v.zero_() for v in raw] and value)
    recording = recorded(model, sites, *takers, spoiled)
    assert len(raw) == 2
    assert all(float(each.abs().max()) == 0.0 for each in raw)
    assert recording.compare(recorded(model, sites)).largest == 0.0


@torch.no_grad()
def test_several_forward_passes_are_kept_apart_and_the_last_one_is_the_value():
    model, site = decoder(), "layers.1.attention.weights"
    with record(model, [site, "logits"]) as recording:
        outputs = [model(TOKENS), model(TOKENS[:1, :2]), model(TOKENS.flip(1))]
    assert [each.shape[-1] for each in recording.all(site)] == [4, 2, 4]
    assert all(torch.equal(a, b) for a, b in zip(recording.all("logits"), outputs, strict=True))
    assert torch.equal(recording[site], recording.all(site)[-1])
    assert recording.shape(site) == (2, 4, 4, 4)


@torch.no_grad()
def test_nothing_stays_after_an_error_and_what_had_passed_is_there():
    model, other = decoder(), decoder(1)

    def fail(value):
        raise KeyError("on the way")

    failing = installed(model, Change("layers.1.residual_before", fail))
    with (
        record(other, "*") as beside,
        pytest.raises(KeyError),
        record(model, "*") as recording,
        failing,
    ):
        model(TOKENS)
    assert no_hook_is_left(model)
    assert no_hook_is_left(other)
    assert "layers.0.attention.weights" in recording
    assert "layers.1.attention.weights" not in recording
    with pytest.raises(WrongUsage, match="'logits' has no value yet"):
        recording["logits"]
    assert len(beside) == 0
    model(TOKENS)
    assert len(recording.all("embedding")) == 1


@torch.no_grad()
def test_recordings_at_once_do_not_mix():
    models = [decoder(seed) for seed in (0, 1)]
    plain = [model(TOKENS) for model in models]
    with (
        record(models[0], ["logits", "*weights"]) as first,
        record(models[1], "logits") as second,
        record(models[0], "*weights") as third,
    ):
        outputs = [model(TOKENS) for model in reversed(models)][::-1]
    for output, expected, recording in zip(outputs, plain, (first, second), strict=True):
        assert torch.equal(output, expected)
        assert torch.equal(recording["logits"], expected)
        assert len(recording.all("logits")) == 1
    assert first.compare(third).largest == 0.0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_training_goes_on_as_it_would(dtype):
    gradients = []
    for is_recorded in (False, True):
        model = decoder(dropout=0.3).to(dtype).train()
        with isolated(5), record(model, "*") if is_recorded else nullcontext():
            model(TOKENS).square().sum().backward()
        gradients.append([each.grad for each in model.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))


def test_inference_mode_and_members_of_a_population_can_be_recorded():
    model = decoder()
    with torch.inference_mode(), record(model, "*") as recording:
        model(TOKENS)
    weights = recording["layers.0.attention.weights"]
    values = torch.func.stack_module_state([decoder(seed) for seed in (0, 1)])[0]

    def seen(parameters):
        with record(model, "layers.*.attention.weights") as inside:
            torch.func.functional_call(model, parameters, (TOKENS,))
        return inside["layers.0.attention.weights"]

    with torch.no_grad():
        both = torch.func.vmap(seen)(values)
    assert both.shape == (2, *weights.shape)
    torch.testing.assert_close(both[0], weights, atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    ("patterns", "options", "message"),
    [
        ("layers.0.attention.wieghts", {}, r"did you mean .layers\.0\.attention\.weights."),
        ([], {}, "names of sites such as"),
        (None, {}, "names of sites such as"),
        (["*", 3], {}, "names of sites such as"),
        ("*", {"gradients": 3}, "sites are named by a pattern such as"),
        ("*", {"vocabulary": 3}, r"a vocabulary is a sequence.*got an int"),
        ("*", {"keep_on": "cuda:99"}, "cannot be kept on 'cuda:99'"),
    ],
)
def test_what_asks_for_nothing_that_is_there_is_an_error(patterns, options, message):
    refused = pytest.raises((WrongUsage, CouldNotRun), match=message)
    with refused, record(decoder(), patterns, **options):
        pass


@torch.no_grad()
def test_what_was_not_recorded_is_an_error():
    model = decoder()
    with pytest.raises(WrongUsage, match="record takes a torch module"), record("m", "*"):
        pass
    with pytest.raises(WrongUsage) as refused:
        record("The capital of France is")
    assert "load('The" not in str(refused.value)
    assert str(refused.value).count("attnlab.load") == 1
    with record(model, "logits") as recording:
        with pytest.raises(WrongUsage, match="'logits' has no value yet; run the model inside"):
            recording["logits"]
        model(TOKENS)
    for head in ("0.1", "L0H1"):
        with pytest.raises(WrongUsage, match=r'head 0.1 is recording\["layers.0.attention'):
            recording[head]
    with pytest.raises(WrongUsage, match="'embedding' is not recorded; known: logits"):
        recording["embedding"]
    assert "embedding" not in recording
    assert recording.get("embedding", 3) == 3


@torch.no_grad()
def test_a_mask_that_is_absent_says_so():
    recording = recorded(decoder(), "*mask")
    assert torch.equal(recording["layers.0.attention.mask"], torch.ones(4, 4).tril().bool())
    encoder = new_model("encoder", vocab_size=4, d_model=8)
    recording = recorded(encoder, ["*mask", "*weights"])
    with pytest.raises(WrongUsage, match="had no mask"):
        recording["layers.0.attention.mask"]
    assert recording.blocked("layers.0.attention.weights") is None


def test_what_was_recorded_in_inference_mode_may_be_used_with_gradients():
    model = decoder()
    with torch.inference_mode(), record(model, "*") as recording:
        model(TOKENS)
    for site in ("layers.0.residual_after", "layers.0.attention.weights"):
        factor = torch.ones((), requires_grad=True)
        (recording[site] * factor).sum().backward()
        assert factor.grad is not None
