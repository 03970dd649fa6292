"""GGUF files: quantised weights that are spread out once, and kept as a folder of safetensors for the next time.

Spreading a file out takes transformers many seconds; the folder it becomes opens like any other. It stands in the
user's cache (`XDG_CACHE_HOME`, otherwise `~/.cache`) under the hash of the file's bytes, and may be removed at any
time.
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
from attnlab.pretrained.building import Differences, bounded_modules, needs, quiet
from attnlab.pretrained.building import explained as explained_by_library
from attnlab.pretrained.description import check_numbers
from attnlab.pretrained.folder import check_memory, look_into
from attnlab.pretrained.gguf_header import Stated, read_gguf_header

__all__ = ["converted", "kept_in"]

_FORM = "1"  # of what is kept; a new form is kept under another name
_LOG = logging.getLogger(__name__)
_YOUNG = 60.0  # seconds in which somebody may be about to write into a new folder


def kept_in() -> Path:
    """Return the folder that the converted models are kept in."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "attnlab" / "gguf"


def converted(file: Path) -> Path:
    """Return the folder that a GGUF file becomes: the one kept from before, or a new one.

    Raises:
        CouldNotRun: no sound GGUF file, of a kind that transformers cannot read, or no room to keep it.
    """
    stated = read_gguf_header(file)
    check_numbers(stated.facts, file)
    check_memory(4 * stated.num_numbers, f"the weights in {file}, spread out,")
    with open(file, "rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    goal = kept_in() / f"{digest[:32]}-{_FORM}-{_version_of_transformers()}"
    if not _is_sound(goal):
        _check_libraries()
        _check_family(stated.facts, file)
        try:
            _convert(file, goal, stated)
        except CouldNotWrite as error:
            raise CouldNotRun(
                f"{file} is spread out once and kept in {goal.parent}, which failed: {str(error).split('.')[0]}. "
                "Free some space, or name another folder for caches with XDG_CACHE_HOME."
            ) from None
    return goal


def _version_of_transformers() -> str:
    """Return its version without importing it, which would take longer than all the rest."""
    try:
        return importlib.metadata.version("transformers")
    except importlib.metadata.PackageNotFoundError:
        return str(needs("opening a GGUF file").__version__)


def _check_libraries() -> None:
    needs("opening a GGUF file")
    try:
        import accelerate  # noqa: F401  transformers asks for it
    except ImportError as error:
        raise CouldNotRun(f"opening a GGUF file needs accelerate ({error}): pip install 'attnlab[hf]'.") from None


def _check_family(facts: dict[str, Any], file: Path) -> None:
    """Refuse a family that transformers cannot read from GGUF."""
    from transformers.integrations.gguf import GGUF_CONFIG_ARCHS
    from transformers.modeling_gguf_pytorch_utils import GGUF_SUPPORTED_ARCHITECTURES

    family, known = facts.get("general.architecture"), {*GGUF_CONFIG_ARCHS, *GGUF_SUPPORTED_ARCHITECTURES}
    if not isinstance(family, str) or family not in known:
        raise CouldNotRun(
            f"{file} is of the family {ascii(family)[:60]}, which transformers cannot read from GGUF; "
            f"{did_you_mean(str(family), known)}."
        )


def _is_sound(folder: Path) -> bool:
    """Say whether a kept folder can be opened; one that was damaged since is made anew."""
    try:
        look_into(folder)
    except CouldNotRun:
        return False
    return True


def _convert(file: Path, goal: Path, stated: Stated) -> None:
    """Spread a file out into a folder beside its goal, and rename that: the goal is whole or not there."""
    with explained(goal):
        goal.parent.mkdir(parents=True, exist_ok=True)
        _remove_remains(goal.parent)
        check_room(goal, 4 * stated.num_numbers, f"{file.name}, spread out,")
        part = Path(tempfile.mkdtemp(prefix=f".{goal.name}.", suffix=".part", dir=goal.parent))
    try:
        # Alone, so that no other file can be taken for one of the model's.
        with locked(part), tempfile.TemporaryDirectory(prefix="attnlab-gguf-") as alone:
            (Path(alone) / "model.gguf").symlink_to(file.resolve())
            _LOG.info("%s is spread out, which takes a while and is done once; kept in %s", file.name, goal.parent)
            with quiet(), redirect_stderr(io.StringIO()), explained_by_library(str(file)):
                _spread(alone, "model.gguf", part, stated)
        with explained(goal):
            _put_in_place(part, goal)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _remove_remains(folder: Path) -> None:
    """Remove what conversions left that were killed: parts that nobody has worked on for a while, nor works on now."""
    for part in folder.glob(".*.part"):
        if part.stat().st_mtime < time.time() - _YOUNG and writer_of(part) is None:
            shutil.rmtree(part, ignore_errors=True)


def _put_in_place(part: Path, goal: Path) -> None:
    """Rename a finished folder to its goal, unless somebody else was quicker."""
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


def _check_description(auto: Any, config: Any, stated: Stated, name: str) -> None:
    """Refuse a description that asks for more weights than there are: they would be drawn at random."""
    import torch

    with bounded_modules(stated.num_tensors, name), torch.device("meta"):
        sketch = auto.from_config(config)
    takes = sum(each.numel() for each in sketch.parameters())
    if takes > 2 * stated.num_numbers:  # a matrix that is used twice may stand there once
        raise CouldNotRun(
            f"the description in the GGUF file asks for {takes:,} numbers, and it holds {stated.num_numbers:,}. It is "
            "damaged, or a trap."
        )


def _spread(folder: str, name: str, goal: Path, stated: Stated) -> None:
    import torch
    from safetensors.torch import save_file

    transformers = needs("opening a GGUF file")
    asking: dict[str, Any] = {"gguf_file": name, "local_files_only": True, "trust_remote_code": False}
    config = transformers.AutoConfig.from_pretrained(folder, **asking)
    is_decoder = config.model_type in transformers.models.auto.modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    auto = transformers.AutoModelForCausalLM if is_decoder else transformers.AutoModel
    _check_description(auto, config, stated, config.model_type)
    # dequantize: left in their blocks, the weights would be computed on by a kernel fetched from the hub
    model, said = auto.from_pretrained(
        folder, config=config, dtype=torch.float32, output_loading_info=True, ignore_mismatched_sizes=True,
        quantization_config=transformers.GgufConfig(gguf_file=name, dequantize=True), **asking,
    )  # fmt: skip
    if said["missing_keys"] or said["mismatched_keys"]:
        other = sorted(f"{name} {tuple(has)}, expected {tuple(wants)}" for name, has, wants in said["mismatched_keys"])
        raise CouldNotRun(
            "the weights in the GGUF file are not those of its "
            f"{type(model).__name__}: {Differences(sorted(said['missing_keys']), [], other).in_words()}."
        )
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **asking)
    tokenizer.save_pretrained(goal)
    tied = set(model.all_tied_weights_keys)
    tensors = {key: value.contiguous() for key, value in model.state_dict().items() if key not in tied}
    save_file(tensors, goal / "model.safetensors", {"format": "pt"})
    described = {**model.config.to_dict(), "architectures": [type(model).__name__]}
    described.pop("quantization_config", None)
    write_json(goal / "config.json", described)
