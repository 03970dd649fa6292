"""Inspection of a model folder before anything is loaded from it.

A folder in Hugging Face's layout (`config.json`, `model.safetensors` or its shards, tokenizer
files) is untrusted. Everything that later loaders would believe is checked here first, without
transformers: where links lead, what the files are by their first bytes, what the config and the
headers say, and whether the memory suffices. Refusing takes milliseconds and no memory.

A `config.json` must be data: it fetches, runs and replaces nothing. transformers has let it do all
three (CVE-2026-4372: an attention implementation named in a config was downloaded and run, with
remote code forbidden). Here the keys that name code or other files are refused, and numbers that no
model has are refused before a loop runs over them.
"""

import re
import stat
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from attnlab.errors import CouldNotRun
from attnlab.memory import free_memory
from attnlab.pretrained.model_files.header import (
    JsonObject,
    JsonPath,
    TensorEntry,
    how_to_convert,
    read_object,
    read_tensor_entries,
    require,
    some_of,
    walk,
)

CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
MAX_ENTRIES = 10_000
MAX_SHARDS = 1_000
MAX_TENSORS_IN_ALL = 100_000  # a mixture of many experts has tens of thousands in its shards
MAX_INDEX = 16 * 2**20
MAX_SIDE_FILE = 4 * 2**20  # tokenizer_config.json with thousands of added tokens takes 1 MiB
MAX_TEMPLATE = 2**20
MAX_TOKENIZER = 128 * 2**20

_PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
_OTHERS = (".h5", ".msgpack", ".onnx", ".npz", ".ot", ".tflite", ".mlmodel", ".keras")
_NO_WEIGHTS = ("training_args", "optimizer", "scheduler", "rng_state", "scaler")
_OF_TOKENIZERS = (".json", ".jinja", ".txt", ".model", ".spm", ".bpe", ".tiktoken", ".vocab")
_SIDE_FILES = {
    "generation_config.json", "tokenizer_config.json", "special_tokens_map.json",
    "added_tokens.json", "processor_config.json", "preprocessor_config.json",
}  # fmt: skip


@dataclass(frozen=True)
class ModelFolder:
    """A folder that passed inspection: its cleaned config, the weight files, and their tensors."""

    path: Path
    config: JsonObject
    weights: tuple[Path, ...]
    tensors: dict[str, TensorEntry]
    generation: JsonObject | None

    @property
    def size(self) -> int:
        """The size of all weights in bytes."""
        return sum(tensor.size for tensor in self.tensors.values())


def inspect_folder(path: Path) -> ModelFolder:
    """Check a folder, and return its config and tensors.

    Raises:
        CouldNotRun: it holds no model, or one that cannot be opened without running code, leaving
            the folder or taking more memory than is free; the sentence says which and what to do.
    """
    names = _entries(path)
    if CONFIG not in names:
        raise CouldNotRun(_no_config(path, names))
    config = clean_description(read_object(path / CONFIG), path / CONFIG)
    generation = None
    for name in _SIDE_FILES & names:
        content = read_object(path / name, MAX_SIDE_FILE)
        _check_side_file(content, path / name)
        generation = content if name == "generation_config.json" else generation
    for name in names:
        _check_size(path / name)
    weights, tensors = _weights(path, names)
    folder = ModelFolder(path, config, weights, tensors, generation)
    check_memory(folder.size, f"the weights in {path}")
    return folder


def gguf_file(path: Path) -> Path | None:
    """Return the GGUF file at a path: the file itself, or the only one in a folder without
    `config.json`."""
    if not path.is_dir():
        return path if path.suffix.lower() == ".gguf" else None
    names = _entries(path)
    files = sorted(name for name in names if name.lower().endswith(".gguf"))
    if CONFIG in names or not files:
        return None
    words = f"holds {len(files)} GGUF files; name one of them: {some_of(files)}."
    require(len(files) == 1, path, words)
    return path / files[0]


def check_memory(size: int, what: str) -> None:
    """Refuse what does not fit into the free memory, before any of it is allocated."""
    free = free_memory()
    words = f"take {size:,} bytes, and {free or 0:,} are free."
    require(free is None or size <= free, "there is not enough memory:", f"{what} {words}")


