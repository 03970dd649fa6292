"""Hostile models are refused: nothing read elsewhere, no socket, no code, no memory."""

import json
import struct
from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("transformers")

from tests.kills import in_copy
from tests.pretrained import watching
from tests.pretrained.folders import (
    INDEX,
    SHAPES,
    WEIGHTS,
    gguf,
    gguf_bytes,
    linked,
    llama,
    llama_facts,
    pickled,
    piped,
    safetensors,
    sparse,
    text,
    with_code,
    with_config,
    with_file,
    with_header,
    with_index,
    with_tensors,
    with_words,
    without_weights,
)

FIRST, LAST = "model.embed_tokens.weight", "lm_head.weight"
MAX_MODULES, MAX_MEGABYTES = 1_000, 100  # once transformers is imported

with_weights = partial(with_file, WEIGHTS)
with_settings = partial(with_file, "tokenizer_config.json")  # of a tokenizer


def changed(name, **more):
    """Change the description of one tensor in a header."""
    return with_header(lambda header: header[name].update(more))


def renamed(name):
    return with_header(lambda header: header.update({name: header.pop(LAST)}))


def cut(count):
    def make(folder, outside):
        weights = llama(folder) / WEIGHTS
        weights.write_bytes(weights.read_bytes()[:count])

    return make


def empty(name):
    """A file of two gibibytes that are holes."""

    def make(folder, outside):
        llama(folder)
        (folder / name).parent.mkdir(exist_ok=True)
        with open(folder / name, "wb") as file:
            file.truncate(2**31)

    return make


def of_class(model_type, **more):
    return with_words(model_type=model_type, architectures=None, **more)


def quantized(method):
    return with_words(quantization_config={"quant_method": method})


def shards(name):
    return with_index(dict.fromkeys(SHAPES, name))


def gguf_with(*facts, **more):
    """A GGUF file with metadata of (kind, bytes)."""
    return gguf(gguf_bytes(dict(zip("abc", facts, strict=False)) or None, **more))


def gguf_tensor(shape, kind=0, offset=0):
    return gguf_with(tensors=[("a", shape, kind, offset)])


def gguf_llama(architecture="llama", **more):
    """A small Llama as GGUF describes it."""
    return gguf(
        gguf_bytes({**llama_facts(**more), "general.architecture": (8, text(architecture))})
    )


NO_NORMS = {name: shape for name, shape in SHAPES.items() if "norm" not in name}
TALL = {**SHAPES, "model.norm.weight": (9,)}
EXTRA = {**SHAPES, "model.layers.1.mlp.up_proj.weight": (16, 8)}
REMOTE = {
    "AutoConfig": "configuration_evil.EvilConfig",
    "AutoModelForCausalLM": "modeling_evil.Evil",
}
KERNEL = "evil/kernel"

