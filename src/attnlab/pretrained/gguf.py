"""GGUF files: quantized weights that are converted once, and cached as a folder of safetensors.

The conversion takes transformers many seconds; the folder opens like any other. It is kept in the
user's cache (`XDG_CACHE_HOME`, otherwise `~/.cache`) under the hash of the file's bytes, and may be
removed at any time.
"""

import hashlib
import importlib.metadata
import io
import logging
import os
import shutil
import tempfile
import time
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

from attnlab.errors import CouldNotRun, did_you_mean
from attnlab.files import CouldNotWrite, check_room, explained, locked, write_json, writer_of
from attnlab.pretrained.build import (
    Differences,
    bounded_modules,
    errors_explained,
    import_transformers,
    quiet,
)
from attnlab.pretrained.description import check_numbers
from attnlab.pretrained.folder import check_memory, inspect_folder
from attnlab.pretrained.gguf_header import GgufHeader, read_gguf_header

__all__ = ["convert_gguf", "gguf_cache"]

_FORM = "1"  # version of the cached form, part of the folder's name
_LOG = logging.getLogger(__name__)
_YOUNG = 60.0  # seconds in which another process may be about to write into a new folder


def gguf_cache() -> Path:
    """Return the folder of the converted models."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "attnlab" / "gguf"


def convert_gguf(file: Path) -> Path:
    """Convert a GGUF file to a model folder and return it, from the cache if it was converted
    before.

    Raises:
        CouldNotRun: the file is damaged, transformers cannot read its type, or the disk is full.
    """
    stated = read_gguf_header(file)
    check_numbers(stated.facts, file)
    check_memory(4 * stated.num_numbers, f"the weights in {file}, converted,")
    with open(file, "rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    goal = gguf_cache() / f"{digest[:32]}-{_FORM}-{_version_of_transformers()}"
    if not _is_sound(goal):
        _check_libraries()
        _check_family(stated.facts, file)
        try:
            _convert(file, goal, stated)
        except CouldNotWrite as error:
            raise CouldNotRun(
                f"{file} is converted once and cached in {goal.parent}, which failed: "
                f"{str(error).split('.')[0]}. Free some space, or name another folder for caches "
                "with XDG_CACHE_HOME."
            ) from None
    return goal


def _version_of_transformers() -> str:
    """Return the version without the import, which would take longer than all the rest."""
    try:
        return importlib.metadata.version("transformers")
    except importlib.metadata.PackageNotFoundError:
        return str(import_transformers("opening a GGUF file").__version__)


def _check_libraries() -> None:
    import_transformers("opening a GGUF file")
    try:
        import accelerate  # noqa: F401  transformers requires it
    except ImportError as error:
        raise CouldNotRun(
            f"opening a GGUF file needs accelerate ({error}): pip install 'attnlab[hf]'."
        ) from None


def _check_family(facts: dict[str, Any], file: Path) -> None:
    """Refuse a family that transformers cannot read from GGUF."""
    from transformers.integrations.gguf import GGUF_CONFIG_ARCHS
    from transformers.modeling_gguf_pytorch_utils import GGUF_SUPPORTED_ARCHITECTURES

    family = facts.get("general.architecture")
    known = {*GGUF_CONFIG_ARCHS, *GGUF_SUPPORTED_ARCHITECTURES}
    if not isinstance(family, str) or family not in known:
        raise CouldNotRun(
            f"{file} is of the family {ascii(family)[:60]}, which transformers cannot read from "
            f"GGUF; {did_you_mean(str(family), known)}."
        )


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
            _LOG.info(
                "%s is converted, which takes a while and is done once; cached in %s",
                file.name,
                goal.parent,
            )
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
    for each in part.iterdir():
        with open(each, "rb") as file:
            os.fsync(file.fileno())
    try:
        os.replace(part, goal)
    except OSError:
        if _is_sound(goal):
            return
        shutil.rmtree(goal, ignore_errors=True)
        os.replace(part, goal)


def _check_description(auto: Any, config: Any, stated: GgufHeader, name: str) -> None:
    """Refuse a config that asks for more weights than the file holds: they would be random."""
    import torch

    with bounded_modules(stated.num_tensors, name), torch.device("meta"):
        sketch = auto.from_config(config)
    takes = sum(each.numel() for each in sketch.parameters())
    if takes > 2 * stated.num_numbers:  # a matrix that is used twice may be stored once
        raise CouldNotRun(
            f"the config in the GGUF file asks for {takes:,} numbers, and it holds "
            f"{stated.num_numbers:,}. It is damaged, or a trap."
        )


def _save_converted(folder: str, name: str, goal: Path, stated: GgufHeader) -> None:
    import torch
    from safetensors.torch import save_file

    transformers = import_transformers("opening a GGUF file")
    asking: dict[str, Any] = {
        "gguf_file": name,
        "local_files_only": True,
        "trust_remote_code": False,
    }
    config = transformers.AutoConfig.from_pretrained(folder, **asking)
    decoders = transformers.models.auto.modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    is_decoder = config.model_type in decoders
    auto = transformers.AutoModelForCausalLM if is_decoder else transformers.AutoModel
    _check_description(auto, config, stated, config.model_type)
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
    if said["missing_keys"] or said["mismatched_keys"]:
        other = sorted(
            f"{name} {tuple(has)}, expected {tuple(wants)}"
            for name, has, wants in said["mismatched_keys"]
        )
        raise CouldNotRun(
            f"the weights in the GGUF file are not those of its {type(model).__name__}: "
            f"{Differences(sorted(said['missing_keys']), [], other).in_words()}."
        )
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **asking)
    tokenizer.save_pretrained(goal)
    tied = set(model.all_tied_weights_keys)
    state = model.state_dict()
    tensors = {key: value.contiguous() for key, value in state.items() if key not in tied}
    save_file(tensors, goal / "model.safetensors", {"format": "pt"})
    described = {**model.config.to_dict(), "architectures": [type(model).__name__]}
    described.pop("quantization_config", None)
    write_json(goal / "config.json", described)