def _entries(path: Path) -> set[str]:
    """Return the names in a folder; of a model's folder, refuse links that lead out of it, pipes
    and devices."""
    root, templates = _root(path), path / "additional_chat_templates"
    words = f"holds more than {MAX_ENTRIES:,} files: it is not a model's folder."
    try:
        entries = list(islice(path.iterdir(), MAX_ENTRIES + 1))
        require(len(entries) <= MAX_ENTRIES, path, words)
        names = {entry.name for entry in entries}
        if CONFIG not in names and not any(name.lower().endswith(".gguf") for name in names):
            return names  # no model, whatever else there is
        for entry in entries:
            _check_entry(entry, root)
        for entry in templates.iterdir() if templates.is_dir() else ():
            _check_entry(entry, root)
            _check_size(entry)
    except NotADirectoryError:
        raise CouldNotRun(
            f"{path} is a file; expected a model's folder, or a file that ends in .gguf."
        ) from None
    except OSError as error:
        raise CouldNotRun(f"could not read {path}: {error.strerror or error}.") from None
    return names


def _check_size(path: Path) -> None:
    """Refuse a file larger than any tokenizer's; which files it reads depends on its class."""
    if path.suffix in _OF_TOKENIZERS:
        most = MAX_TEMPLATE if path.suffix == ".jinja" else MAX_TOKENIZER
        size = path.stat().st_size
        require(size <= most, path, f"has {size:,} bytes; at most {most:,} are read.")


def _root(path: Path) -> Path:
    """Return the folder that links must stay in: this one or, in the hub's cache, the model's."""
    real = path.resolve()
    model = real.parent.parent
    if real.parent.name == "snapshots" and model.name.startswith("models--"):
        return model
    return real


def _check_entry(entry: Path, root: Path) -> None:
    if entry.is_symlink():
        nowhere = "is a link that leads nowhere. Download the file again."
        try:
            goal = entry.resolve()
        except (OSError, RuntimeError):
            raise CouldNotRun(f"{entry} {nowhere}") from None
        words = f"is a link that leads out of the folder, to {goal}. Put the file itself there."
        require(goal.is_relative_to(root), entry, words)
        require(goal.exists(), entry, nowhere)
    is_plain = stat.S_ISREG(entry.stat().st_mode) or entry.is_dir()
    require(is_plain, entry, "is not a regular file (a pipe, a socket or a device).")


def _no_config(path: Path, names: set[str]) -> str:
    if "adapter_config.json" in names:
        return f"{path} holds an adapter alone: merge it into its base model, and open that."
    what = f"holds no {CONFIG}" if names else "is empty"
    return (
        f"{path} {what}; expected a model's folder, with {CONFIG} and {WEIGHTS}, or one GGUF file."
    )


def _check_side_file(content: JsonObject, path: Path) -> None:
    """Refuse a tokenizer's or generation's settings that name code, or files elsewhere."""
    refuse_remote_code(content, path)
    for name, value in content.items():
        where = f"{path}: {ascii(name)[:60]}"
        is_elsewhere = name.endswith("_file") and value is not None and not _is_plain_name(value)
        words = f"points to {ascii(value)[:80]}; a model's files must be named without a folder."
        require(not is_elsewhere, where, words)
        if type(value) is int and name.startswith(("max_", "num_")):
            words = f"is {f'{value:,}'[:40]}, which is out of range."
            require(abs(value) <= 2**53, where, words)


def _weights(path: Path, names: set[str]) -> tuple[tuple[Path, ...], dict[str, TensorEntry]]:
    if WEIGHTS in names:
        return (path / WEIGHTS,), read_tensor_entries(path / WEIGHTS)
    if INDEX not in names:
        raise CouldNotRun(_no_weights(path, names))
    contents = _contents_of_shards(path / INDEX)
    shards = sorted(contents)
    missing = [shard for shard in shards if shard not in names]
    words = f"lacks {len(missing)} of {len(shards)} shards: {some_of(missing)}. Download them."
    require(not missing, path, words)
    count = sum(map(len, contents.values()))
    most = f"at most {MAX_SHARDS:,} and {MAX_TENSORS_IN_ALL:,} are read."
    are_few = len(shards) <= MAX_SHARDS and count <= MAX_TENSORS_IN_ALL
    words = f"names {len(shards):,} shards and {count:,} tensors; {most}"
    require(are_few, path / INDEX, words)
    tensors: dict[str, TensorEntry] = {}
    for shard in shards:
        held = read_tensor_entries(path / shard)
        odd = sorted(held.keys() ^ contents[shard])
        words = f"does not hold what {INDEX} says: {some_of(odd)}. Download the model again."
        require(not odd, path / shard, words)
        tensors |= held
    return tuple(path / shard for shard in shards), tensors


