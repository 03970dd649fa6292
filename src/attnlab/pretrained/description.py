"""Checks of a `config.json`, which must be data: it fetches, runs and replaces nothing.

transformers has let it do all three (CVE-2026-4372: an attention implementation named in a config
was downloaded and run, with remote code forbidden). Here the keys that name code or other files are
refused, and numbers that no model has are refused before a loop runs over them.
"""

import re
from pathlib import Path
from typing import Any

from attnlab.errors import CouldNotRun
from attnlab.pretrained.json_files import JsonPath, walk

__all__ = ["check_numbers", "clean_description", "refuse_remote_code"]

MOST_NUMBER = 2**40
_LOOPS = r"layers?$|depths?$|cycles?$|group_detr$"
_LISTS = r"layer|block|depth|stage|label|expert|group|codebook|level|head|repeat|hash|types|pattern"
_WIDTHS = r"hidden_size|d_model|d_ff|d_kv|n_embd|n_inner|dim|ffn|intermediate|channels|width"
_MOST = ((_LOOPS, 1_000), (_LISTS, 100_000), (_WIDTHS, 2**22))  # by words in a key
_COUNTS = re.compile(
    r"^(num|n|d)_|(layers|heads|channels|embeddings|(hidden|intermediate|vocab|image|patch)_size)$"
)

_IMPLEMENTATIONS = ("attn_implementation", "experts_implementation")
_BUILT_IN = (
    "eager", "sdpa", "flash_attention_2", "flash_attention_3", "flex_attention", "grouped_mm",
    "batched_mm",
)  # fmt: skip
_FETCHING = (
    "kernel_config", "fusion_config", "transformers_weights", "distributed_config", "use_kernels",
)  # fmt: skip
_DTYPES = (None, "auto", "float64", "float32", "float16", "bfloat16")


def clean_description(
    config: dict[str, Any], path: Path, *, remote_code: bool = False
) -> dict[str, Any]:
    """Check a config, and return it without the keys that choose an implementation.

    Raises:
        CouldNotRun: it is no model's config, quantized, names code or files, or holds impossible
            numbers.
    """
    if {"experiment", "settings"} <= set(config) or isinstance(config.get("model"), dict):
        raise CouldNotRun(
            f"{path.parent} was written by attnlab itself: open it with attnlab.load or "
            "attnlab.open_run."
        )
    if config.get("model_type") is None and not config.get("architectures"):
        raise CouldNotRun(
            f"{path} names neither model_type nor architectures: it describes no model of "
            'transformers. If it is one, add its type, such as "model_type": "llama".'
        )
    _texts(config, path)
    if not remote_code:
        refuse_remote_code(config, path)
    for place, value in walk(config):
        _check(place, value, path)
    check_numbers(config, path)
    kept: dict[str, Any] = _without(config)
    return kept


def refuse_remote_code(config: dict[str, Any], path: Path) -> None:
    """Refuse a JSON file that names Python code to run when the model is opened."""
    for place, value in walk(config):
        if place and place[-1] == "auto_map" and value:
            raise CouldNotRun(
                f"{path} asks for Python code of its own to be run (auto_map: "
                f"{ascii(value)[:80]}). Read that code; if you trust it, say remote_code=True."
            )


def check_numbers(said: dict[str, Any], path: Path) -> None:
    """Refuse numbers that no model has, before a loop runs over them or a table becomes as wide."""
    for place, value in walk(said):
        if type(value) is not int:
            continue
        where = f"{path}: {'.'.join(place)[:80]}"
        most = _most(place)
        if abs(value) > most:
            is_short = abs(value) < 2**64
            came = f"{value:,}" if is_short else f"a number of {len(str(value))} digits"
            raise CouldNotRun(
                f"{where} is {came}; no model has more than {most:,}. It is damaged, or a trap."
            )
        if value < 0 and _COUNTS.search(place[-1]):
            raise CouldNotRun(f"{where} is {value}; expected a number of at least 0.")


def _most(place: JsonPath) -> int:
    """Return the largest number that a key may have."""
    key = next((word for word in reversed(place) if not word.isdigit()), "")
    if key.endswith(("_id", "_ids")):
        return MOST_NUMBER
    return next((most for words, most in _MOST if re.search(words, key)), MOST_NUMBER)


def _texts(config: dict[str, Any], path: Path) -> None:
    model_type, heads = config.get("model_type"), config.get("architectures")
    is_name = isinstance(model_type, str) and re.fullmatch(r"[\w.-]{1,80}", model_type)
    if model_type is not None and not is_name:
        raise CouldNotRun(f"{path}: model_type must be a name; got {ascii(model_type)[:80]}.")
    if heads is None:
        return
    if not isinstance(heads, list) or not all(
        isinstance(each, str) and each.isidentifier() for each in heads
    ):
        raise CouldNotRun(
            f"{path}: architectures must be a list of class names; got {ascii(heads)[:80]}."
        )


def _check(place: JsonPath, value: Any, path: Path) -> None:
    key = place[-1] if place else ""
    where = f"{path}: {'.'.join(place)[:80]}"
    if key.startswith(("quantization_config", "compression_config")) and value:
        method = value.get("quant_method") if isinstance(value, dict) else value
        raise CouldNotRun(
            f"{where} says that the weights are quantised ({ascii(method)[:40]}) in the form of "
            "another library. Take the model's unquantised form, or its GGUF file."
        )
    if any(word in key for word in _IMPLEMENTATIONS):
        words = value.values() if isinstance(value, dict) else [value]
        if not all(map(_is_built_in, words)):
            raise CouldNotRun(
                f"{where} names code to compute with ({ascii(value)[:60]}), which might be "
                "fetched and run. Remove the key; how attention is computed is chosen here."
            )
    if key in _FETCHING and value:
        raise CouldNotRun(
            f"{where} points at code or files of its own ({ascii(value)[:60]}). Remove the key."
        )
    if key == "return_dict" and value is False:
        raise CouldNotRun(
            f"{where} is false, which leaves the model's outputs without names. Remove the key."
        )
    if key in ("dtype", "torch_dtype") and not isinstance(value, dict):
        _check_dtype(value, where)


def _check_dtype(value: Any, where: str) -> None:
    if not isinstance(value, str | None) or value not in _DTYPES:
        known = ", ".join(each for each in _DTYPES if each)
        raise CouldNotRun(f"{where} is {ascii(value)[:40]}; known: {known}.")


def _is_built_in(word: Any) -> bool:
    """Is an attention implementation part of transformers itself?"""
    return word is None or isinstance(word, bool) or (isinstance(word, str) and word in _BUILT_IN)


def _without(value: Any) -> Any:
    """Copy a JSON value without the keys that choose an implementation or name remote code."""
    if isinstance(value, list):
        return [_without(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    names = [name for name in value if not any(word in name for word in _IMPLEMENTATIONS)]
    left_out = ("auto_map", "trust_remote_code")
    return {name: _without(value[name]) for name in names if name not in left_out}
