"""The tokenizer of a model folder, if transformers can make the one that the model was trained with.

Where a vocabulary file is missing, transformers makes an empty tokenizer without a word (every text becomes unknown
tokens); here that is no tokenizer.
"""

import warnings
from typing import Any

from attnlab.pretrained.building import needs, quiet
from attnlab.pretrained.folder import ModelFolder

__all__ = ["tokenizer_of"]


def tokenizer_of(folder: ModelFolder, config: Any) -> tuple[Any | None, list[str]]:
    """Return a folder's tokenizer, or None and why."""
    transformers = needs("opening a tokenizer")
    files = {each.name for each in folder.path.iterdir()}
    try:
        with quiet(), warnings.catch_warnings():
            tokenizer = transformers.AutoTokenizer.from_pretrained(
                str(folder.path), config=config, local_files_only=True, trust_remote_code=False
            )
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a file broken enough makes its Rust panic, which is no Exception
        if not any(name.startswith(("tokenizer", "vocab")) for name in files):
            return None, []
        words = " ".join(str(error).split())[:200].rstrip(".")
        return None, [f"there is no tokenizer: transformers could not make it ({type(error).__name__}: {words})"]
    if "tokenizer.json" in files or _vocabulary(tokenizer) <= files:
        return tokenizer, []
    if not any(name.startswith(("tokenizer", "vocab")) for name in files):
        return None, []
    lacking = ", ".join(sorted(_vocabulary(tokenizer) - files))
    return None, [f"there is no tokenizer: {type(tokenizer).__name__} would need {lacking} or tokenizer.json"]


def _vocabulary(tokenizer: Any) -> set[str]:
    """Return the files without which a tokenizer of this class is empty."""
    named = {kind: name for kind, name in tokenizer.vocab_files_names.items() if kind != "tokenizer_file"}
    return set(named.values()) or {"tokenizer.json"}
