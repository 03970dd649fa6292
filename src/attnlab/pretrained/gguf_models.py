"""GGUF files: quantised weights that are spread out once, and kept as a folder of safetensors for the next time.

Spreading a file out takes transformers many seconds; the folder it becomes opens like any other. It stands in the
user's cache (`XDG_CACHE_HOME`, otherwise `~/.cache`) under the hash of the file's bytes, and may be removed at any
time.
"""

import hashlib
import io
import os
import shutil
import tempfile
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

from attnlab.errors import CouldNotRun, did_you_mean
from attnlab.files import CouldNotWrite, check_room, explained, write_json
from attnlab.pretrained.building import explained as explained_by_library
from attnlab.pretrained.building import needs, quiet
from attnlab.pretrained.description import check_numbers
from attnlab.pretrained.folder import check_memory
from attnlab.pretrained.gguf_header import read_gguf_header

__all__ = ["converted", "kept_in"]

_FORM = "1"  # of what is kept; a new form is kept under another name


def kept_in() -> Path:
    """Return the folder that the converted models are kept in."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "attnlab" / "gguf"


def converted(file: Path) -> Path:
    """Return the folder that a GGUF file becomes: the one kept from before, or a new one.

    Raises:
        CouldNotRun: no sound GGUF file, of a kind that transformers cannot read, or no room to keep it.
    """
    facts, num_numbers = read_gguf_header(file)
    check_numbers(facts, file)
    check_memory(4 * num_numbers, f"the weights in {file}, spread out,")
    transformers = needs("opening a GGUF file")
    try:
        import accelerate  # noqa: F401  transformers asks for it
    except ImportError as error:
        raise CouldNotRun(f"opening a GGUF file needs accelerate ({error}): pip install 'attnlab[hf]'.") from None
    _check_family(facts, file)
    with open(file, "rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    goal = kept_in() / f"{digest[:32]}-{_FORM}-{transformers.__version__}"
    if not (goal / "config.json").exists():
        try:
            _convert(file, goal, num_numbers)
        except CouldNotWrite as error:
            raise CouldNotRun(
                f"{file} is spread out once and kept in {goal.parent}, which failed: {str(error).split('.')[0]}. "
                "Free some space, or name another folder for caches with XDG_CACHE_HOME."
            ) from None
    return goal


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


def _convert(file: Path, goal: Path, num_numbers: int) -> None:
    """Spread a file out into a folder beside its goal, and rename that: the goal is whole or not there."""
    check_room(goal, 4 * num_numbers, f"{file.name}, spread out,")
    with explained(goal):
        goal.parent.mkdir(parents=True, exist_ok=True)
        part = Path(tempfile.mkdtemp(prefix=f".{goal.name}.", suffix=".part", dir=goal.parent))
    try:
        with tempfile.TemporaryDirectory() as alone:  # where no other file can be taken for one of the model's
            (Path(alone) / "model.gguf").symlink_to(file.resolve())
            with quiet(), redirect_stderr(io.StringIO()), explained_by_library(str(file)):
                _spread(alone, "model.gguf", part)
        with explained(goal):
            try:
                os.replace(part, goal)
            except OSError:  # somebody else was quicker
                if not (goal / "config.json").exists():
                    raise
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _spread(folder: str, name: str, goal: Path) -> None:
    import torch
    from safetensors.torch import save_file

    transformers = needs("opening a GGUF file")
    asking: dict[str, Any] = {"gguf_file": name, "local_files_only": True, "trust_remote_code": False}
    config = transformers.AutoConfig.from_pretrained(folder, **asking)
    is_decoder = config.model_type in transformers.models.auto.modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    auto = transformers.AutoModelForCausalLM if is_decoder else transformers.AutoModel
    # dequantize: left in their blocks, the weights would be computed on by a kernel fetched from the hub
    model, said = auto.from_pretrained(
        folder, config=config, dtype=torch.float32, output_loading_info=True,
        quantization_config=transformers.GgufConfig(gguf_file=name, dequantize=True), **asking,
    )  # fmt: skip
    if said["missing_keys"] or said["mismatched_keys"]:
        names = sorted(said["missing_keys"])[:10]
        raise CouldNotRun(f"the GGUF file does not hold all of {type(model).__name__}; missing: {', '.join(names)}.")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **asking)
    tokenizer.save_pretrained(goal)
    tied = set(model.all_tied_weights_keys)
    tensors = {key: value.contiguous() for key, value in model.state_dict().items() if key not in tied}
    save_file(tensors, goal / "model.safetensors", {"format": "pt"})
    described = {**model.config.to_dict(), "architectures": [type(model).__name__]}
    described.pop("quantization_config", None)
    write_json(goal / "config.json", described)
