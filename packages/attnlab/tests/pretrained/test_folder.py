"""What is read of a model's files before anything is loaded: every limit from both sides."""

import json
import random
import struct
from pathlib import Path

import numpy as np
import pytest

from attnlab.errors import CouldNotRun
from attnlab.pretrained.model_files import folder, gguf, header
from attnlab.pretrained.model_files.folder import clean_description, gguf_file, inspect_folder
from attnlab.pretrained.model_files.gguf import read_gguf_header
from attnlab.pretrained.model_files.header import parse_object, read_tensor_entries
from tests.pretrained.folders import (
    LLAMA,
    SHAPES,
    gguf_bytes,
    header_of,
    llama,
    safetensors,
    text,
    without_weights,
)


def test_a_sound_folder_is_described(tmp_path):
    (llama(tmp_path / "model") / "generation_config.json").write_text('{"max_new_tokens": 5}')
    found = inspect_folder(tmp_path / "model")
    assert found.config == LLAMA
    assert {name: stored.shape for name, stored in found.tensors.items()} == SHAPES
    assert found.size == 4 * sum(int(np.prod(shape)) for shape in SHAPES.values())
    assert found.generation == {"max_new_tokens": 5}


def test_shards_are_put_together(tmp_path):
    path = without_weights(tmp_path / "model")
    halves = [dict(list(SHAPES.items())[:6]), dict(list(SHAPES.items())[6:])]
    for number, half in enumerate(halves):
        (path / f"{number}.safetensors").write_bytes(safetensors(header_of(half)))
    placed = {name: f"{number}.safetensors" for number, half in enumerate(halves) for name in half}
    (path / folder.INDEX).write_text(json.dumps({"weight_map": placed}))
    found = inspect_folder(path)
    assert [each.name for each in found.weights] == ["0.safetensors", "1.safetensors"]
    assert set(found.tensors) == set(SHAPES)


def test_the_links_of_the_hubs_cache_are_followed_and_no_others(tmp_path):
    cache = tmp_path / "models--org--name"
    llama(cache / "blobs")
    snapshot = cache / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    for name in ("config.json", "model.safetensors"):
        (snapshot / name).symlink_to(Path("..") / ".." / "blobs" / name)
    assert inspect_folder(snapshot).config == LLAMA
    (tmp_path / "elsewhere.json").write_text("{}")
    (snapshot / "tokenizer_config.json").symlink_to(tmp_path / "elsewhere.json")
    with pytest.raises(CouldNotRun, match=r"tokenizer_config\.json is a link that leads out"):
        inspect_folder(snapshot)


def test_words_that_choose_how_to_compute_are_left_out(tmp_path):
    said = {**LLAMA, "_attn_implementation": "eager", "auto_map": {}}
    assert clean_description(said, tmp_path / "config.json") == LLAMA


def test_a_link_to_a_folder_opens_and_a_file_of_its_own_does_not(tmp_path):
    (tmp_path / "link").symlink_to(llama(tmp_path / "model"))
    assert inspect_folder(tmp_path / "link").config == LLAMA
    with pytest.raises(CouldNotRun, match="is a file; expected a model's folder"):
        inspect_folder(tmp_path / "model" / "config.json")


def test_a_gguf_file_is_found_alone_and_in_its_folder(tmp_path):
    (tmp_path / "one.gguf").write_bytes(gguf_bytes())
    assert gguf_file(tmp_path) == gguf_file(tmp_path / "one.gguf") == tmp_path / "one.gguf"
    assert gguf_file(llama(tmp_path / "model")) is None


def test_a_sound_gguf_file_tells_its_facts_and_how_many_numbers_it_holds(tmp_path):
    found = read_gguf_header(written(tmp_path / "a.gguf", sound_gguf()))
    said = {"general.architecture": "llama", "layers": 3, "tokens": None, "scores": None}
    assert found == gguf.GgufHeader(said, 2, 72)


