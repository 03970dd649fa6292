"""The tokenizer of a model's folder: the one that the model was trained with, or none.

Without its vocabulary file transformers builds an empty tokenizer without a warning (every text
becomes unknown tokens); here that is no tokenizer.
"""

import warnings
from typing import Any

from attnlab.errors import one_line
from attnlab.pretrained.model_files.folder import ModelFolder
from attnlab.pretrained.model_files.libraries import import_transformers, quiet


def tokenizer_of(folder: ModelFolder, config: Any) -> tuple[Any | None, list[str]]:
    """Return a folder's tokenizer, or None and the reason."""
    transformers = import_transformers()
    files = {file.name for file in folder.path.iterdir()}
    try:
        with quiet(), warnings.catch_warnings():
            tokenizer = transformers.AutoTokenizer.from_pretrained(
                str(folder.path), config=config, local_files_only=True, trust_remote_code=False
            )
        needed = dict(tokenizer.vocab_files_names)
        needed.pop("tokenizer_file", None)
        lacking = (set(needed.values()) or {"tokenizer.json"}) - files
        if "tokenizer.json" in files or not lacking:
            return tokenizer, []
        listed = ", ".join(sorted(lacking))
        why = f"{type(tokenizer).__name__} would need {listed} or tokenizer.json"
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic of its Rust code is no Exception
        words = one_line(error, 200).rstrip(".")
        why = f"transformers could not build it ({type(error).__name__}: {words})"
    if not any(name.startswith(("tokenizer", "vocab")) for name in files):
        return None, []
    return None, [f"there is no tokenizer: {why}"]
