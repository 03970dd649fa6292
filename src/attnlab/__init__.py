"""attnlab, the attention workbench: build, design, train, look at, edit and teach small
transformers.

The public names are those of the stub beside this file, `__init__.pyi`. They are looked up when
first used, so that `import attnlab` is quick and needs torch and NumPy alone. All edits are in
`attnlab.edits`, all figures in `attnlab.plot`.
"""

import ast
import difflib
import importlib
from pathlib import Path
from typing import Any

__version__ = "0.1.0"


def _public_names() -> dict[str, tuple[str, str]]:
    """Read the stub: each public name, with its module and what it is called there."""
    stub = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    homes = {}
    for node in stub.body:
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                homes[alias.asname or alias.name] = (node.module or "", alias.name)
    return homes


_HOME = _public_names()

__all__ = ["__version__", *sorted(_HOME)]  # noqa: PLE0604

_ELSEWHERE = {
    "HookedTransformer": "load",
    "activation_patching": "patch_all",
    "from_pretrained": "load",
    "head_view": "show",
    "load_model": "load",
    "logit_attribution": "direct_logits",
    "model_view": "show",
    "patching": "patch_all",
    "path_patching": "patch_paths",
    "run_with_cache": "record",
    "run_with_hooks": "edit",
}
"""What other libraries call what is here."""

_FIRST_NAMES = "load, record, show, plot, ask, edit, ablate, patch_all, logit_lens, run, open"
"""The names that a newcomer looks for."""


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        guess = _ELSEWHERE.get(name) or next(iter(difflib.get_close_matches(name, _HOME, n=1)), "")
        hint = f"did you mean {guess!r}? Known" if guess else "known"
        raise AttributeError(
            f"module 'attnlab' has no attribute {name!r}; {hint}: {_FIRST_NAMES}, "
            "and more: dir(attnlab)"
        )
    module, attribute = _HOME[name]
    if module == "attnlab":
        return importlib.import_module(f"attnlab.{name}")
    return getattr(importlib.import_module(module), attribute)


def __dir__() -> list[str]:
    return list(__all__)