@pytest.mark.parametrize(
    ("where", "name", "inside", "outside", "words"),
    [  # a value on this side of the limit, one on the other, and what is said
        (header, "MAX_DEPTH", 3, 2, "nested more than 2 deep"),
        (header, "MAX_VALUES", 200, 50, "more than 50 values"),
        (header, "MAX_TENSORS", 12, 11, "holds 12 tensors; at most 11"),
        (header, "MAX_DIMENSIONS", 2, 1, "at most 1 whole numbers"),
        (header, "MAX_NAME", 46, 45, "not a valid tensor name"),
        (header, "MAX_HEADER", 1207, 1206, "at most 1,206"),
        (folder, "MAX_ENTRIES", 2, 1, "more than 1 files"),
    ],
)
def test_limits_hold_on_both_sides(where, name, inside, outside, words, tmp_path, monkeypatch):
    path = llama(tmp_path / "model", rope_parameters={"rope_type": "default", "a": [1]})
    monkeypatch.setattr(where, name, inside)
    inspect_folder(path)
    monkeypatch.setattr(where, name, outside)
    with pytest.raises(CouldNotRun, match=words):
        inspect_folder(path)


def test_more_weights_than_memory_are_refused_and_as_many_are_not(tmp_path, monkeypatch):
    path = llama(tmp_path / "model")
    monkeypatch.setattr(folder, "free_memory", lambda: 3424)
    inspect_folder(path)
    monkeypatch.setattr(folder, "free_memory", lambda: 3423)
    with pytest.raises(CouldNotRun, match="take 3,424 bytes, and 3,423 are free"):
        inspect_folder(path)


def mutated(content, source):
    """Change some bytes, cut some out, or put some in twice."""
    found = bytearray(content)
    for _ in range(source.randint(1, 4)):
        at, length = source.randrange(len(found) + 1), source.randint(1, 9)
        match source.randrange(4):
            case 0:
                found[at : at + 1] = source.randbytes(1)
            case 1:
                del found[at : at + length]
            case 2:
                found[at:at] = found[at : at + length]
            case 3:
                found[at : at + length] = source.choice(
                    [b"-1", b"9" * 20, b"[", b"{", b'"', b"\xff" * 8, b"null", b"\0"]
                )
    return bytes(found)


def sound_gguf():
    facts = {
        "general.architecture": (8, text("llama")),
        "layers": (4, struct.pack("<I", 3)),
        "tokens": (9, struct.pack("<IQ", 8, 2) + text("a") + text("b")),
        "scores": (9, struct.pack("<IQ", 6, 2) + b"\0" * 8),
    }
    # 8 numbers of 4 bytes, and 2 blocks of 18 bytes
    return gguf_bytes(facts, [("a", [8], 0, 0), ("b", [32, 2], 2, 32)], size=68)


SOUND = {
    "a header of safetensors": (
        lambda: safetensors(header_of(dict(list(SHAPES.items())[:3]))),
        read_tensor_entries,
    ),
    "a header of GGUF": (sound_gguf, read_gguf_header),
    "a description": (
        lambda: json.dumps({**LLAMA, "a": {"b": [1.5, None, "é"]}}).encode(),
        lambda path: clean_description(parse_object(path.read_bytes(), "it"), path),
    ),
}


@pytest.mark.parametrize("num_inputs", [300, pytest.param(100_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", SOUND)
def test_any_change_in_a_file_ends_in_our_sentence_at_most(name, num_inputs, tmp_path):
    make, read = SOUND[name]
    sound, source, refused = make(), random.Random(0), []
    read(written(tmp_path / "file", sound))
    for _ in range(num_inputs):
        try:
            read(written(tmp_path / "file", mutated(sound, source)))
        except CouldNotRun as error:
            refused.append(str(error))
    assert len(refused) > num_inputs / 3
    assert [words for words in refused if not words.endswith(".")] == []


def written(path, content):
    path.write_bytes(content)
    return path


def test_the_fuzzing_sees_a_foreign_exception(tmp_path, monkeypatch):
    monkeypatch.setattr(gguf, "MAX_ITEMS", 2**70)
    monkeypatch.setattr(
        gguf._HeaderReader, "skip", lambda self, count: setattr(self, "at", self.at + count)
    )
    with pytest.raises((struct.error, OverflowError, MemoryError, IndexError, TypeError)):
        test_any_change_in_a_file_ends_in_our_sentence_at_most("a header of GGUF", 300, tmp_path)


def test_a_folder_without_a_model_is_told_as_that_whatever_its_links(tmp_path):
    (tmp_path / "os-release").symlink_to(__file__)
    assert gguf_file(tmp_path) is None
    with pytest.raises(CouldNotRun, match=r"holds no config\.json; expected a model's folder"):
        inspect_folder(tmp_path)
