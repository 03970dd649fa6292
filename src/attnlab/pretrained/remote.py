"""Models with Python code of their own, opened only with `remote_code=True`.

The code runs with all rights of the user; nothing here makes it safe. Links, headers, memory and
the absence of pickles were checked before, and weights that would be initialized at random are an
error here too.
"""

from typing import Any

import torch
from torch import nn

from attnlab.errors import CouldNotRun
from attnlab.pretrained.build import errors_explained, import_transformers, quiet
from attnlab.pretrained.folder import ModelFolder

__all__ = ["build_with_remote_code"]

_CLASSES = {
    None: ("AutoModelForCausalLM", "AutoModelForMaskedLM", "AutoModelForSeq2SeqLM", "AutoModel"),
    "none": ("AutoModel",),
    "causal-lm": ("AutoModelForCausalLM",),
    "masked-lm": ("AutoModelForMaskedLM",),
    "seq2seq-lm": ("AutoModelForSeq2SeqLM",),
}


def build_with_remote_code(
    folder: ModelFolder,
    *,
    head: str | None,
    dtype: torch.dtype | None,
    device: torch.device | str | None,
) -> tuple[nn.Module, Any | None, list[str]]:
    """Build a model with the code that came with it; return it, its tokenizer and notes."""
    transformers = import_transformers("opening a pretrained model")
    if any("--" in str(value) for value in folder.code.values()):
        raise CouldNotRun(
            f"{folder.path} names code in another place ({folder.code}); fetch it into the folder."
        )
    auto = next((name for name in _CLASSES.get(head, ()) if name in folder.code), None)
    if auto is None:
        raise CouldNotRun(
            f"{folder.path} brings no class for head={head!r}; it brings {', '.join(folder.code)}."
        )
    path, placing = str(folder.path), {} if device is None else {"device_map": {"": str(device)}}
    with quiet(), errors_explained(path):
        model, said = getattr(transformers, auto).from_pretrained(
            path,
            trust_remote_code=True,
            local_files_only=True,
            use_safetensors=True,
            output_loading_info=True,
            dtype=dtype or "auto",
            **placing,
        )
        if said["missing_keys"] or said["mismatched_keys"]:
            names = sorted(said["missing_keys"])[:10]
            raise CouldNotRun(
                f"the weights in {path} are not those of its {type(model).__name__}; missing: "
                f"{names}."
            )
        tokenizer = None
        if (folder.path / "tokenizer_config.json").exists():
            tokenizer = transformers.AutoTokenizer.from_pretrained(
                path, trust_remote_code=True, local_files_only=True
            )
    code = ", ".join(sorted(set(map(str, folder.code.values()))))
    return model.eval(), tokenizer, [f"code that came with the model was run: {code}"]
