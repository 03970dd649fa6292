"""Model folders made by hand, sound and hostile: no library takes part."""

import json
import os
import pickle
import struct
import zipfile

import numpy as np

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 8,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "vocab_size": 16,
    "max_position_embeddings": 32,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "dtype": "float32",
}
SHAPES = {
    "model.embed_tokens.weight": (16, 8),
    "model.layers.0.input_layernorm.weight": (8,),
    "model.layers.0.self_attn.q_proj.weight": (8, 8),
    "model.layers.0.self_attn.k_proj.weight": (4, 8),
    "model.layers.0.self_attn.v_proj.weight": (4, 8),
    "model.layers.0.self_attn.o_proj.weight": (8, 8),
    "model.layers.0.post_attention_layernorm.weight": (8,),
    "model.layers.0.mlp.gate_proj.weight": (16, 8),
    "model.layers.0.mlp.up_proj.weight": (16, 8),
    "model.layers.0.mlp.down_proj.weight": (8, 16),
    "model.norm.weight": (8,),
    "lm_head.weight": (16, 8),
}
WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"


def header_of(shapes, dtype="F32", size=4):
    header, at = {}, 0
    for name, shape in shapes.items():
        after = at + size * int(np.prod(shape))
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, after]}
        at = after
    return header


def safetensors(header, numbers=None):
    """Return the bytes of a file; without numbers as many random ones as the header states."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    if numbers is None:
        end = max(entry["data_offsets"][1] for entry in header.values())
        numbers = np.random.default_rng(0).normal(size=end // 4).astype("<f4").tobytes()
    return struct.pack("<Q", len(text)) + text + numbers


def llama(folder, config=None, shapes=SHAPES, **more):
    """Write a sound Llama of 1 layer; `config` is added to its description, `more` too."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({**LLAMA, **(config or {}), **more}))
    (folder / WEIGHTS).write_bytes(safetensors(header_of(shapes)))
    return folder


def without_weights(folder, **more):
    llama(folder, **more)
    (folder / WEIGHTS).unlink()
    return folder


def with_config(text):
    return with_file("config.json", text)


def with_words(**more):
    return lambda folder, outside: llama(folder, more) and None


def with_file(name, content, *, weights=True):
    def make(folder, outside):
        llama(folder) if weights else without_weights(folder)
        (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)

    return make


def with_header(change, more=b""):
    """Make a folder whose safetensors header was changed, with `more` behind the numbers."""

    def make(folder, outside):
        llama(folder)
        header = header_of(SHAPES)
        end = max(entry["data_offsets"][1] for entry in header.values())
        change(header)
        (folder / WEIGHTS).write_bytes(safetensors(header, b"\0" * end + more))

    return make


def with_tensors(shapes, **more):
    return lambda folder, outside: llama(folder, more, shapes) and None


def with_index(weight_map, files=()):
    def make(folder, outside):
        without_weights(folder)
        llama(outside / "secret")
        for name in files:
            (folder / name).write_bytes(safetensors(header_of(SHAPES)))
        (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))

    return make


def linked(name, goal, *, inside=False):
    """Make a folder where one file is a link to somewhere else."""

    def make(folder, outside):
        llama(folder)
        llama(outside / "secret")
        (outside / "secret" / "tokenizer.json").write_text("{}")
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(goal if inside else outside / goal)

    return make


class Canary:
    """Unpickled, it makes a file."""

    def __init__(self, file):
        self.file = file

    def __reduce__(self):
        return (open, (str(self.file), "w"))


def pickled(name, *, zipped=False):
    def make(folder, outside):
        without_weights(folder)
        content = pickle.dumps(Canary(outside / "canary"))
        if zipped:
            with zipfile.ZipFile(folder / name, "w") as archive:
                archive.writestr("archive/data.pkl", content)
                archive.writestr("archive/version", "3")
        else:
            (folder / name).write_bytes(content)

    return make


def with_code(**more):
    """Make a folder with Python code that makes a file as soon as it is imported."""

    def make(folder, outside):
        llama(folder, more)
        canary = f"open({str(outside / 'canary')!r}, 'w')\n"
        source = "from transformers import LlamaConfig, LlamaForCausalLM\n"
        (folder / "modeling_evil.py").write_text(
            canary + source + "class Evil(LlamaForCausalLM): pass\n"
        )
        (folder / "configuration_evil.py").write_text(
            canary + source + "class EvilConfig(LlamaConfig): pass\n"
        )

    return make


def sparse(folder, outside):
    """A file that states two tebibytes and has them, as holes."""
    llama(folder, vocab_size=2**36)
    shapes = {**SHAPES, "model.embed_tokens.weight": (2**36, 8)}
    text = json.dumps(header_of(shapes)).encode()
    with open(folder / WEIGHTS, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + 4 * sum(int(np.prod(shape)) for shape in shapes.values()))


def piped(name):
    """Make a folder where one file is a pipe: who opens it waits for ever."""

    def make(folder, outside):
        llama(folder)
        (folder / name).unlink(missing_ok=True)
        os.mkfifo(folder / name)

    return make


def gguf_bytes(facts=None, tensors=None, *, version=3, counts=None, size=32):
    """Return a GGUF file: facts as (kind, bytes), tensors as (name, shape, kind, offset)."""
    facts = {"general.architecture": (8, text("llama"))} if facts is None else facts
    tensors = [("token_embd.weight", [8], 0, 0)] if tensors is None else tensors
    num_tensors, num_facts = counts or (len(tensors), len(facts))
    content = b"GGUF" + struct.pack("<IQQ", version, num_tensors, num_facts)
    for name, (kind, value) in facts.items():
        content += text(name) + struct.pack("<I", kind) + value
    for name, shape, kind, offset in tensors:
        content += text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)
    return content + b"\0" * (-len(content) % 32) + b"\0" * size


def number(value):
    return (4, struct.pack("<I", value))


def llama_facts(**more):
    """How GGUF describes a Llama of 1 layer."""
    facts = {
        "block_count": 1,
        "context_length": 32,
        "embedding_length": 8,
        "feed_forward_length": 16,
        "vocab_size": 6,
        "attention.head_count": 2,
        "attention.head_count_kv": 1,
        "rope.dimension_count": 4,
        **more,
    }
    of_llama = {f"llama.{name}": number(value) for name, value in facts.items()}
    return {"general.architecture": (8, text("llama")), **of_llama}


def text(words):
    return struct.pack("<Q", len(words.encode())) + words.encode()


def gguf(content):
    def make(folder, outside):
        folder.mkdir(parents=True)
        (folder / "model.gguf").write_bytes(content)

    return make