def _contents_of_shards(index: Path) -> dict[str, set[str]]:
    """Return the names of the tensors in each shard, as the index says."""
    placed: Any = read_object(index, MAX_INDEX).get("weight_map")
    is_map = isinstance(placed, dict) and all(isinstance(shard, str) for shard in placed.values())
    require(placed and is_map, index, "must hold weight_map, which file each tensor is in.")
    contents: dict[str, set[str]] = {}
    for tensor, shard in placed.items():
        contents.setdefault(shard, set()).add(tensor)
    for shard in contents:
        is_beside = _is_plain_name(shard) and shard.endswith(".safetensors")
        words = "the shards of a model lie beside it and end in .safetensors."
        require(is_beside, index, f"points at {ascii(shard)[:80]}; {words}")
    return contents


def _no_weights(path: Path, names: set[str]) -> str:
    stray = _ending_in(names, (".safetensors",))
    pickles = [name for name in _ending_in(names, _PICKLES) if not name.startswith(_NO_WEIGHTS)]
    others = _ending_in(names, _OTHERS)
    if stray:
        words = f"but {some_of(stray)}: rename it if it is the whole model."
        return f"{path} holds neither {WEIGHTS} nor {INDEX}, {words}"
    if pickles:
        advice = "Have them converted to safetensors where they were made."
        if len(pickles) == 1:
            advice = how_to_convert(path / pickles[0])
        return f"{path} keeps its weights in {some_of(pickles)} alone: Python's pickle. {advice}"
    if others:
        words = f"expected {WEIGHTS}: convert it where it was made."
        return f"{path} keeps its weights in {some_of(others)} alone; {words}"
    return f"{path} holds no weights; expected {WEIGHTS}, or {INDEX} and its shards."


def _ending_in(names: set[str], endings: tuple[str, ...]) -> list[str]:
    return sorted(name for name in names if name.endswith(endings))


def _is_plain_name(value: Any) -> bool:
    """Is a value the name of a visible file in the same folder, without a separator or a drive?"""
    return (
        isinstance(value, str)
        and 0 < len(value) <= 255
        and value.isprintable()
        and not value.startswith(".")
        and not any(letter in value for letter in "/\\:")
    )


MAX_NUMBER = 2**40
_LOOPS = r"layers?$|depths?$|cycles?$|group_detr$"
_LISTS = r"layer|block|depth|stage|label|expert|group|codebook|level|head|repeat|hash|types|pattern"
_WIDTHS = r"hidden_size|d_model|d_ff|d_kv|n_embd|n_inner|dim|ffn|intermediate|channels|width"
_MAX_BY_KEY = ((_LOOPS, 1_000), (_LISTS, 100_000), (_WIDTHS, 2**22))  # by words in a key
_COUNTS = re.compile(
    r"^(num|n|d)_|(layers|heads|channels|embeddings|(hidden|intermediate|vocab|image|patch)_size)$"
)

_IMPLEMENTATIONS = ("attn_implementation", "experts_implementation")
_BUILT_IN = (
    "eager", "sdpa", "flash_attention_2", "flash_attention_3", "flex_attention", "grouped_mm",
    "batched_mm",
)  # fmt: skip
_FETCHING = (
    "kernel_config", "fusion_config", "transformers_weights", "distributed_config", "use_kernels",
)  # fmt: skip
_DTYPES = ("auto", "float64", "float32", "float16", "bfloat16")


