"""Chat models of text and images: what is shown, edited and patched is what the model does, and the
axes say which positions show which patch of which image."""

import copy
import itertools
from functools import cache

import pytest
import torch

import attnlab
from attnlab.edits.effects import ablate, patch_all
from attnlab.errors import WrongUsage
from attnlab.pretrained.images import image_places
from tests.planting import fault_tests, faults_in
from tests.pretrained.families import SETTINGS, stirred
from tests.pretrained.trying import eager_copy
from tests.sampling import sampled

transformers = pytest.importorskip("transformers")

IMAGE, SIDE = 90, 4  # its token, and the width of a patch
_TEXT, _VISION = SETTINGS["grouped"], SETTINGS["picture"]


def _llava():
    config = transformers.LlavaConfig(
        vision_config=transformers.CLIPVisionConfig(**_VISION),
        text_config=transformers.LlamaConfig(**_TEXT),
        image_token_index=IMAGE,
        image_seq_length=16,
    )
    return config, [5, 6, *[IMAGE] * 16, 7, 8, 9]


def _gemma3():
    layers = {"sliding_window": 4, "layer_types": ["sliding_attention", "full_attention"]}
    config = transformers.Gemma3Config(
        vision_config=transformers.SiglipVisionConfig(**_VISION),
        text_config=transformers.Gemma3TextConfig(**_TEXT, head_dim=8, **layers),
        image_token_index=IMAGE,
        mm_tokens_per_image=4,
        boi_token_index=91,
    )
    return config, [5, 6, 91, *[IMAGE] * 4, 92, 7, 8, 9]


def _paligemma():
    config = transformers.PaliGemmaConfig(
        vision_config=transformers.SiglipVisionConfig(**_VISION, projection_dim=32),
        text_config=transformers.GemmaConfig(**_TEXT, head_dim=8),
        image_token_index=IMAGE,
        projection_dim=32,
    )
    return config, [*[IMAGE] * 16, 1, 5, 6, 7, 8, 9]


def _smolvlm():
    config = transformers.SmolVLMConfig(
        vision_config=_VISION, text_config=transformers.LlamaConfig(**_TEXT), image_token_id=IMAGE,
        scale_factor=2, pad_token_id=0,
    )  # fmt: skip
    return config, [5, 6, *[IMAGE] * 4, 7, *[IMAGE] * 4, 8, 9]


