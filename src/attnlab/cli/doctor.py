"""The check of this machine: what is installed, what is missing, and how to install it."""

import importlib.metadata
import os
import platform
import shutil
from pathlib import Path
from typing import Literal, NamedTuple

__all__ = ["Finding", "examine"]

_NEEDED = {"torch": "2.6", "numpy": "2", "safetensors": "0.5", "rich": "13", "cyclopts": "5"}
_OPTIONAL = {
    "matplotlib": ("figures as PNG and SVG", "pip install 'attnlab[plot]'"),
    "scikit-learn": ("the baseline of sentiment", "pip install 'attnlab[baseline]'"),
    "tokenizers": ("subword tokens", "pip install 'attnlab[text]'"),
    "pyarrow": ("texts in Parquet files", "pip install 'attnlab[text]'"),
    "transformers": ("pretrained models", "pip install 'attnlab[hf]'"),
    "accelerate": (
        "opening pretrained models in the memory they need",
        "pip install 'attnlab[hf]'",
    ),
    "gguf": ("pretrained models in GGUF files", "pip install 'attnlab[hf]'"),
    "optuna": ("attnlab search", "pip install 'attnlab[optuna]'"),
    "ray": ("sweeps and searches on a cluster", "pip install 'attnlab[ray]'"),
    "tensorboard": ("--log tensorboard", "pip install 'attnlab[tensorboard]'"),
    "mlflow-skinny": ("--log mlflow", "pip install 'attnlab[mlflow]'"),
}
_FULL_PACKAGES = {"mlflow-skinny": "mlflow"}  # the package that contains it


class Finding(NamedTuple):
    """One finding; state `missing` means that attnlab cannot work."""

    state: Literal["good", "optional", "missing", "note"]
    what: str
    found: str
    advice: str = ""


def examine() -> list[Finding]:
    """Check Python, packages, the C++ compiler, torch and this folder."""
    return [_python(), *_packages(), *_compiler(), *_torch(), *_this_folder()]


def _python() -> Finding:
    return Finding(
        "good", "Python", f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    )


def _packages() -> list[Finding]:
    findings = []
    for name, least in _NEEDED.items():
        version = _version(name)
        if version is None:
            findings.append(
                Finding("missing", name, "not installed", f"pip install '{name}>={least}'")
            )
        else:
            findings.append(Finding("good", name, version))
    for name, (purpose, command) in _OPTIONAL.items():
        version = _version(name) or _version(_FULL_PACKAGES.get(name, name))
        if version is None:
            findings.append(Finding("optional", name, "not installed", f"for {purpose}: {command}"))
        else:
            findings.append(Finding("good", name, version))
    return findings


def _torch() -> list[Finding]:
    if _version("torch") is None:
        return []
    import torch

    from attnlab.parts.fused import attention_path_probe
    from attnlab.parts.linear import matrix_path_probe

    threads = f"{torch.get_num_threads()} of {os.cpu_count()} processors"
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "none"
    probe = matrix_path_probe(fresh=True)
    if probe.ratio is None:
        path = f"the default: {probe.reason}"
    else:
        taken = "oneDNN is used for large products" if probe.is_taken else "the default is used"
        path = f"oneDNN takes {probe.ratio:.2f} of the default's time; {taken}"
    own = attention_path_probe(fresh=True)
    if own.ratio is None:
        kernel = f"the default: {own.reason}"
    else:
        taken = "it is used for long attentions" if own.is_taken else "the default is used"
        kernel = f"our kernel takes {own.ratio:.2f} of torch's time; {taken}"
    return [
        Finding("note", "threads", threads),
        Finding("note", "GPU", device),
        Finding("note", "matrix path", path, "ATTNLAB_MATRIX_PATH=default|onednn|auto"),
        Finding("note", "attention path", kernel, "ATTNLAB_ATTENTION_PATH=default|native|auto"),
    ]


def _compiler() -> list[Finding]:
    if _version("torch") is None:
        return []
    from attnlab.native.compiler import compiler_name

    name = compiler_name()
    if name is None:
        advice = "for populations of tiny models at full speed: install g++ or clang++"
        return [Finding("optional", "C++ compiler", "not found", advice)]
    return [Finding("good", "C++ compiler", name)]


def _this_folder() -> list[Finding]:
    here = Path.cwd()
    free = shutil.disk_usage(here).free / 2**30
    writable = os.access(here, os.W_OK)
    state: Literal["good", "optional"] = "good" if writable and free > 0.1 else "optional"
    advice = "" if state == "good" else "runs need a writable folder: use --out"
    found = f"{here}, {free:.1f} GiB free" + ("" if writable else ", read-only")
    return [Finding(state, "this folder", found, advice)]


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
