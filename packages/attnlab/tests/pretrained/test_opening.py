"""Models that open: tiny random ones of several families, saved by transformers itself."""

import copy
import json
import os
import socket
import struct
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from attnlab.core.store import locked
from attnlab.errors import CouldNotRun, WrongUsage
from attnlab.pretrained.attach import attach
from attnlab.pretrained.model_files import build, folder, gguf, hub
from attnlab.pretrained.model_files.hub import load_pretrained
from tests.pretrained.families import FAMILIES
from tests.pretrained.folders import SHAPES, gguf_bytes, llama, llama_facts, number, text

transformers = pytest.importorskip("transformers")

KINDS = {  # the class, its family, and what else its config says
    "GPT-2": ("GPT2LMHeadModel", "gpt2", {}),
    "BERT with a head": ("BertForMaskedLM", "bert", {}),
    "BERT without one": ("BertModel", "bert", {}),
    "BERT that sorts": ("BertForSequenceClassification", "bert", {"num_labels": 3}),
    "T5": ("T5ForConditionalGeneration", "t5", {}),
    "Llama": ("LlamaForCausalLM", "llama", {}),
    "Llama with tied weights": ("LlamaForCausalLM", "llama", {"tie_word_embeddings": True}),
}


def made(kind, folder, dtype=torch.float32, **saving):
    """Save a tiny model; return it."""
    model, name, more = KINDS[kind]
    model = FAMILIES[name]._replace(model=model).build(**more).to(dtype)
    model.save_pretrained(folder, **saving)
    return model


def ask(model):
    """Return what a model answers to a fixed input."""
    tokens = torch.tensor([[1, 7, 3, 9]])
    more = {"decoder_input_ids": tokens} if model.config.is_encoder_decoder else {}
    with torch.no_grad():
        return model(tokens, **more)[0]


def same_weights(model, other):
    """Say whether two models have the same names and, bit for bit, the same numbers."""
    ours, theirs = model.state_dict(), other.state_dict()
    return ours.keys() == theirs.keys() and all(
        torch.equal(ours[name], theirs[name]) for name in ours
    )


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    """Let nothing of this file reach a network, whatever the environment says."""

    def refuse(*args, **kwargs):
        raise AssertionError("a test reached for the network")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)


@pytest.mark.parametrize("name", KINDS)
def test_a_saved_model_opens_as_the_same_model(name, tmp_path, capfd):
    model = made(name, tmp_path / "model")
    opened = load_pretrained(tmp_path / "model")
    assert type(opened.model) is type(model)
    assert not opened.model.training
    assert same_weights(opened.model, model)
    # The last bit depends on where in memory weights lie.
    torch.testing.assert_close(ask(opened.model), ask(model))
    assert (opened.tokenizer, opened.name, opened.notes) == (None, tmp_path.name, ())
    assert opened.source == f"the folder {tmp_path / 'model'}"
    assert capfd.readouterr().out == ""


def test_nothing_of_transformers_reaches_the_terminal_while_a_model_is_opened(tmp_path, capfd):
    made("BERT with a head", tmp_path / "model")
    capfd.readouterr()
    verbosity = transformers.utils.logging.get_verbosity()
    # Of weights that are unused or missing, transformers would report.
    load_pretrained(tmp_path / "model", head="none")
    assert capfd.readouterr() == ("", "")
    assert transformers.utils.logging.get_verbosity() == verbosity
    assert transformers.utils.logging.is_progress_bar_enabled()


def test_shards_and_half_precision_open_and_the_dtype_can_be_chosen(tmp_path):
    model = made("Llama", tmp_path / "model", torch.bfloat16, max_shard_size="8KB")
    assert len(list((tmp_path / "model").glob("*.safetensors"))) > 1
    opened = load_pretrained(tmp_path / "model").model
    assert {value.dtype for value in opened.parameters()} == {torch.bfloat16}
    assert same_weights(opened, model)
    for dtype in (torch.float64, "float64"):
        opened = load_pretrained(tmp_path / "model", dtype=dtype).model
        assert {value.dtype for value in opened.parameters()} == {torch.float64}


def test_tied_weights_are_the_same_tensor_and_settings_for_generation_are_kept(tmp_path):
    made("Llama with tied weights", tmp_path / "model")
    assert "lm_head.weight" not in load_file(tmp_path / "model" / "model.safetensors")
    (tmp_path / "model" / "generation_config.json").write_text('{"max_new_tokens": 7}')
    model = load_pretrained(tmp_path / "model").model
    assert model.lm_head.weight is model.model.embed_tokens.weight
    assert model.generation_config.max_new_tokens == 7


