"""Padded batches, half precision, several models at once, and what is left behind: nothing."""

import threading
from functools import partial

import pytest
import torch

import attnlab
from attnlab.pretrained.attach import attach
from tests.pretrained.families import FAMILIES
from tests.pretrained.trying import (
    Tried,
    broken_off,
    difference,
    head_zeroed,
    installed_hooks,
    tried,
)
from tests.sampling import first_of_each, sampled

pytest.importorskip("transformers")

ON_THE_LEFT = ("llama", "gemma3", "bloom", "falcon", "gpt_oss")
ON_THE_RIGHT = ("gpt2", *ON_THE_LEFT, "gptj", "bert", "modernbert", "deberta_v2", "t5", "bart")
PADDED = [("left", name) for name in ON_THE_LEFT] + [("right", name) for name in ON_THE_RIGHT]
SHORT, LONG = 5, 9


@pytest.mark.parametrize(
    ("side", "name"), first_of_each(PADDED, lambda case: (case[0], FAMILIES[case[1]].kind))
)
def test_a_padded_row_is_the_row_alone(side, name):
    each = tried(name)
    source = torch.Generator().manual_seed(3)
    ids = torch.randint(3, 100, (2, LONG), generator=source)
    real = torch.ones(2, LONG, dtype=torch.bool)
    kept = slice(LONG - SHORT, LONG) if side == "left" else slice(0, SHORT)
    real[1] = False
    real[1, kept] = True
    more = {"use_cache": False} if name != "bert" else {}
    alone = {"input_ids": ids[1:, kept]}
    if each.family.kind == "encoder–decoder":
        target = torch.randint(3, 100, (2, 4), generator=source)
        more["decoder_input_ids"] = target
        alone["decoder_input_ids"] = target[1:]
    padded = torch.where(real, ids, 0)
    with torch.no_grad():
        with attnlab.record(each.model, "*.weights") as one:
            own = each.model(**alone)
        with attnlab.record(each.model, ["*.weights", "*.scores"]) as both:
            found = each.model(padded, real=real, **more)
    rows = slice(None) if each.family.kind == "encoder–decoder" else kept
    assert difference(found[1:, rows], own) <= 2e-5 * float(own.abs().max())
    for point in each.points:
        site = f"{point}.weights"
        reads_source = point.startswith("encoder") or (
            not point.startswith("decoder") and each.family.kind != "encoder–decoder"
        )
        queries = kept if reads_source else slice(None)
        keys = kept if reads_source or point.endswith("cross_attention") else slice(None)
        assert difference(both[site][1:, :, queries, keys], one[site]) <= 1e-5
        if name != "gpt_oss":  # its scores are without the sinks
            scores = both[f"{point}.scores"][0]
            assert difference(scores.softmax(-1), both[site][0]) <= 1e-5
        if keys == kept:
            hidden = torch.ones(LONG, dtype=torch.bool)
            hidden[kept] = False
            assert not both[site][1, :, queries][..., hidden].any(), "a real query looks at padding"
            assert both.real(site, row=1)[1] == real[1].tolist()
            assert all(both.real(site, row=0)[1])


HALF = [(name, torch.bfloat16) for name in ("gemma3", "t5", "gpt_oss")]
MORE = [(name, torch.bfloat16) for name in ("llama", "falcon", "vit", "bert", "bloom", "xlnet")]
MORE += [(name, torch.float16) for name, _ in HALF + MORE if name != "bert"]


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        *HALF,
        ("bert", torch.float16),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in MORE),
    ],
)
def test_models_in_half_precision_are_seen_to_their_own_precision(name, dtype):
    try:
        each = Tried(FAMILIES[name], dtype)
    except (RuntimeError, NotImplementedError) as refused:  # of torch, by the family's own code
        pytest.skip(f"{name} does not run in {dtype} here: {refused}")
    with attnlab.record(each.model, "*") as recording:
        assert torch.equal(each.run(), each.plain)
    # Weights are at most 1, so that one rounding of scores of some units is some units in the last
    # place.
    within = 16 * torch.finfo(dtype).eps
    for point, own in zip(each.points, each.own_weights, strict=True):
        assert difference(recording[f"{point}.weights"].float(), own.float()) <= within
    point = each.points[0]
    with attnlab.edit(each.model, attnlab.ZeroHead(site=point, head=0)) as certificate:
        assert not torch.equal(each.run(), each.plain)
    assert certificate.failures == []


