"""Lenses on foreign models: the last stage is the model's own answer."""

from dataclasses import replace

import pytest
import torch

import attnlab
from attnlab.errors import CouldNotRun, WrongUsage
from attnlab.look import readout
from attnlab.pretrained.attach import attach
from tests.pretrained.families import FAMILIES
from tests.pretrained.trying import tried
from tests.sampling import sampled

transformers = pytest.importorskip("transformers")

_SAMPLE = ("openai-gpt", "gemma2", "t5")
_WITHOUT = ("wav2vec2", "hubert", "vit", "deit", "dinov2", "beit", "swin", "clip")
_READ = [name for name in FAMILIES if name not in _WITHOUT]
_SUMMED = [name for name in _READ if name != "xlnet"]


def two_rows(model):
    """Inputs of two rows that differ."""
    example = model.example.items()
    tensors = {name: each for name, each in example if isinstance(each, torch.Tensor)}
    return {**model.example, **{k: torch.cat((v, v.flip(-1))) for k, v in tensors.items()}}


@pytest.mark.parametrize("name", sampled(_SUMMED, _SAMPLE))
def test_what_all_parts_write_adds_up_to_the_logits(name):
    model = tried(name).model
    inputs = two_rows(model)
    with torch.no_grad():
        own = model(**inputs)[:, 3]
    labels = torch.tensor([7, 11])
    found = attnlab.direct_logits(model, inputs, target=labels, position=3)
    assert torch.equal(found.logits, own[torch.arange(2), labels])
    assert found.error <= 4e-6 * max(1.0, float(own.abs().max()))
    heads = attnlab.head_lens(model, inputs, position=3)
    of_heads = found.shares[[writer.head is not None for writer in found.writers]]
    assert torch.allclose(heads.logits[:, torch.arange(2), labels], of_heads, atol=1e-5)
    stack = model.structure.stacks[-1]
    attentions = [each for block in stack.blocks for each in block.attentions]
    assert len(heads.heads) == sum(each.num_heads for each in attentions)
    assert float(of_heads.abs().min()) > 0


@pytest.mark.parametrize("name", sampled(_READ, _SAMPLE))
def test_the_last_stage_is_the_model_s_own_answer_and_the_first_reads_the_embedding(name):
    model = tried(name).model
    inputs = two_rows(model)
    found = attnlab.logit_lens(model, inputs, position=torch.tensor([2, -1]))
    with torch.no_grad():
        own = model(**inputs)
    assert torch.equal(found.logits[-1], torch.stack((own[0, 2], own[1, -1])))
    assert len(found.sites) == 1 + len(model.structure.stacks[-1].blocks)
    assert not torch.allclose(found.logits[0], found.logits[-1])


def test_a_stage_is_the_stream_through_the_final_norm_and_the_output_embedding():
    model = tried("llama").model
    with torch.no_grad(), attnlab.record(model, "layers.0.residual_after") as recording:
        model(**model.example)
    stream = recording["layers.0.residual_after"]
    with torch.no_grad():
        expected = model.foreign.lm_head(model.foreign.model.norm(stream))[:, -1]
    found = attnlab.logit_lens(model, model.example)
    assert torch.equal(found.logits[1], expected)


def test_a_head_s_share_is_its_slice_through_the_output_projection_and_the_held_norm():
    model = tried("llama").model
    foreign = model.foreign
    sites = ["layers.1.attention.heads", "layers.1.residual_after"]
    with torch.no_grad(), attnlab.record(model, sites) as recording:
        logits = model(**model.example)
    heads, last = recording[sites[0]][0, :, -1], recording[sites[1]][0, -1]
    held = foreign.model.norm.weight / (last.square().mean() + foreign.config.rms_norm_eps).sqrt()
    projection = foreign.model.layers[1].self_attn.o_proj.weight.view(32, 4, 8)
    expected = (held * torch.einsum("hw,dhw->hd", heads, projection)) @ foreign.lm_head.weight.T
    found = attnlab.head_lens(model, model.example)
    assert torch.allclose(found.logits[4:, 0], expected, atol=1e-5)
    assert logits.shape[-1] == expected.shape[-1]


def test_a_silenced_head_has_no_share_and_the_rest_still_adds_up():
    model = tried("gpt2").model
    with attnlab.edit(model, attnlab.ZeroHead(layer=1, head=2)) as certificate:
        found = attnlab.direct_logits(model, model.example)
    shares = dict(zip(map(str, found.writers), found.shares[:, 0].tolist(), strict=True))
    assert shares["head 1.2"] == 0.0 != shares["head 1.1"]
    assert found.error < 1e-5
    assert not certificate.failures


def test_an_edit_of_the_stream_is_told_as_for_our_own_models():
    model = tried("gpt2").model
    scaled = attnlab.edits.ScaleSite(site="layers.0.residual_after", factor=2.0)
    with attnlab.edit(model, scaled, certify=False), pytest.raises(WrongUsage, match="the stream"):
        attnlab.direct_logits(model, model.example)


@pytest.mark.parametrize("fault", ["a part is forgotten", "a norm's scale is not held"])
def test_the_check_of_the_sum_finds_a_planted_fault(fault, monkeypatch):
    model, alone, of = tried("gpt2").model, readout._alone, readout.FrozenNorm.of

    def wrong(*given):
        norm = of(*given)
        return replace(norm, scale=1.1 * norm.scale)

    if fault == "a part is forgotten":
        monkeypatch.setattr(readout, "_alone", lambda heads: 0.0 * alone(heads))
    else:
        monkeypatch.setattr(readout.FrozenNorm, "of", wrong)
    with pytest.raises(WrongUsage, match="do not sum to the logits"):
        attnlab.direct_logits(model, model.example)


@pytest.mark.parametrize("name", ["vit", "clip"])
def test_a_model_without_an_output_embedding_is_told_so(name):
    model = tried(name).model
    words = f"^{type(model.foreign).__name__} has no output embedding"
    for lens in (attnlab.logit_lens, attnlab.head_lens, attnlab.direct_logits):
        with pytest.raises(CouldNotRun, match=words):
            lens(model, model.example)


def test_what_is_no_sum_is_refused_with_the_reason_and_the_logit_lens_reads_it():
    model = tried("xlnet").model
    with pytest.raises(CouldNotRun, match=r"transformer\.layer\.0 is not the sum"):
        attnlab.head_lens(model, model.example)
    assert len(attnlab.logit_lens(model, model.example).sites) == 3


def test_a_read_out_that_mixes_numbers_is_refused_by_its_name():
    model = attach(FAMILIES["bert"].build())
    model.foreign.cls.predictions.transform.transform_act_fn.forward = lambda x: x.softmax(-1)
    with pytest.raises(CouldNotRun, match=r"transform_act_fn, .* neither matrix, norm nor act"):
        attnlab.direct_logits(model, model.example)
