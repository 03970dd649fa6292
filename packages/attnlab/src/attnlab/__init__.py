"""attnlab, the attention workbench: build, design, train, look at, edit and teach small
transformers.

The public names are those of the stub beside this file, `__init__.pyi`. They are looked up when
first used, so that `import attnlab` is quick and needs torch, NumPy and lazy-loader alone. All
edits are in `attnlab.edits`, all figures in `attnlab.plot`.
"""

import difflib
from typing import Any

import lazy_loader

__version__ = "0.1.0"

_import, _, __all__ = lazy_loader.attach_stub(__name__, __file__)
__all__.append("__version__")

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
    if name in __all__:
        return _import(name)
    longer = sorted(known for known in __all__ if known.startswith(f"{name}_"))
    guesses = [_ELSEWHERE[name]] if name in _ELSEWHERE else longer
    guesses = guesses or difflib.get_close_matches(name, __all__, n=1)
    hint = f"did you mean {' or '.join(map(repr, guesses))}? Known" if guesses else "known"
    raise AttributeError(
        f"module 'attnlab' has no attribute {name!r}; {hint}: {_FIRST_NAMES}, "
        "and more: dir(attnlab)"
    )


def __dir__() -> list[str]:
    return sorted(__all__)
