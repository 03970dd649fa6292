"""The tools work on models in shards, put where a map says, and with quantized weights."""

import importlib.util

import pytest
import torch

import attnlab
from attnlab.errors import CouldNotRun, WrongUsage
from attnlab.pretrained.model_files import build
from tests.pretrained.families import FAMILIES
from tests.sampling import sampled

transformers = pytest.importorskip("transformers")

IDS = torch.tensor([[5, 6, 7, 8, 9]])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A tiny random model in several shards."""
    path = tmp_path_factory.mktemp("models") / "llama"
    FAMILIES["llama"].build().save_pretrained(path, max_shard_size="20KB")
    assert len(list(path.glob("*.safetensors"))) > 3
    return path


def check_tools(model):
    """Record, edit and ablate: the same answer in three ways."""
    with torch.no_grad():
        plain = model(IDS)
        weights = attnlab.record(model, IDS)["layers.1.attention.weights"]
        torch.testing.assert_close(weights.sum(-1), torch.ones(1, 4, 5), atol=1e-3, rtol=0)
        with attnlab.edit(model, attnlab.ZeroHead(layer=0, head=1)) as certificate:
            edited = model(IDS)
    assert certificate.holds
    answer = int(plain[0, -1].argmax())
    effects = attnlab.ablate(model, IDS, metric="logit", target=answer)
    [place] = [at for at, place in enumerate(effects.places) if str(place) == "head 0.1"]
    change = float((edited - plain)[0, -1, answer])
    assert float(effects.effects[place]) == pytest.approx(change, abs=1e-3)
    assert change != 0.0
    return plain


@pytest.mark.parametrize("place", ["auto", {"": "cpu"}])
def test_a_model_in_shards_is_put_where_a_map_says(folder, place):
    model = attnlab.load(folder, device_map=place)
    torch.testing.assert_close(check_tools(model), attnlab.load(folder)(IDS))


def test_shards_are_read_tensor_by_tensor(folder, monkeypatch):
    read, held = [], build._with_weights

    def counted(model_class, weights, options):
        monkeypatch.setattr("safetensors.torch.load_file", lambda *given: read.append(given))
        return held(model_class, weights, options)

    monkeypatch.setattr(build, "_with_weights", counted)
    attnlab.load(folder, device_map="auto")
    assert not read


_LAST_ON_DISK = {
    "model.embed_tokens": "cpu", "model.layers.0": "cpu", "model.layers.1": "disk",
    "model.norm": "cpu", "model.rotary_emb": "cpu", "lm_head": "disk",
}  # fmt: skip


@pytest.mark.parametrize("way", sampled(["map", "memory", "disk"], 2))
def test_weights_that_accelerate_puts_aside_change_no_answer(way, folder, tmp_path):
    accelerate = pytest.importorskip("accelerate")
    here = {"execution_device": "cpu"}
    plain = transformers.LlamaForCausalLM.from_pretrained(folder)
    aside = {
        "memory": lambda: accelerate.cpu_offload(plain, **here),
        "disk": lambda: accelerate.disk_offload(plain, tmp_path, **here),
        "map": lambda: accelerate.dispatch_model(
            plain, _LAST_ON_DISK, main_device="cpu", offload_dir=tmp_path, force_hooks=True
        ),
    }
    model, whole = attnlab.load(aside[way]()), attnlab.load(folder)
    assert any(weight.device.type == "meta" for weight in model.parameters())
    assert torch.equal(check_tools(model), whole(IDS))
    why, ask = attnlab.why, {"head": "1.1", "key": 1}
    assert torch.equal(why(model, IDS, **ask).terms, why(whole, IDS, **ask).terms)


def test_weights_without_numbers_and_a_map_to_the_disk_are_refused(folder):
    with pytest.raises(WrongUsage, match="not on the disk"):
        attnlab.load(folder, device_map=_LAST_ON_DISK)
    with pytest.raises(CouldNotRun, match="on the meta device, which holds no numbers"):
        attnlab.load(transformers.LlamaForCausalLM.from_pretrained(folder).to("meta"))


def test_a_place_and_a_map_are_one_too_many(folder):
    with pytest.raises(WrongUsage, match="give one"):
        attnlab.load(folder, device="cpu", device_map="auto")


def test_a_quantization_is_passed_on_and_a_missing_library_named(folder, monkeypatch):
    given = []
    plain = transformers.LlamaForCausalLM.from_pretrained.__func__

    def noted(cls, *args, quantization_config=None, **options):
        given.append(quantization_config)
        return plain(cls, *args, **options)

    monkeypatch.setattr(transformers.LlamaForCausalLM, "from_pretrained", classmethod(noted))
    config = object()
    attnlab.load(folder, quantization=config)
    assert given == [None, config]  # first the sketch without numbers
    monkeypatch.undo()
    if importlib.util.find_spec("bitsandbytes") is None:
        config = transformers.BitsAndBytesConfig(load_in_8bit=True)
        with pytest.raises(CouldNotRun, match="bitsandbytes"):
            attnlab.load(folder, quantization=config)


@pytest.mark.parametrize("bits", [4, 8])
def test_the_tools_work_on_quantized_weights_of_bitsandbytes(folder, bits):
    pytest.importorskip("bitsandbytes")
    config = transformers.BitsAndBytesConfig(**{f"load_in_{bits}bit": True})
    model = attnlab.load(folder, quantization=config, device_map={"": "cpu"})
    names = {type(module).__name__ for module in model.foreign.modules()}
    assert names & {"Linear8bitLt", "Linear4bit"}
    check_tools(model)
    with pytest.raises(CouldNotRun):
        attnlab.circuits(model)


def test_the_tools_work_on_quantized_weights_of_torchao(folder):
    torchao = pytest.importorskip("torchao.quantization")
    config = transformers.TorchAoConfig(torchao.Int8WeightOnlyConfig())
    model = attnlab.load(folder, quantization=config, device_map={"": "cpu"})
    assert type(model.foreign.model.layers[0].mlp.up_proj.weight) is not torch.nn.Parameter
    check_tools(model)


def test_tools_on_another_model_are_caught(folder, monkeypatch):
    model = attnlab.load(folder, device_map="auto")
    plain = type(model.foreign).forward

    def faulty(self, *args, **named):
        output = plain(self, *args, **named)
        output["logits"] = output["logits"] + torch.randn(())
        return output

    monkeypatch.setattr(type(model.foreign), "forward", faulty)
    with pytest.raises(AssertionError):
        check_tools(model)
