"""The tokenizer of a model folder, if transformers can build the one that the model was trained
with.

Without its vocabulary file transformers builds an empty tokenizer without a warning (every text
becomes unknown tokens); here that is no tokenizer.
"""

import json
import warnings
from typing import Any

from attnlab.errors import CouldNotRun
from attnlab.pretrained.build import import_transformers, quiet
from attnlab.pretrained.folder import ModelFolder
from attnlab.pretrained.tokenization import check_added_tokens

__all__ = ["tokenizer_of"]


def tokenizer_of(folder: ModelFolder, config: Any) -> tuple[Any | None, list[str]]:
    """Return a folder's tokenizer, or None and the reason."""
    transformers = import_transformers("opening a tokenizer")
    files = {each.name for each in folder.path.iterdir()}
    try:
        _check_added(folder)
        with quiet(), warnings.catch_warnings():
            tokenizer = transformers.AutoTokenizer.from_pretrained(
                str(folder.path), config=config, local_files_only=True, trust_remote_code=False
            )
    except CouldNotRun as error:
        return None, [f"there is no tokenizer: {str(error).rstrip('.')}"]
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic of its Rust code is no Exception
        if not any(name.startswith(("tokenizer", "vocab")) for name in files):
            return None, []
        words = " ".join(str(error).split())[:200].rstrip(".")
        return None, [
            f"there is no tokenizer: transformers could not build it ({type(error).__name__}: "
            f"{words})"
        ]
    if "tokenizer.json" in files or _vocabulary(tokenizer) <= files:
        return tokenizer, []
    if not any(name.startswith(("tokenizer", "vocab")) for name in files):
        return None, []
    lacking = ", ".join(sorted(_vocabulary(tokenizer) - files))
    return None, [
        f"there is no tokenizer: {type(tokenizer).__name__} would need {lacking} or tokenizer.json"
    ]


def _check_added(folder: ModelFolder) -> None:
    """Refuse a tokenizer that would exhaust the memory when opened."""
    said: list[dict[str, Any]] = []
    for name in ("tokenizer.json", "tokenizer_config.json"):
        path = folder.path / name
        said.append(json.loads(path.read_bytes()) if path.exists() else {})
    check_added_tokens(*said)


def _vocabulary(tokenizer: Any) -> set[str]:
    """Return the files that a tokenizer of this class needs."""
    named = dict(tokenizer.vocab_files_names)
    named.pop("tokenizer_file", None)
    return set(named.values()) or {"tokenizer.json"}
