"""GGUF files: quantized weights that are converted once, and cached as a folder of safetensors.

The conversion takes transformers many seconds; the folder opens like any other. It is kept in the
user's cache (`XDG_CACHE_HOME`, otherwise `~/.cache`) under the hash of the file's bytes, and may be
removed at any time.

The header is checked before anything else reads it: magic, version, counts, and sizes against the
file. The format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. Every length that the
file states is compared with the bytes that are there, so that no later reader goes beyond its end.
"""

import hashlib
import importlib.metadata
import io
import logging
import math
import os
import shutil
import struct
import tempfile
import time
from contextlib import redirect_stderr
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from attnlab.core.sizes import count_numbers
from attnlab.core.store import CouldNotWrite, check_room, explained, locked, write_json, writer_of
from attnlab.errors import CouldNotRun, did_you_mean
from attnlab.pretrained.model_files import header
from attnlab.pretrained.model_files.build import Differences, bounded_modules, errors_explained
from attnlab.pretrained.model_files.folder import check_memory, check_numbers, inspect_folder
from attnlab.pretrained.model_files.header import JsonObject, plain_file, require
from attnlab.pretrained.model_files.libraries import import_transformers, needed, quiet

MAX_HEADER = 32 * 2**20  # bytes; it includes the vocabulary, some MiB
MAX_METADATA = 2_000
MAX_ITEMS = 1_000_000  # of a list: a vocabulary, its merges
_NUMBERS = dict(zip((0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12), "BbHhIif?Qqd", strict=True))
_TEXT, _LIST = 8, 9


@dataclass(frozen=True)
class GgufHeader:
    """The header of a GGUF file: its metadata, how many tensors and how many numbers they hold."""

    metadata: JsonObject
    num_tensors: int
    num_numbers: int


def read_gguf_header(path: Path) -> GgufHeader:
    """Read the header of a GGUF file.

    Raises:
        CouldNotRun: not a GGUF file, another version, cut off, or an offset beyond its end.
    """
    with plain_file(path) as (file, size):
        return _HeaderReader(file.read(min(size, MAX_HEADER)), path, size).whole()