HOSTILE = {
    # what is there
    "an empty folder": (lambda f, o: f.mkdir(), "is empty"),
    "no description": (lambda f, o: llama(f).joinpath("config.json").unlink(), "no config.json"),
    "an adapter": (
        lambda f, o: (f.mkdir(), (f / "adapter_config.json").write_text("{}")),
        "holds an adapter",
    ),
    "a run of ours": (with_config('{"experiment": "a", "settings": {}}'), "by attnlab itself"),
    "no weights": (lambda f, o: without_weights(f), "holds no weights"),
    "weights of another name": (
        lambda f, o: llama(f).joinpath(WEIGHTS).rename(f / "consolidated.safetensors"),
        "rename it",
    ),
    "weights of Keras": (
        lambda f, o: without_weights(f).joinpath("tf_model.h5").touch(),
        "convert",
    ),
    # pickles, and other files under the right name
    "a pickle": (pickled("pytorch_model.bin"), "Opening it could run a program"),
    "a zipped pickle": (pickled("model.pt", zipped=True), "Python's pickle"),
    "a pickle called safetensors": (pickled(WEIGHTS), "but a pickle"),
    "a zip called safetensors": (pickled(WEIGHTS, zipped=True), "but a zip archive"),
    "the pointer of git-lfs": (with_weights("version https://git-lfs.github.com/"), "git lfs pull"),
    "a web page": (with_weights("<!doctype html><p>404</p>"), "a web page"),
    "an HDF5 file": (with_weights(b"\x89HDF\r\n\x1a\n" + b"\0" * 99), "HDF5"),
    "a GGUF file called safetensors": (with_weights(gguf_bytes()), "ending .gguf"),
    "nothing at all": (with_weights(b""), "is cut off"),
    # links and pipes
    "a description elsewhere": (linked("config.json", "secret/config.json"), "leads out"),
    "weights elsewhere": (linked(WEIGHTS, "secret/model.safetensors"), "leads out"),
    "templates elsewhere": (linked("additional_chat_templates", "secret"), "leads out"),
    "a link to nowhere": (linked("tokenizer.json", "gone", inside=True), "leads nowhere"),
    "a link to itself": (linked("tokenizer.json", "tokenizer.json", inside=True), "leads nowhere"),
    "a pipe for a description": (piped("config.json"), "not a regular file"),
    # the description as JSON
    "a description that is a list": (with_config("[]"), "must hold an object"),
    "a description cut off": (with_config('{"model_type": "llama"'), "is not JSON"),
    "a description in Latin-1": (with_config('{"a": "é"}'.encode("latin-1")), "is not JSON"),
    "a hundred thousand brackets": (with_config("[" * 100_000), "nested more than 32"),
    "three megabytes": (with_config('{"a": "' + "x" * 3 * 2**20 + '"}'), "at most 2,097,152"),
    "a million values": (with_config('{"a": [' + "0," * 600_000 + "0]}"), "500,000 values"),
    # what the description says
    "a number of four thousand digits": (
        with_config('{"model_type": "llama", "hidden_size": ' + "9" * 4000 + "}"),
        "is a number of 4000 digits",
    ),
    "cycles without end": (of_class("hrm_text", H_cycles=10**6), "no model has more than 1,000"),
    "layers of a recurrent part without end": (
        of_class("encodec", num_lstm_layers=50_000),
        "no model has more than 1,000",
    ),
    "no kind": (with_config("{}"), "does not say model_type"),
    "an unknown kind": (with_words(model_type="lama"), "did you mean"),
    "a path for a kind": (with_words(model_type="../../evil"), "model_type must be a name"),
    "an unknown class": (with_words(architectures=["EvilForCausalLM"]), "does not have for llama"),
    "the class of another kind": (
        with_words(architectures=["BertModel"]),
        "does not have for llama",
    ),
    "a class that is a path": (with_words(architectures=["os.system"]), "a list of class names"),
    "code of its own": (with_code(auto_map=REMOTE), "remote_code=True"),
    "code of another place": (
        with_words(auto_map={"AutoModel": "evil/repo--modeling.Evil"}),
        "remote_code=True",
    ),
    "code for the tokenizer": (
        with_settings('{"auto_map": {"AutoTokenizer": ["evil.Evil", null]}}'),
        "remote_code=True",
    ),
    "attention to be fetched": (with_words(_attn_implementation=KERNEL), "names code"),
    "attention to be fetched inside": (
        with_words(_attn_implementation_internal=KERNEL),
        "names code",
    ),
    "attention to be fetched deeper": (
        with_words(text_config={"attn_implementation": {"": KERNEL}}),
        "names code",
    ),
    "experts to be fetched": (with_words(_experts_implementation=KERNEL), "names code"),
    "kernels to be fetched": (with_words(kernel_config={"RMSNorm": KERNEL}), "points at code"),
    "weights to be read elsewhere": (
        with_words(transformers_weights="../secret/model.safetensors"),
        "points at code",
    ),
    "GPTQ": (quantized("gptq"), "quantized ('gptq')"),
    "a function for a dtype": (with_words(dtype="load"), "known: auto, float64"),
    "a thousand million layers": (with_words(num_hidden_layers=10**9), "more than 1,000"),
    "a thousand layers": (with_words(num_hidden_layers=1_000), "asks for more than"),
    "a thousand million labels": (with_words(num_labels=10**9), "more than 100,000"),
    "a width without end": (with_words(hidden_size=10**9), "more than 4,194,304"),
    "a pattern without end": (
        of_class("gpt_neo", attention_types=[[["global"], 10**9]]),
        "more than 100,000",
    ),
    "a vocabulary without end": (with_words(vocab_size=10**15), "no model has more than"),
    "a vocabulary larger than its weights": (with_words(vocab_size=10**9), "of another shape"),
    "no width": (with_words(hidden_size=0), "transformers could not build"),
    "a negative width": (with_words(hidden_size=-8), "hidden_size is -8"),
    "outputs without names": (with_words(return_dict=False), "Remove the key"),
    "an activation that is a module": (with_words(hidden_act="os.system"), "could not build"),
    # the index of shards
    "a shard above": (shards("../outside/secret/model.safetensors"), "lie beside it"),
    "a shard of Windows": (shards("..\\evil.safetensors"), "lie beside it"),
    "a shard that is a pickle": (shards("a.bin"), "end in .safetensors"),
    "a shard that is missing": (shards("a.safetensors"), "lacks 1 of 1 shards"),
    "a shard that holds less": (
        with_index(dict.fromkeys([*SHAPES, "more"], "a.safetensors"), ("a.safetensors",)),
        "does not hold",
    ),
    "an index of lists": (with_index({"a": ["b"]}), "must hold weight_map"),
    "an index without a map": (with_file(INDEX, "{}", weights=False), "must hold weight_map"),
    # the tokenizer's files
    "a vocabulary elsewhere": (with_settings('{"vocab_file": "../a.json"}'), "without a folder"),
    "tokenizer settings that are a list": (with_settings("[1]"), "must hold an object"),
    "a template of two gigabytes": (empty("chat_template.jinja"), "at most 1,048,576"),
    "pieces of two gigabytes": (empty("tokenizer.model"), "at most 134,217,728"),
    "a further template of two gigabytes": (
        empty("additional_chat_templates/x.jinja"),
        "at most 1,048,576",
    ),
    # the header of safetensors
    "half a header": (cut(100), "is cut off"),
    "half the numbers": (cut(-64), "is cut off"),
    "numbers to spare": (with_header(lambda header: None, b"\0" * 8), "is cut off or damaged"),
    "a header of a terabyte": (with_weights(struct.pack("<Q", 2**40) + b"{" * 99), "cut off"),
    "a header that is a list": (with_weights(safetensors(b"[1]", b"1234567")), "hold an object"),
    "a header with nothing": (with_weights(safetensors(b"{}      ", b"")), "holds no tensor"),
    "numbers of eight bits": (changed(FIRST, dtype="F8_E4M3"), "unquantized form"),
    "numbers of an unknown kind": (changed(FIRST, dtype="os.system"), "known: F64"),
    "a shape that is negative": (changed(FIRST, shape=[-16, 8]), "is cut off or damaged"),
    "a shape with a zero": (changed(FIRST, shape=[0, 8]), "whole numbers of at least 1"),
    "a shape that overflows": (changed(FIRST, shape=[2**62, 2**62]), "is cut off or damaged"),
    "offsets that overlap": (changed(LAST, data_offsets=[0, 512]), "is cut off or damaged"),
    "offsets outside": (changed(LAST, data_offsets=[2**40, 2**40 + 512]), "is cut off or damaged"),
    "a hole": (with_header(lambda header: header.pop(FIRST) and None), "is cut off or damaged"),
    "a word too many": (changed(LAST, evil=1), "dtype, shape and data_offsets alone"),
    "a name with a bell": (renamed("a\x07b"), "not a valid tensor name"),
    "a name that climbs": (renamed("../../evil"), "not a valid tensor name"),
    "two tebibytes": (sparse, "not enough memory"),
    # the weights against the description
    "norms missing": (with_tensors(NO_NORMS), "3 missing: model.layers.0.input_layernorm.weight"),
    "a layer too many": (with_tensors(EXTRA), "1 not of this model: model.layers.1.mlp.up_proj"),
    "a norm of another width": (
        with_tensors(TALL),
        "1 of another shape: model.norm.weight (9,), expected (8,)",
    ),
    # GGUF
    "no GGUF": (gguf(b"GGML" + b"\0" * 99), "not a GGUF file"),
    "GGUF cut off at once": (gguf(b"GGUF\3"), "cut off"),
    "GGUF of version 99": (gguf_with(version=99), "version 99"),
    "GGUF the other way round": (gguf_with(version=3 << 24), "little-endian"),
    "GGUF with tensors without end": (gguf_with(counts=(2**62, 1)), "at most 10,000"),
    "GGUF with facts without end": (gguf_with(counts=(1, 2**62)), "at most"),
    "GGUF with a text without end": (gguf_with((8, struct.pack("<Q", 2**62))), "at most 1,048,576"),
    "GGUF with a list without end": (gguf_with((9, struct.pack("<IQ", 4, 2**62))), "not supported"),
    "GGUF with lists of lists": (gguf_with((9, struct.pack("<IQ", 9, 1))), "is not supported"),
    "GGUF with a fact of no kind": (gguf_with((77, b"")), "is not known"),
    "GGUF with a tensor outside": (gguf_tensor([8], offset=2**40), "cut off or damaged"),
    "GGUF with half a block": (gguf_tensor([8], kind=2), "no multiple of its blocks"),
    "GGUF with an unknown kind": (gguf_tensor([8], kind=999), "which is not known"),
    "GGUF with a shape that overflows": (gguf_tensor([2**62, 2**62]), "cut off or damaged"),
    "GGUF with layers without end": (gguf_llama(block_count=10**9), "more than 100,000"),
    "GGUF with a description of gigabytes": (
        gguf_llama(embedding_length=2**14, feed_forward_length=2**15),
        "asks for 1,61",
    ),
    "GGUF with three thousand layers": (gguf_llama(block_count=3000), "more than 504 modules"),
    "GGUF of an unknown family": (gguf_llama("lama"), "did you mean"),
    "two GGUF files": (
        lambda f, o: (gguf(gguf_bytes())(f, o), (f / "other.gguf").write_bytes(gguf_bytes())),
        "name one of them",
    ),
}

