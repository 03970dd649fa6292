"""attnlab, the attention workbench: build, design, train, look at, edit and teach small
transformers.

The public names are those of the stub beside this file, `__init__.pyi`. They are looked up when
first used, so that `import attnlab` is quick and needs torch and NumPy alone. All edits are in
`attnlab.edits`, all figures in `attnlab.plot`.
"""

import ast
import difflib
import importlib
import pkgutil
import warnings
from pathlib import Path
from typing import Any

__version__ = "0.1.0"


def _public_names() -> dict[str, tuple[str, str]]:
    """Read the stub: each public name, with its module and what it is called there."""
    stub = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    found = {}
    for node in stub.body:
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                found[alias.asname or alias.name] = (node.module or "", alias.name)
    return found


_HOME = _public_names()

__all__ = ["__version__", *sorted(_HOME)]  # noqa: PLE0604

_RENAMED = {
    "Summarise": "Summarize",
    "does_it_matter": "pattern_effects",
    "draw_difference": "plot.difference",
    "draw_head": "plot.head",
    "draw_heads": "plot.heads",
    "draw_long_map": "plot.long_map",
    "draw_measure": "plot.measure",
    "draw_rows": "plot.rows",
    "draw_trace": "plot.trace",
    "knock_out": "ablate",
    "save_figure": "plot.save",
    "search": "tune",
    "summarise": "summarize",
    "summarise_document": "summarize_document",
}
"""Names of the version before, which still work for one version."""

_MOVED = {
    "edits": (
        "AddToScores AddVector Certificate CutTokens Edit FreezePattern MeanHead MeanSite "
        "RedirectToFirst RelaxMask ResampleHead ScaleHead ScaleScores ScaleSite SetMask "
        "SetPattern ShiftMask ShufflePattern SwapHeads Temperature UniformPattern ZeroSite "
        "ZeroValue edits_from_json edits_to_json"
    ),
    "edits.effects": "How Metric Place Rule assess",
    "parts.masks": "anti_causal_mask block_mask padding_mask prefix_mask sliding_window_mask",
    "look": "Zoom",
    "look.summaries": "head_similarity",
    "draw.view": "view_page write_view",
    "draw.corpus": "write_corpus_page",
    "draw.long_text_report": "write_document",
}
"""Names of the version before that are now imported from where they live, by their modules."""

for _place, _names in _MOVED.items():
    _RENAMED |= {name: f"{_place}.{name}" for name in _names.split()}

_REPLACED = {
    "faster_products": ("speed(model)", "pretrained.backends.registry.faster_products"),
    "open_document": ("open(folder)", "look.long_text.open_document"),
    "open_population": ("open(folder)", "experiments.population.open_population"),
    "open_recording": ("open(folder)", "look.open_recording"),
    "open_run": ("open(folder)", "experiments.population.open_run"),
    "open_search": ("open(folder)", "look.corpus.open_search"),
    "use_attention_path": ("speed(attention=…)", "parts.fused.use_attention_path"),
    "use_matrix_path": ("speed(matrix=…)", "parts.linear.use_matrix_path"),
}
"""Functions of the version before: the call that replaces each, and where it still is."""


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

_FIRST = "load, record, show, plot, ask, edit, ablate, patch_all, logit_lens, run, open"
"""The names that a newcomer looks for."""


def __getattr__(name: str) -> Any:
    if name in _RENAMED or name in _REPLACED:
        new, place = _REPLACED.get(name) or (_RENAMED[name], _RENAMED[name])
        warnings.warn(
            f"attnlab.{name} is now called attnlab.{new}; the old name goes with the next version.",
            DeprecationWarning,
            stacklevel=2,
        )
        return pkgutil.resolve_name(f"attnlab.{place}")
    if name not in _HOME:
        guess = _ELSEWHERE.get(name) or next(iter(difflib.get_close_matches(name, _HOME, n=1)), "")
        hint = f"did you mean {guess!r}? Known" if guess else "known"
        raise AttributeError(
            f"module 'attnlab' has no attribute {name!r}; {hint}: {_FIRST}, and more: dir(attnlab)"
        )
    module, own_name = _HOME[name]
    if module == "attnlab":
        return importlib.import_module(f"attnlab.{name}")
    return getattr(importlib.import_module(module), own_name)


def __dir__() -> list[str]:
    return list(__all__)