class _HeaderReader:
    """Reads the header once, never beyond the end of the file."""

    def __init__(self, content: bytes, path: Path, size: int) -> None:
        self.content, self.path, self.size = content, path, size
        self.at = 0

    def whole(self) -> GgufHeader:
        magic, advice = self.content[:4], ""
        if magic == b"vers":
            advice = " It is the pointer that git-lfs leaves: run `git lfs pull`."
        require(
            magic == b"GGUF", self.path, f"is not a GGUF file: it begins with {magic!r}.{advice}"
        )
        self.at = 4
        version = self.number("I")
        known = "2 and 3 are read (little-endian)."
        require(version in (2, 3), self.path, f"is GGUF of version {version:,}; {known}")
        num_tensors, num_metadata = self.number("Q"), self.number("Q")
        are_few = 0 < num_tensors <= header.MAX_TENSORS and num_metadata <= MAX_METADATA
        most = f"at most {header.MAX_TENSORS:,} and {MAX_METADATA:,} are read."
        words = f"declares {num_tensors:,} tensors and {num_metadata:,} metadata entries; {most}"
        require(are_few, self.path, words)
        metadata: JsonObject = {}
        for _ in range(num_metadata):
            name, value = self.text(header.MAX_NAME), self.value(self.number("I"))
            require(name not in metadata, self.path, f"has the metadata key {name!a} twice.")
            metadata[name] = value
        return GgufHeader(metadata, num_tensors, self.tensors(num_tensors, metadata))

    def tensors(self, count: int, metadata: JsonObject) -> int:
        """Check that all tensors lie within the file; return how many numbers they hold."""
        with needed("gguf", _WHAT):
            from gguf.constants import GGML_QUANT_SIZES  # numbers in a block, and its bytes
        sizes = {int(kind): block for kind, block in GGML_QUANT_SIZES.items()}
        names: set[str] = set()
        num_numbers = end = 0
        for _ in range(count):
            name, num_dimensions = self.text(header.MAX_NAME), self.number("I")
            where = f"{self.path}: {name[:60]!a}"
            is_name = name not in names and name.isprintable() and ".." not in name
            is_sound = is_name and num_dimensions <= header.MAX_DIMENSIONS
            require(is_sound, where, "is no tensor that can be read (name or dimensions).")
            names.add(name)
            shape = [self.number("Q") for _ in range(num_dimensions)]
            kind, offset = self.number("I"), self.number("Q")
            words = f"has shape {shape} and numbers of kind {kind}, which is not known."
            require(kind in sizes and 0 not in shape, where, words)
            numbers, (block, size) = math.prod(shape), sizes[kind]
            words = f"has {numbers:,} numbers, no multiple of its blocks of {block}."
            require(numbers % block == 0, where, words)
            end = max(end, offset + numbers // block * size)
            num_numbers += numbers
        alignment = metadata.get("general.alignment", 32)
        is_possible = type(alignment) is int and 0 < alignment <= 2**16
        require(is_possible, self.path, f"has an impossible alignment, {ascii(alignment)[:40]}.")
        room = self.size - (self.at + alignment - 1) // alignment * alignment
        words = f"is cut off or damaged: its tensors take {end:,} bytes, and {max(room, 0):,} are"
        require(end <= room, self.path, f"{words} there. Download it again.")
        return num_numbers

    def value(self, kind: int) -> Any:
        if kind in _NUMBERS:
            return self.number(_NUMBERS[kind])
        if kind == _TEXT:
            return self.text(2**20)
        require(kind == _LIST, self.path, f"has metadata of type {kind:,}, which is not known.")
        inner, count = self.number("I"), self.number("Q")
        is_read = count <= MAX_ITEMS and (inner in _NUMBERS or inner == _TEXT)
        require(
            is_read, self.path, f"has {count:,} values of kind {inner:,}: which is not supported."
        )
        if inner in _NUMBERS:
            self.skip(count * struct.calcsize("<" + _NUMBERS[inner]))
        else:
            for _ in range(count):
                self.skip(self.number("Q"))
        return None  # lists are skipped: no check needs their items

    def number(self, code: str) -> Any:
        begin = self.at
        self.skip(struct.calcsize("<" + code))
        return struct.unpack_from("<" + code, self.content, begin)[0]

    def text(self, most: int) -> str:
        length = self.number("Q")
        require(length <= most, self.path, f"has a text of {length:,} bytes; at most {most:,}.")
        self.skip(length)
        return self.content[self.at - length : self.at].decode(errors="replace")

    def skip(self, count: int) -> None:
        is_there = count <= len(self.content) - self.at
        require(is_there, self.path, "is cut off or damaged: its header ends before its end.")
        self.at += count


_WHAT = "opening a GGUF file"
_FORM = "1"  # version of the cached form, part of the folder's name
_LOG = logging.getLogger(__name__)
_YOUNG = 60.0  # seconds in which another process may be about to write into a new folder


def gguf_cache() -> Path:
    """Return the folder of the converted models."""
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not base.is_absolute():
        base = Path.home() / ".cache"
    return base / "attnlab" / "gguf"


def convert_gguf(file: Path) -> Path:
    """Convert a GGUF file to a model folder and return it, from the cache if it was converted
    before.

    Raises:
        CouldNotRun: the file is damaged, transformers cannot read its type, or the disk is full.
    """
    stated = read_gguf_header(file)
    check_numbers(stated.metadata, file)
    check_memory(4 * stated.num_numbers, f"the weights in {file}, converted,")
    with open(file, "rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    with needed("transformers", _WHAT):  # its import would take longer than all the rest
        version = importlib.metadata.version("transformers")
    goal = gguf_cache() / f"{digest[:32]}-{_FORM}-{version}"
    if not _is_sound(goal):
        import_transformers(_WHAT)
        with needed("accelerate", _WHAT):
            import accelerate  # noqa: F401  transformers requires it
        _check_family(stated.metadata, file)
        try:
            _convert(file, goal, stated)
        except CouldNotWrite as error:
            raise CouldNotRun(
                f"{file} is converted once and cached in {goal.parent}, which failed: "
                f"{str(error).split('.')[0]}. Free some space, or name another folder for caches "
                "with XDG_CACHE_HOME."
            ) from None
    return goal


def _check_family(metadata: JsonObject, file: Path) -> None:
    """Refuse a family that transformers cannot read from GGUF."""
    from transformers.integrations.gguf import GGUF_CONFIG_ARCHS
    from transformers.modeling_gguf_pytorch_utils import GGUF_SUPPORTED_ARCHITECTURES

    family = str(metadata.get("general.architecture"))
    known = {*GGUF_CONFIG_ARCHS, *GGUF_SUPPORTED_ARCHITECTURES}
    words = f"is of the family {ascii(family)[:60]}, which transformers cannot read from GGUF; "
    require(family in known, file, f"{words}{did_you_mean(family, known)}.")


def _is_sound(folder: Path) -> bool:
    """Can a cached folder be opened? A damaged one is made again."""
    try:
        inspect_folder(folder)
    except CouldNotRun:
        return False
    return True


def _convert(file: Path, goal: Path, stated: GgufHeader) -> None:
    """Convert a file into a temporary folder and rename it to its goal, which is complete or
    absent."""
    with explained(goal):
        goal.parent.mkdir(parents=True, exist_ok=True)
        _remove_remains(goal.parent)
        check_room(goal, 4 * stated.num_numbers, f"{file.name}, converted,")
        part = Path(tempfile.mkdtemp(prefix=f".{goal.name}.", suffix=".part", dir=goal.parent))
    try:
        # In a folder of its own, where no other file can be taken for one of the model's.
        with locked(part), tempfile.TemporaryDirectory(prefix="attnlab-gguf-") as alone:
            (Path(alone) / "model.gguf").symlink_to(file.resolve())
            words = (
                "converting %s once: %s million numbers, about half a minute for every hundred "
                "million on a quiet machine; cached in %s"
            )
            _LOG.info(words, file.name, f"{stated.num_numbers / 1e6:,.0f}", goal.parent)
            with quiet(), redirect_stderr(io.StringIO()), errors_explained(str(file)):
                _save_converted(alone, "model.gguf", part, stated)
        with explained(goal):
            _put_in_place(part, goal)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _remove_remains(folder: Path) -> None:
    """Remove the temporary folders of killed conversions: old ones that no process writes to."""
    for part in folder.glob(".*.part"):
        if part.stat().st_mtime < time.time() - _YOUNG and writer_of(part) is None:
            shutil.rmtree(part, ignore_errors=True)


def _put_in_place(part: Path, goal: Path) -> None:
    """Rename a finished folder to its goal, unless another process was quicker."""
    for content in part.iterdir():
        with open(content, "rb") as file:
            os.fsync(file.fileno())
    if not _is_sound(goal):
        shutil.rmtree(goal, ignore_errors=True)
        os.replace(part, goal)


def _save_converted(folder: str, name: str, goal: Path, stated: GgufHeader) -> None:
    transformers = import_transformers(_WHAT)
    asking: JsonObject = {"gguf_file": name, "local_files_only": True, "trust_remote_code": False}
    config = transformers.AutoConfig.from_pretrained(folder, **asking)
    decoders = transformers.models.auto.modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    is_decoder = config.model_type in decoders
    auto = transformers.AutoModel
    if is_decoder:
        auto = transformers.AutoModelForCausalLM
    with bounded_modules(stated.num_tensors, config.model_type), torch.device("meta"):
        sketch = auto.from_config(config)
    takes = count_numbers(sketch.parameters())
    # Other weights would be random; a matrix that is used twice may be stored once.
    words = f"asks for {takes:,} numbers, and it holds {stated.num_numbers:,}."
    is_backed = takes <= 2 * stated.num_numbers
    require(is_backed, "the config in the GGUF file", f"{words} It is damaged or malicious.")
    # dequantize: quantized blocks would be computed by a kernel that is fetched from the hub
    model, said = auto.from_pretrained(
        folder,
        config=config,
        dtype=torch.float32,
        output_loading_info=True,
        ignore_mismatched_sizes=True,
        quantization_config=transformers.GgufConfig(gguf_file=name, dequantize=True),
        **asking,
    )
    differences = Differences.of({**said, "unexpected_keys": ()})
    differences.require_none("the GGUF file", type(model).__name__)
    transformers.AutoTokenizer.from_pretrained(folder, **asking).save_pretrained(goal)
    tied = set(model.all_tied_weights_keys)
    state = model.state_dict()
    tensors = {key: value.contiguous() for key, value in state.items() if key not in tied}
    save_file(tensors, goal / "model.safetensors", {"format": "pt"})
    described = {**model.config.to_dict(), "architectures": [type(model).__name__]}
    described.pop("quantization_config", None)
    write_json(goal / "config.json", described)