PLANTED = {  # the check that is taken out: a folder that it refuses, and where the harm shows
    "links may lead anywhere": (HOSTILE["a description elsewhere"][0], "elsewhere"),
    "remote code is trusted": (HOSTILE["code of its own"][0], "canary"),
    "pickles are opened": (HOSTILE["a pickle"][0], "unpickled"),
    "nobody compares": (with_words(vocab_size=500_000, hidden_size=64), "megabytes"),
    "the network is always there": (None, "sockets"),
    "as many modules as asked": (with_words(num_hidden_layers=400), "modules"),
}
HUB_ID = "evil-organisation/evil-model"


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    """Open every hostile folder, and those of the planted faults, in one copy of this process."""
    root = tmp_path_factory.mktemp("hostile")
    cases = [("sound", str(llama(root / "sound" / "model")), "")]
    makers = {name: make for name, (make, _) in HOSTILE.items()} | {"a hub id": None}
    makers |= {fault: make for fault, (make, _) in PLANTED.items()}
    for number, (name, make) in enumerate(makers.items()):
        path = HUB_ID
        if make is not None:
            (root / f"{number}" / "outside").mkdir(parents=True)
            make(root / f"{number}" / "model", root / f"{number}" / "outside")
            path = str(root / f"{number}" / "model")
        cases.append((name, path, name if name in PLANTED else ""))
    done = root / "done.json"
    with pytest.MonkeyPatch.context() as patch:
        for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
            patch.delenv(name, raising=False)
        patch.chdir(root)
        assert in_copy(lambda: watching.watch(cases, done)) == 0
    found = {}
    for (name, path, _), each in zip(cases, json.loads(done.read_text()), strict=True):
        found[name] = {**each, "canary": (Path(path).parent / "outside" / "canary").exists()}
    return found