def test_a_head_can_be_left_away_and_what_is_not_used_is_said(tmp_path):
    model = made("BERT with a head", tmp_path / "model")
    opened = load_pretrained(tmp_path / "model", head="none")
    assert type(opened.model).__name__ == "BertModel"
    assert opened.model.pooler is None
    torch.testing.assert_close(ask(opened.model), model.bert(torch.tensor([[1, 7, 3, 9]]))[0])
    assert opened.notes[0] == "the file holds no pooler, so the model was built without one"
    assert opened.notes[1].startswith("not used by BertModel, and ignored: cls.predictions")


@pytest.mark.parametrize(
    "extra",
    ["bert.encoder.layer.2.output.dense.bias", "bert.adapter.weight", "encoder.x", "strange"],
)
def test_weights_that_belong_to_the_body_or_to_nothing_are_refused(extra, tmp_path):
    made("BERT with a head", tmp_path / "model")
    change_weights(tmp_path / "model", {extra: torch.zeros(16)})
    with pytest.raises(CouldNotRun, match=f"1 not of this model: {extra}"):
        load_pretrained(tmp_path / "model")


def test_a_head_without_weights_is_refused_rather_than_drawn_at_random(tmp_path):
    made("BERT without one", tmp_path / "model")
    with pytest.raises(CouldNotRun, match=r"\d missing: cls\.predictions"):
        load_pretrained(tmp_path / "model", head="masked-lm")


def test_a_model_without_a_word_about_its_class_opens_without_a_head(tmp_path):
    made("BERT without one", tmp_path / "model")
    change(tmp_path / "model", architectures=None)
    assert type(load_pretrained(tmp_path / "model").model).__name__ == "BertModel"


def test_a_tokenizer_is_opened_with_its_model(tmp_path):
    made("BERT without one", tmp_path / "model")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "she", "sees"]
    (tmp_path / "model" / "vocab.txt").write_text("\n".join(words) + "\n")
    assert load_pretrained(tmp_path / "model").tokenizer("she sees")["input_ids"] == [2, 5, 6, 3]


@pytest.mark.parametrize(
    ("file", "content", "why"),
    [
        ("vocab.txt", "C\nN\n", "there is no tokenizer"),  # a Llama keeps it elsewhere
        ("tokenizer.json", "[", "transformers could not build it"),
        ("tokenizer.json", '{"model": {"type": "BPE", "vocab": 5}}', "could not build it"),
    ],
)
def test_a_tokenizer_that_is_empty_or_broken_is_none_and_that_is_said(file, content, why, tmp_path):
    made("Llama", tmp_path / "model")
    (tmp_path / "model" / file).write_text(content)
    opened = load_pretrained(tmp_path / "model")
    assert opened.tokenizer is None
    assert why in opened.notes[0]


def test_a_model_with_code_of_its_own_is_opened_by_transformers_and_given(tmp_path):
    own = {"AutoConfig": "own.OwnConfig", "AutoModelForCausalLM": "own.OwnModel"}
    model = llama(tmp_path / "model", auto_map=own)
    (model / "own.py").write_text(
        "from transformers import LlamaConfig, LlamaForCausalLM\n"
        "class OwnConfig(LlamaConfig): pass\n"
        "class OwnModel(LlamaForCausalLM): config_class = OwnConfig\n"
    )
    with pytest.raises(CouldNotRun, match="by transformers with trust_remote_code=True"):
        load_pretrained(model)
    found = transformers.AutoModelForCausalLM.from_pretrained(model, trust_remote_code=True)
    assert type(attach(found).foreign).__name__ == "OwnModel"