def clean_description(config: JsonObject, path: Path) -> JsonObject:
    """Check a config, and return it without the keys that choose an implementation.

    Raises:
        CouldNotRun: it is no model's config, quantized, names code or files, or holds impossible
            numbers.
    """
    is_ours = {"experiment", "settings"} <= set(config) or isinstance(config.get("model"), dict)
    words = "was written by attnlab itself: open it with attnlab.load or attnlab.open."
    require(not is_ours, path.parent, words)
    model_type, heads = config.get("model_type"), config.get("architectures")
    words = (
        "does not say model_type, so it describes no model of transformers. If it is one, add its "
        'type, such as "model_type": "llama".'
    )
    require(model_type is not None, path, words)
    is_name = isinstance(model_type, str) and re.fullmatch(r"[\w.-]{1,80}", model_type)
    require(is_name, f"{path}:", f"model_type must be a name; got {ascii(model_type)[:80]}.")
    are_names = isinstance(heads, list) and all(map(str.isidentifier, map(str, heads)))
    words = f"architectures must be a list of class names; got {ascii(heads)[:80]}."
    require(heads is None or are_names, f"{path}:", words)
    refuse_remote_code(config, path)
    for place, value in walk(config):
        key, where = "".join(place[-1:]), f"{path}: {'.'.join(place)[:80]}"
        _check_code(key, value, where)
        _check_kind(key, value, where)
    check_numbers(config, path)
    kept: JsonObject = _without(config)
    return kept


def refuse_remote_code(config: JsonObject, path: Path) -> None:
    """Refuse a JSON file that names Python code to run when the model is opened."""
    for place, value in walk(config):
        if place[-1:] == ("auto_map",):
            words = f"wants to run Python code of its own (auto_map: {ascii(value)[:80]})."
            advice = (
                "Read that code; if you trust it, open the model by transformers with "
                "trust_remote_code=True, and give attnlab.load the model."
            )
            require(not value, path, f"{words} {advice}")


def check_numbers(config: JsonObject, path: Path) -> None:
    """Refuse numbers that no model has, before a loop runs over them or a table becomes as wide."""
    for place, value in walk(config):
        if type(value) is not int:
            continue
        where, most = f"{path}: {'.'.join(place)[:80]}", _max_number(place)
        came = f"{value:,}"
        if abs(value) >= 2**64:
            came = f"a number of {len(str(value))} digits"
        words = f"is {came}; no model has more than {most:,}. It is damaged or malicious."
        require(abs(value) <= most, where, words)
        is_count = _COUNTS.search(place[-1])
        require(value >= 0 or not is_count, where, f"is {value}; expected a number of at least 0.")


def _max_number(place: JsonPath) -> int:
    """Return the largest number that a key may have."""
    words = [word for word in place if not word.isdigit()]
    key = "".join(words[-1:])
    if key.endswith(("_id", "_ids")):
        return MAX_NUMBER
    for pattern, most in _MAX_BY_KEY:
        if re.search(pattern, key):
            return most
    return MAX_NUMBER


def _check_code(key: str, value: Any, where: str) -> None:
    """Refuse keys that let other code compute, or that point at files."""
    if key.startswith(("quantization_config", "compression_config")):
        method = value.get("quant_method") if isinstance(value, dict) else value
        words = f"says that the weights are quantized ({ascii(method)[:40]}) for another library."
        require(not value, where, f"{words} Take the model's unquantized form, or its GGUF file.")
    if any(word in key for word in _IMPLEMENTATIONS):
        chosen = list(value.values()) if isinstance(value, dict) else [value]
        words = f"names code to compute with ({ascii(value)[:60]}), which might be fetched and run."
        require(all(map(_is_built_in, chosen)), where, f"{words} Remove the key.")
    if key in _FETCHING:
        words = f"points at code or files of its own ({ascii(value)[:60]}). Remove the key."
        require(not value, where, words)


def _check_kind(key: str, value: Any, where: str) -> None:
    """Refuse a dtype that is not known, and outputs without names."""
    if key == "return_dict":
        words = "is false, which leaves the model's outputs without names. Remove the key."
        require(value is not False, where, words)
    if key in ("dtype", "torch_dtype") and value is not None and not isinstance(value, dict):
        require(value in _DTYPES, where, f"is {ascii(value)[:40]}; known: {', '.join(_DTYPES)}.")


def _is_built_in(word: Any) -> bool:
    """Is an attention implementation part of transformers itself?"""
    return word is None or isinstance(word, bool) or (isinstance(word, str) and word in _BUILT_IN)


def _without(value: Any) -> Any:
    """Copy a JSON value without the keys that choose an implementation or name remote code."""
    if isinstance(value, list):
        return list(map(_without, value))
    if not isinstance(value, dict):
        return value
    names = [name for name in value if not any(word in name for word in _IMPLEMENTATIONS)]
    left_out = ("auto_map", "trust_remote_code")
    return {name: _without(value[name]) for name in names if name not in left_out}