@pytest.mark.parametrize("error", [ValueError("broken"), KeyboardInterrupt()], ids=repr)
@pytest.mark.parametrize("name", sampled(["llama", "t5", "gptj", "falcon", "swin"], 2))
def test_nothing_stays_behind_also_when_the_model_breaks_off(name, error):
    each = tried(name)
    with attnlab.record(each.model, "*"):
        with attnlab.edit(each.model, attnlab.ZeroHead(site=each.points[0], head=0), certify=False):
            each.run()
        assert installed_hooks(each.foreign)
    assert installed_hooks(each.foreign) == []
    assert torch.equal(each.run(), each.plain)
    breaking = partial(broken_off, each, each.points[0], 1, error)
    with pytest.raises(type(error)), attnlab.record(each.model, "*"), breaking():
        each.run()
    assert installed_hooks(each.foreign) == []
    with attnlab.record(each.model, "*") as recording:
        assert torch.equal(each.run(), each.plain)
        with pytest.raises(type(error)), breaking():
            each.run()
        assert torch.equal(each.run(), each.plain)  # a broken pass is not in the way of the next
    assert f"{each.points[0]}.weights" in recording


@pytest.mark.parametrize("name", sampled(["llama", "gptj"], 1))
def test_two_models_in_two_threads_do_not_disturb_each_other(name):
    first, other = tried(name), attach(FAMILIES[name].build(seed=1))
    plain = {first.model: first.plain, other: other(**first.inputs).detach()}
    wrong: list[str] = []
    together = threading.Barrier(2, timeout=60)

    def work(model, head):
        together.wait()
        with torch.no_grad():
            for _ in range(4):
                with attnlab.record(model, "*") as recording:
                    if not torch.equal(model(**first.inputs), plain[model]):
                        wrong.append("looking")
                with attnlab.edit(model, attnlab.ZeroHead(site=first.points[0], head=head)):
                    if torch.equal(model(**first.inputs), plain[model]):
                        wrong.append("editing")
                if f"{first.points[0]}.weights" not in recording:
                    wrong.append("recording")

    threads = [threading.Thread(target=work, args=each) for each in ((first.model, 0), (other, 1))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert installed_hooks(first.foreign) == installed_hooks(other.foreign) == []


def test_a_model_in_training_mode_stays_in_it_and_is_checked_in_rest():
    foreign = FAMILIES["bert"].build().train()
    model = attach(foreign)
    assert all(module.training for module in foreign.modules())
    assert installed_hooks(foreign) == []
    foreign.eval()
    assert torch.equal(model(**tried("bert").inputs), tried("bert").plain)


@pytest.mark.parametrize("name", sampled(["t5", "bart"], 1))
def test_an_edit_of_cross_attention_moves_the_logits(name):
    each = tried(name)
    points = [point for point in each.points if point.endswith("cross_attention")]
    assert len(points) == 2
    for point in points:
        for edit in (
            attnlab.edits.UniformPattern(site=point),
            attnlab.edits.Temperature(site=point, temperature=3.0),
            attnlab.edits.ZeroValue(site=point, key=1),
        ):
            with attnlab.edit(each.model, edit) as certificate:
                assert difference(each.run(), each.plain) > 1e-3  # more than opening it changes
            assert certificate.failures == []


@pytest.mark.parametrize("name", ["llama", "gemma2"])
def test_the_value_of_one_query_head_of_a_group_is_its_own(name):
    each = tried(name)
    zero = attnlab.edits.ZeroValue(site="layers.1.attention", head=2)
    with attnlab.edit(each.model, zero) as certificate:
        found = each.run()
    assert certificate.failures == []
    with head_zeroed(each, "layers.1.attention", 2):
        expected = each.run()
    assert difference(found, expected) <= 1e-5 * float(found.abs().max())


@pytest.mark.parametrize("name", ["llama", "gemma2", "falcon (new)"])
def test_a_mask_is_edited_beside_padding_on_the_left_and_certified(name):
    each = tried(name)
    ids = torch.randint(3, 101, (2, 9), generator=torch.Generator().manual_seed(3))
    real = torch.ones_like(ids)
    real[0, :4] = 0
    given, site = {"input_ids": ids, "attention_mask": real}, "layers.1.attention"
    with torch.no_grad():
        expected = each.eager(**given, output_attentions=True).attentions[1].clone()
        cut = attnlab.CutEdge(site=site, query=-1, key=6)
        with (
            attnlab.edit(each.model, cut) as certificate,
            attnlab.record(each.model, f"{site}.weights") as recording,
        ):
            each.foreign(**given)
    expected[:, :, -1, 6] = 0.0
    expected[:, :, -1] /= expected[:, :, -1].sum(-1, keepdim=True)
    assert certificate.identity == 0.0
    assert difference(recording[f"{site}.weights"][0, :, 4:], expected[0, :, 4:]) <= 1e-6
    assert difference(recording[f"{site}.weights"][1], expected[1]) <= 1e-6