@pytest.fixture
def file(tmp_path, monkeypatch):
    """A tiny GGUF file, and a cache for what it is converted to."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "tiny.gguf").write_bytes(tiny_gguf())
    return tmp_path / "tiny.gguf"


def cache_of(file):
    return file.parent / "cache" / "attnlab" / "gguf"


def test_a_gguf_file_is_spread_out_once(file, tmp_path, monkeypatch, capfd):
    opened = load_pretrained(file)
    assert (opened.name, opened.source) == ("tiny", f"the GGUF file {file}")
    assert opened.model.config.num_hidden_layers == 1
    norm = torch.from_numpy(tiny_numbers("output_norm.weight", (8,)))
    assert torch.equal(opened.model.model.norm.weight, norm)
    assert opened.tokenizer("abb")["input_ids"][-2:] == [5, 4]
    monkeypatch.setattr(gguf, "_convert", None)
    monkeypatch.setattr(gguf, "_check_family", None)  # imports what reads GGUF, which takes seconds
    assert same_weights(load_pretrained(tmp_path).model, opened.model)
    assert capfd.readouterr() == ("", "")


def test_a_cache_that_cannot_be_written_is_said(file, tmp_path):
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(CouldNotRun, match=r"cache/attnlab/gguf, which failed.* XDG_CACHE_HOME"):
        load_pretrained(file)


def test_half_a_conversion_leaves_nothing_behind(file, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(gguf, "write_json", stop)
    with pytest.raises(KeyboardInterrupt):
        load_pretrained(file)
    assert kept(file) == []


def kept(file):
    return sorted(each.name for each in cache_of(file).iterdir())


def test_what_a_killed_conversion_left_is_removed_and_what_another_works_on_is_not(file):
    place = cache_of(file)
    for name in (".killed.part", ".working.part", ".begun.part"):
        (place / name).mkdir(parents=True)
        (place / name / "model.safetensors").touch()
        if name != ".begun.part":
            os.utime(place / name, (1, 1))
    with locked(place / ".working.part"):
        os.utime(place / ".working.part", (1, 1))
        load_pretrained(file)
    assert kept(file)[:2] == [".begun.part", ".working.part"]
    assert len(kept(file)) == 3


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_a_kept_conversion_that_was_damaged_is_made_anew(name, file):
    before = copy.deepcopy(load_pretrained(file).model)  # else a view of what is damaged
    (folder_name,) = kept(file)
    damaged = cache_of(file) / folder_name / name
    damaged.write_bytes(damaged.read_bytes()[:-40])
    assert same_weights(load_pretrained(file).model, before)
    assert kept(file) == [folder_name]


VOCABULARY = b"llama.vocab_size" + struct.pack("<II", 4, 6)


def test_the_first_opening_of_a_gguf_file_says_how_long_it_takes(file, caplog):
    with caplog.at_level("INFO", logger="attnlab"):
        hub.load_pretrained(file)
    (words,) = [record.getMessage() for record in caplog.records if "converting" in record.msg]
    assert "tiny.gguf once: 0 million numbers, about half a minute for every hundred" in words


@pytest.mark.parametrize(
    ("here", "there", "words"),
    [
        (b"token_embd.weight", b"token_embd.weigh2", "1 missing: model.embed_tokens.weight"),
        (VOCABULARY, VOCABULARY.replace(b"\6", b"\7"), "shape"),
    ],
)
def test_weights_of_a_gguf_file_that_are_not_the_models_are_named(here, there, words, file):
    assert file.read_bytes().count(here) == 1
    file.write_bytes(file.read_bytes().replace(here, there))
    with pytest.raises(CouldNotRun, match=rf"not those of its LlamaForCausalLM: .*{words}"):
        load_pretrained(file)


def test_half_a_download_of_shards_is_none(tmp_path, monkeypatch):
    snapshot = cached(tmp_path, monkeypatch)
    (snapshot / "model.safetensors").rename(snapshot / "1.safetensors")
    index = snapshot / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": "1.safetensors", "b": "2.safetensors"}}))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(CouldNotRun, match="not in the hub's cache"):
        load_pretrained("org/tiny")
    index.write_text(json.dumps({"weight_map": dict.fromkeys(SHAPES, "1.safetensors")}))
    assert load_pretrained("org/tiny").name == "org/tiny"


@pytest.mark.parametrize("address", ["http://h:99999999", "not an address", "http://[::1"])
def test_an_address_of_the_hub_that_is_none_is_said(address, monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    with pytest.raises(CouldNotRun, match="is no address"):
        hub._address(address)


def test_a_model_in_the_hubs_cache_opens_without_a_network(tmp_path, monkeypatch):
    cached(tmp_path, monkeypatch)
    opened = load_pretrained("org/tiny")
    assert (opened.name, opened.source) == ("org/tiny", f"the hub's org/tiny, revision {'a' * 40}")
    assert load_pretrained("org/tiny", revision="a" * 40).name == "org/tiny"


@pytest.mark.parametrize("name", ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"])
def test_a_switched_off_network_is_not_tried(name, tmp_path, monkeypatch):
    cached(tmp_path, monkeypatch)
    monkeypatch.setenv(name, "1")
    monkeypatch.setattr(hub, "_answers", None)
    with pytest.raises(CouldNotRun, match=r"the network is switched off .*hf download org/other"):
        load_pretrained("org/other")
    with pytest.raises(CouldNotRun, match=r"'org/tiny' \(revision main2\) is no folder"):
        load_pretrained("org/tiny", revision="main2")


class Hub:
    """A hub with one model, which fetches into a folder and writes down what was asked for."""

    def __init__(self, folder, files):
        self.folder, self.files, self.asked = folder, files, []

    def model_info(self, name, **_):
        siblings = [type("Sibling", (), {"rfilename": file, "size": 10}) for file in self.files]
        return type("Info", (), {"siblings": siblings, "sha": "b" * 40})

    def snapshot_download(
        self, name, *, revision=None, local_files_only=False, allow_patterns=None, **_
    ):
        if local_files_only:
            raise OSError("not in the cache")
        self.asked.append(allow_patterns)
        return str(self.folder)


def with_hub(monkeypatch, folder, files):
    found = Hub(folder, files)
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.delenv("TRANSFORMERS_OFFLINE", raising=False)
    monkeypatch.setattr("huggingface_hub.snapshot_download", found.snapshot_download)
    monkeypatch.setattr("huggingface_hub.HfApi", lambda: found)
    monkeypatch.setattr(hub, "_answers", lambda host, port: True)
    return found


def test_only_what_is_needed_is_fetched_the_description_first(tmp_path, monkeypatch):
    files = ["config.json", "pytorch_model.bin", "own.py"]
    files += ["model.safetensors", "model.fp16.safetensors"]
    found = with_hub(monkeypatch, llama(tmp_path / "model"), files)
    assert load_pretrained("org/tiny").name == "org/tiny"
    small, weights, _ = found.asked
    assert weights == ["model.safetensors"]
    assert not any(pattern.endswith((".py", ".bin", "*")) for pattern in small)


def test_a_description_that_is_refused_costs_no_weights(tmp_path, monkeypatch):
    model = llama(tmp_path / "model", auto_map={"AutoModelForCausalLM": "a.B"})
    found = with_hub(monkeypatch, model, ["config.json", "model.safetensors"])
    with pytest.raises(CouldNotRun, match="remote_code=True"):
        load_pretrained("org/tiny")
    assert len(found.asked) == 1


def test_a_repository_of_pickles_is_not_fetched(tmp_path, monkeypatch):
    found = with_hub(monkeypatch, tmp_path, ["config.json", "pytorch_model.bin"])
    with pytest.raises(CouldNotRun, match=r"no config\.json with safetensors beside it"):
        load_pretrained("org/tiny")
    assert found.asked == []


@pytest.mark.parametrize(
    "x", ["", "a\0b", "/not/here", "./not-here", "../org/name", "model.gguf", "x" * 5000, "a/b/c"]
)
def test_what_is_nowhere_is_said(x):
    with pytest.raises(CouldNotRun, match="there is no folder or file"):
        load_pretrained(x)


def test_wrong_usage_is_told_with_what_there_is(tmp_path):
    made("BERT without one", tmp_path / "model")
    path = tmp_path / "model"
    for wrong, words in (
        ({"head": "masked_lm"}, "did you mean 'masked-lm'"),
        ({"head": "seq2seq-lm"}, "bert has no head 'seq2seq-lm'; it has none, causal-lm"),
        ({"head": 5}, "head is one of"),
        ({"dtype": "load"}, "dtype is float64"),
        ({"dtype": "float8_e4m3fn"}, "dtype is float64"),
        ({"device": "gpu"}, "device is cpu, cuda"),
        ({"device": "meta"}, "have no values"),
        ({"revision": "main"}, "a revision belongs to a model of the hub"),
    ):
        with pytest.raises(WrongUsage, match=words):
            load_pretrained(path, **wrong)
    with pytest.raises(WrongUsage, match="expected a folder, a GGUF file or a hub id; got int"):
        load_pretrained(5)
    with pytest.raises(CouldNotRun, match="there is no device cuda:99 here"):
        load_pretrained(path, device="cuda:99")


def test_a_folder_is_judged_before_it_is_said_that_transformers_is_missing(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(CouldNotRun, match=r"pip install 'attnlab\[hf\]'"):
        load_pretrained(llama(tmp_path / "model"))
    with pytest.raises(CouldNotRun, match="trust_remote_code=True"):
        load_pretrained(llama(tmp_path / "model", auto_map={"AutoModel": "a.B"}))


def test_tables_far_larger_than_the_weights_are_refused(tmp_path, monkeypatch):
    """CTRL computes its table of positions; no file holds it."""
    FAMILIES["ctrl"].build().save_pretrained(tmp_path / "model")
    assert load_pretrained(tmp_path / "model").notes == ()
    change(tmp_path / "model", n_positions=10**7)
    with pytest.raises(CouldNotRun, match=r"asks for 1,280,0.* bytes, far more"):
        load_pretrained(tmp_path / "model")
    monkeypatch.setattr(folder, "free_memory", lambda: 6 * 10**8)
    monkeypatch.setattr(build, "_BESIDE", 2 * 10**9)
    with pytest.raises(CouldNotRun, match=r"the weights and tables of the model in .* take 1,280,"):
        load_pretrained(tmp_path / "model")


def test_the_comparison_sees_weights_filled_at_random(tmp_path, monkeypatch):
    """Without the comparison a model opens whose norms came from nowhere."""
    shapes = {name: shape for name, shape in SHAPES.items() if "norm" not in name}
    monkeypatch.setattr(build, "_compare", lambda *_: ({}, []))
    # The second look is at what was really loaded.
    with pytest.raises(CouldNotRun, match="AssertionError"):
        load_pretrained(llama(tmp_path / "model", shapes=shapes))


def change(folder, **said):
    """Change a description; None takes a word out."""
    file = Path(folder) / "config.json"
    config = {**json.loads(file.read_text()), **said}
    file.write_text(
        json.dumps({name: value for name, value in config.items() if value is not None})
    )


def change_weights(folder, more):
    file = Path(folder) / "model.safetensors"
    save_file({**load_file(file), **more}, file, {"format": "pt"})


def cached(folder, monkeypatch):
    """Put a tiny model into a cache like that of the hub, and let it be the cache."""
    repository = folder / "hub" / "models--org--tiny"
    llama(repository / "blobs")
    snapshot = repository / "snapshots" / ("a" * 40)
    snapshot.mkdir(parents=True)
    for name in ("config.json", "model.safetensors"):
        (snapshot / name).symlink_to(Path("..") / ".." / "blobs" / name)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("a" * 40)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(folder / "hub"))
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    return snapshot


def tiny_numbers(name, shape):
    return np.random.default_rng(len(name)).normal(size=shape).astype("<f4")


def tiny_gguf():
    """Return a Llama of one layer with five tokens as GGUF, in full precision."""

    def texts(words):
        return (9, struct.pack("<IQ", 8, len(words)) + b"".join(map(text, words)))

    tokens = ["<unk>", "<s>", "</s>", "a", "b", "ab"]
    facts = {
        **llama_facts(),
        "llama.attention.layer_norm_rms_epsilon": (6, struct.pack("<f", 1e-5)),
        "tokenizer.ggml.model": (8, text("gpt2")),
        "tokenizer.ggml.tokens": texts(tokens),
        "tokenizer.ggml.merges": texts(["a b"]),
        "tokenizer.ggml.token_type": (9, struct.pack("<IQ6i", 5, len(tokens), *[1] * 6)),
        "tokenizer.ggml.bos_token_id": number(1),
        "tokenizer.ggml.eos_token_id": number(2),
        "tokenizer.ggml.unknown_token_id": number(0),
    }
    shapes = {
        "token_embd.weight": (len(tokens), 8),
        "output_norm.weight": (8,),
        "output.weight": (len(tokens), 8),
        "blk.0.attn_norm.weight": (8,),
        "blk.0.ffn_norm.weight": (8,),
        "blk.0.attn_q.weight": (8, 8),
        "blk.0.attn_k.weight": (4, 8),
        "blk.0.attn_v.weight": (4, 8),
        "blk.0.attn_output.weight": (8, 8),
        "blk.0.ffn_gate.weight": (16, 8),
        "blk.0.ffn_up.weight": (16, 8),
        "blk.0.ffn_down.weight": (8, 16),
    }
    tensors, numbers = [], b""
    for name, shape in shapes.items():
        numbers += b"\0" * (-len(numbers) % 32)
        tensors.append((name, list(reversed(shape)), 0, len(numbers)))
        numbers += tiny_numbers(name, shape).tobytes()
    return gguf_bytes(facts, tensors, size=0) + numbers


@pytest.mark.parametrize(
    ("habit", "ours"),
    [("run_with_cache", "attnlab.record"), ("W_Q", "attnlab.circuits"), ("cfg", "foreign.config")],
)
def test_what_models_of_other_libraries_have_is_answered_with_ours(habit, ours):
    model = attach(FAMILIES["gpt2"].build())
    with pytest.raises(AttributeError, match=ours):
        getattr(model, habit)
    assert not hasattr(model, habit)
    with pytest.raises(AttributeError, match=r"no attribute 'nothing'$"):
        model.nothing  # noqa: B018