def harm(each):
    """Return what went wrong while a path was opened, by where it shows."""
    kinds = ("elsewhere", "sockets", "programs", "unpickled", "imported", "canary")
    found = {kind: each[kind] for kind in kinds if each[kind]}
    if each["modules"] > MAX_MODULES:
        found["modules"] = each["modules"]
    if each["megabytes"] > MAX_MEGABYTES:
        found["megabytes"] = each["megabytes"]
    return found


def test_every_hostile_folder_is_refused_with_a_sentence_and_does_nothing(opened):
    assert len(HOSTILE) > 100
    # One test, so that not every process that tests side by side opens all of them.
    assert {
        name: opened[name]
        for name, (_, words) in HOSTILE.items()
        if opened[name]["error"] != "CouldNotRun"
        or words not in opened[name]["words"]
        or harm(opened[name])
    } == {}


def test_a_sound_folder_beside_them_opens(opened):
    assert opened["sound"]["error"] == ""
    assert harm(opened["sound"]) == {}


@pytest.mark.parametrize("fault", PLANTED)
def test_with_a_check_taken_out_the_watch_sees_the_harm(fault, opened):
    assert PLANTED[fault][1] in harm(opened[fault]), opened[fault]


def test_a_hub_id_without_a_network_is_refused_after_one_attempt(opened):
    each = opened["a hub id"]
    assert each["error"] == "CouldNotRun"
    assert "cannot be reached" in each["words"]
    assert f"hf download {HUB_ID}" in each["words"]
