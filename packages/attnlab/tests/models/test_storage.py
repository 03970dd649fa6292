import json

import pytest
import safetensors.torch
import torch

from attnlab.errors import CouldNotRun
from attnlab.models import (
    Decoder,
    DecoderConfig,
    Encoder,
    EncoderConfig,
    EncoderDecoder,
    EncoderDecoderConfig,
    SingleHead,
    SingleHeadConfig,
    load_model,
    save_model,
    storage,
)

SMALL = {"vocab_size": 7, "max_length": 5, "d_model": 6, "num_heads": 2, "d_ff": 8}
MODELS = [
    Decoder(DecoderConfig(**SMALL, projections="gated", positions="learned")),
    Decoder(DecoderConfig(**SMALL, tie_output=False, norm="rms", activation="swiglu")).to(
        torch.bfloat16
    ),
    Encoder(EncoderConfig(**SMALL, num_classes=3)).double(),
    EncoderDecoder(EncoderDecoderConfig(**SMALL, encoder_positions="none")),
    SingleHead(SingleHeadConfig(pos_dim=4)),
]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_a_saved_model_comes_back_bit_for_bit(model, tmp_path):
    loaded = load_model(save_model(model, tmp_path / "m"))
    assert type(loaded) is type(model)
    assert loaded.config == model.config
    assert not loaded.training
    for (name, wanted), (same, found) in zip(
        model.state_dict().items(), loaded.state_dict().items(), strict=True
    ):
        assert name == same
        assert wanted.dtype == found.dtype
        assert torch.equal(wanted, found)


def test_saving_twice_gives_the_same_bytes(tmp_path):
    one, two = (save_model(MODELS[0], tmp_path / name) for name in "ab")
    assert (one / "model.safetensors").read_bytes() == (two / "model.safetensors").read_bytes()


def damaged(folder, change):
    weights = safetensors.torch.load_file(folder / "model.safetensors")
    change(weights)
    safetensors.torch.save_file(weights, folder / "model.safetensors")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda w: w.pop("final_norm.bias"), "final_norm.bias is missing"),
        (lambda w: w.update(extra=torch.zeros(1)), "extra is not of this model"),
        (lambda w: w.update({"final_norm.bias": torch.zeros(7)}), r"final_norm.bias is \(7\,\)"),
        (lambda w: w.update({"final_norm.bias": torch.zeros(6).double()}), "of float64, expected"),
        (lambda w: w["final_norm.bias"].fill_(float("nan")), "holds NaN or infinity"),
    ],
)
def test_weights_that_do_not_fit_are_refused_by_name(change, message, tmp_path):
    folder = save_model(MODELS[0], tmp_path)
    damaged(folder, change)
    with pytest.raises(CouldNotRun, match=message):
        load_model(folder)


@pytest.mark.parametrize("size", [0, 7, 200, 1_000, None])
def test_a_truncated_file_and_a_pickle_are_refused(size, tmp_path):
    folder = save_model(MODELS[0], tmp_path)
    file = folder / "model.safetensors"
    if size is None:
        torch.save({"x": torch.zeros(1)}, file)
    file.write_bytes(file.read_bytes()[:size])
    with pytest.raises(CouldNotRun, match=r"could not read .*model\.safetensors"):
        load_model(folder)


def described(folder, change):
    """Save a model, and change what its folder says of it."""
    save_model(MODELS[0], folder)
    description = json.loads((folder / "config.json").read_text())
    change(description)
    (folder / "config.json").write_text(json.dumps(description))
    return folder


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d["model"].update(kind="gru"), "expected kind to be one of decoder"),
        (lambda d: d["model"]["config"].update(d_modle=3), "did you mean 'd_model'"),
        (lambda d: d["model"]["config"].update(d_ff=9), r"feed_forward\.inner\.weight"),
        (lambda d: d["model"]["config"].update(d_model=10**12), "d_model must be"),
        (lambda d: d["model"].update(kind=[]), "expected kind to be one of decoder"),
        (lambda d: d["model"].update(dtype=[]), "floating-point dtype"),
        (lambda d: d["model"]["config"].update(temperature=10**400), "temperature must"),
        (lambda d: d["model"]["config"].update(dropout=10**400), "dropout must be a number"),
        (lambda d: d["model"].update(dtype="int8"), "floating-point dtype"),
        (lambda d: d["model"].update(config=[]), "config an object"),
        (lambda d: d.pop("model"), "describes no model"),
    ],
)
def test_a_config_that_describes_no_model_is_refused(change, message, tmp_path):
    with pytest.raises(CouldNotRun, match=message):
        load_model(described(tmp_path, change))


@pytest.mark.parametrize(
    "sizes", [{"vocab_size": 2_000_000, "d_model": 256}, {"vocab_size": 10**7, "d_model": 65_536}]
)
def test_a_config_far_larger_than_its_weights_takes_no_memory(sizes, tmp_path, monkeypatch):
    folder = described(tmp_path, lambda d: d["model"]["config"].update(sizes))
    build = storage.build_model

    def sketched(description):
        model = build(description)
        assert {value.device.type for value in model.parameters()} == {"meta"}
        return model

    monkeypatch.setattr(storage, "build_model", sketched)
    with pytest.raises(CouldNotRun, match=r"does not fit its config.*embedding\.tokens\.weight is"):
        load_model(folder)


def test_a_model_that_does_not_fit_the_memory_is_said(tmp_path, monkeypatch):
    folder = save_model(MODELS[0], tmp_path)
    build = storage.build_model

    def short(description):
        model = build(description)
        if next(model.parameters()).device.type == "cpu":
            raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory")
        return model

    monkeypatch.setattr(storage, "build_model", short)
    with pytest.raises(CouldNotRun, match=r"not enough memory for the model .* [\d,]+ bytes"):
        load_model(folder)


def test_a_strangers_module_is_not_saved(tmp_path):
    with pytest.raises(CouldNotRun, match="only these models can be saved"):
        save_model(torch.nn.Linear(2, 2), tmp_path)