def _qwen2_5_vl():
    turned = {"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 10000.0}
    vision = {"depth": 2, "hidden_size": 32, "intermediate_size": 64, "num_heads": 4}
    vision |= {"out_hidden_size": 32, "patch_size": SIDE, "window_size": 16}
    config = transformers.Qwen2_5_VLConfig(
        vision_config={**vision, "fullatt_block_indexes": [1]},
        text_config={**_TEXT, "rope_parameters": turned},
        image_token_id=IMAGE,
        video_token_id=93,
        vision_start_token_id=91,
        vision_end_token_id=92,
    )
    return config, [5, 91, *[IMAGE] * 6, 92, 7, 8]


KINDS = {
    "Llava": _llava, "Gemma3": _gemma3, "PaliGemma": _paligemma, "SmolVLM": _smolvlm,
    "Qwen2_5_VL": _qwen2_5_vl,
}  # fmt: skip
AHEAD = {"Gemma3": "image", "PaliGemma": "prefix"}  # who looks at later positions, and where


@cache
def given(kind):
    """A model with random weights as transformers and as attnlab has it, and one input with its
    images."""
    config, ids = KINDS[kind]()
    foreign = getattr(transformers, f"{kind}ForConditionalGeneration")(config)
    source = torch.Generator().manual_seed(1)
    inputs = {"input_ids": torch.tensor([ids])}
    is_image = (inputs["input_ids"] == IMAGE).long()
    if kind == "Qwen2_5_VL":
        inputs["pixel_values"] = torch.randn(24, 3 * 2 * SIDE * SIDE, generator=source)
        inputs["image_grid_thw"] = torch.tensor([[1, 4, 6]])
        inputs["mm_token_type_ids"] = is_image
    elif kind == "SmolVLM":
        inputs["pixel_values"] = torch.randn(1, 2, 3, 16, 16, generator=source)
    else:
        inputs["pixel_values"] = torch.randn(1, 3, 16, 16, generator=source)
    if kind == "Gemma3":
        inputs["token_type_ids"] = is_image
    if kind == "PaliGemma":  # the prefix, then the answer
        inputs["token_type_ids"] = (torch.arange(len(ids)) >= 20).long().unsqueeze(0)
    foreign = stirred(foreign)
    return foreign, attnlab.load(foreign), inputs


each_kind = pytest.mark.parametrize("kind", KINDS)


@each_kind
def test_what_is_shown_is_what_the_model_computes_with_its_image(kind):
    foreign, model, inputs = given(kind)
    with torch.no_grad():
        plain = foreign(**inputs).logits
    recording = attnlab.record(model, inputs)
    with torch.no_grad():
        assert torch.equal(model(**inputs), plain)
        own = eager_copy(foreign)(**inputs, output_attentions=True).attentions
    for layer, weights in enumerate(own):
        site = f"layers.{layer}.attention.weights"
        torch.testing.assert_close(recording[site], weights, atol=2e-6, rtol=0)
    ahead = (recording["layers.1.attention.weights"][0].triu(1) > 0).any(0)
    is_image = inputs["input_ids"][0] == IMAGE
    prefix = torch.arange(len(is_image)) < 20
    open_to = {"image": is_image, "prefix": prefix}.get(AHEAD.get(kind), torch.zeros_like(is_image))
    assert torch.equal(ahead, (open_to[:, None] & open_to).triu(1))


@pytest.mark.parametrize("kind", sampled(KINDS, ["Gemma3", "SmolVLM", "Qwen2_5_VL"]))
def test_edits_ablations_patches_and_reasons_take_images_as_they_take_text(kind):
    _, model, inputs = given(kind)
    effects = ablate(model, inputs, metric="logit", target=3)
    with torch.no_grad(), attnlab.edit(model, attnlab.ZeroHead(layer=1, head=2)) as certificate:
        edited = model(**inputs)[0, -1, 3]
    assert certificate.holds
    place = [str(place) for place in effects.places].index("head 1.2")
    moved = float(edited - model(**inputs)[0, -1, 3].detach())
    assert float(effects.effects[place]) == pytest.approx(moved, abs=1e-4)
    both = {name: torch.cat([value, value]) for name, value in inputs.items()}
    both["input_ids"][1, -1] = 50
    of_two = ablate(model, both, metric="logit", target=3).effects[:, 0]
    torch.testing.assert_close(of_two, effects.effects[:, 0], atol=1e-5, rtol=0)
    other = {**inputs, "pixel_values": inputs["pixel_values"].flip(-1)}
    patched = patch_all(model, inputs, other, metric="logit", target=3)
    first = patched.effects.view(2, -1)[0]  # the stream before the first layer
    is_image = inputs["input_ids"][0] == IMAGE
    assert torch.equal(first != 0, is_image)
    assert list(patched.tokens[""]) == named(attnlab.record(model, inputs, "*.1.*weights"))
    assert attnlab.why(model, inputs, head="1.1", key=3).error < 1e-4


def named(recording):
    return recording.tokens("layers.1.attention.weights").key


def rows_and_columns(foreign, kind, inputs):
    """Change the pixels of one patch after the other, in a tower that does not mix patches; return
    the patches of each position that changes."""
    for name, parameter in foreign.named_parameters():
        is_seen = "vision" in name or "visual" in name
        if is_seen and ("out_proj" in name or "attn.proj" in name):
            parameter.data.zero_()
    changed, found = list(changed_patches(kind, inputs)), {}
    many = {name: torch.cat([value] * (1 + len(changed))) for name, value in inputs.items()}
    many["pixel_values"] = torch.cat([inputs["pixel_values"], *(other for *_, other in changed)])
    plain, *others = attnlab.record(attnlab.load(foreign), many, "embedding")["embedding"]
    for (row, column, _), other in zip(changed, others, strict=True):
        for position in ((other - plain).abs().amax(-1) > 1e-3).nonzero().flatten().tolist():
            found.setdefault(position, set()).add((row, column))
    return found


def changed_patches(kind, inputs):
    """Inputs whose pixels differ in one patch of the first image: row, column, pixels."""
    values = inputs["pixel_values"]
    if kind == "Qwen2_5_VL":  # patches come in squares of two by two
        squares = itertools.product(range(2), range(3), range(2), range(2))
        order = [(2 * high + row, 2 * wide + column) for high, wide, row, column in squares]
        for number, (row, column) in enumerate(order):
            other = values.clone()
            other[number] += 1.0
            yield row, column, other
        return
    for row in range(4):
        for column in range(4):
            other = values.clone()
            at = other[0, 0] if values.dim() == 5 else other[0]
            at[:, row * SIDE : (row + 1) * SIDE, column * SIDE : (column + 1) * SIDE] += 1.0
            yield row, column, other


@each_kind
def test_an_axis_names_the_patch_that_a_position_shows(kind):
    foreign, model, inputs = given(kind)
    names = named(attnlab.record(model, inputs, "*.1.attention.weights"))
    shows = rows_and_columns(copy.deepcopy(foreign), kind, inputs)
    merged = {"Gemma3": 2, "SmolVLM": 2, "Qwen2_5_VL": 2}.get(kind, 1)
    prefix = "image 0:" if kind == "SmolVLM" else "image"
    for position, name in enumerate(names):
        if int(inputs["input_ids"][0, position]) != IMAGE:
            assert name == str(int(inputs["input_ids"][0, position]))
            assert position not in shows
        elif position in shows:
            [(row, column)] = {(row // merged, column // merged) for row, column in shows[position]}
            assert name == f"{prefix} {row},{column}"
        else:
            assert name.startswith("image 1:")  # the second image was not changed


def test_names_last_in_a_file_and_a_generation(tmp_path):
    foreign, model, inputs = given("SmolVLM")
    recording = attnlab.record(model, inputs)
    recording.save(tmp_path / "kept")
    assert named(attnlab.open(tmp_path / "kept")) == named(recording)
    with attnlab.record(model, "*.weights") as generated:
        foreign.generate(**inputs, max_new_tokens=3, do_sample=False)
    assert named(generated)[:13] == named(recording)
    assert named(generated.joined())[:13] == named(recording)


def test_a_layout_that_does_not_fit_is_not_guessed():
    config, _ = _llava()
    places = image_places(config, torch.tensor([[5, *[IMAGE] * 17, 6]]))
    assert places[0, 1:18].tolist() == [[0, -1, -1]] * 17
    assert places[0, [0, 18]].tolist() == [[-1, -1, -1]] * 2
    assert image_places(config, torch.tensor([[5, 6]])) is None


def test_images_that_do_not_share_out_among_inputs_are_refused():
    _, model, inputs = given("Llava")
    both = {**inputs, "input_ids": inputs["input_ids"].repeat(2, 1)}
    with pytest.raises(WrongUsage, match="or of images for each; got 2 and 1"):
        ablate(model, both, metric="logit", target=3)


FAULTS = """
rows and columns change places | images | Llava
- places[row, start : start + size, 1] = patches // width
+ places[row, start : start + size, 1] = patches % width
patches of Qwen are not merged | images | Qwen2_5_VL
- return [(frames * (high // merge), wide // merge) for frames, high, wide in grids.tolist()]
+ return [(frames * high, wide) for frames, high, wide in grids.tolist()]
every run is one image | images | SmolVLM
- image, start, length = image + 1, start + size, length - size
+ image, start, length = image, start + size, length - size
"""


test_every_fault_has_its_place_in_the_code, test_a_planted_fault_is_noticed = fault_tests(
    faults_in(FAULTS, "pretrained."), test_an_axis_names_the_patch_that_a_position_shows
)
