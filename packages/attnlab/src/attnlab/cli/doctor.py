"""attnlab doctor: what this machine has and lacks, and how to install it."""

import importlib.metadata
import os
import platform
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from rich.text import Text

from attnlab.cli.model_doctor import examine_model
from attnlab.cli.options import AsJson
from attnlab.cli.terminal import note, print_json, show_table, table_words
from attnlab.errors import WrongUsage

if TYPE_CHECKING:
    from attnlab.parts.probes import Probe

_STYLES = {"good": "green", "optional": "yellow", "missing": "bold red", "note": "dim"}


class DoctorFinding(NamedTuple):
    """One finding; state `missing` means that attnlab cannot work."""

    state: Literal["good", "optional", "missing", "note"]
    what: str
    found: str
    advice: str = ""


def doctor(
    model: str | None = None, /, *, ends_in: str | None = None, as_json: AsJson = False
) -> int:
    """Check this machine, or how much of a pretrained model can be recorded and edited.

    Parameters
    ----------
    model
        A pretrained model: a folder, a GGUF file or a hub id. Without it, this machine is checked:
        versions, optional packages, processor, disk.
    ends_in
        The model's output layer: none, causal-lm, masked-lm, …; by default the one its files name.
    as_json
        Print the findings as JSON.
    """
    if model is not None:
        return examine_model(model, ends_in, as_json=as_json)
    if ends_in is not None:
        raise WrongUsage("--ends-in is for a model; name one.")
    if not as_json:
        note("checking packages, the compiler and the speed of this processor: some seconds")
    findings = examine()
    if as_json:
        print_json([finding._asdict() for finding in findings])
    else:
        rows = [(Text(finding.state, _STYLES[finding.state]), *finding[1:]) for finding in findings]
        show_table(["", "what", "found", "advice"], rows)
    if any(finding.state == "missing" for finding in findings):
        return 3
    return 0


def examine() -> list[DoctorFinding]:
    """Check Python, packages, the C++ compiler, torch and this folder."""
    python = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    findings = [DoctorFinding("good", "Python", python), *_packages()]
    if _version("torch") is not None:
        findings += [_compiler(), *_torch()]
    return [*findings, _this_folder()]


def _packages() -> list[DoctorFinding]:
    findings = []
    for name, least in table_words("needed").items():
        missing = DoctorFinding("missing", name, "not installed", f"pip install '{name}>={least}'")
        findings.append(_installed(name) or missing)
    for name, (extra, purpose) in table_words("optional").items():
        advice = f"for {purpose}: pip install 'attnlab[{extra}]'"
        missing = DoctorFinding("optional", name, "not installed", advice)
        findings.append(_installed(name) or missing)
    return findings


def _installed(name: str) -> DoctorFinding | None:
    version = _version(name)
    if version is None:
        return None
    return DoctorFinding("good", name, version)


def _torch() -> list[DoctorFinding]:
    import torch

    from attnlab.parts.fused import attention_path_probe
    from attnlab.parts.linear import matrix_path_probe

    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "none"
    matrix = matrix_path_probe(fresh=True)
    path = _timed(matrix, "oneDNN", "the default's", "oneDNN is used for large products")
    attention = attention_path_probe(fresh=True)
    kernel = _timed(attention, "our kernel", "torch's", "it is used for long attentions")
    return [
        DoctorFinding(
            "note", "threads", f"{torch.get_num_threads()} of {os.cpu_count()} processors"
        ),
        DoctorFinding("note", "GPU", device),
        DoctorFinding("note", "matrix path", path, "ATTNLAB_MATRIX_PATH=default|onednn|auto"),
        DoctorFinding(
            "note", "attention path", kernel, "ATTNLAB_ATTENTION_PATH=default|native|auto"
        ),
    ]


def _timed(probe: "Probe", ours: str, theirs: str, when_taken: str) -> str:
    """Describe how much faster one of two paths was, and which one is used."""
    if probe.ratio is None:
        return f"the default: {probe.reason}"
    used = when_taken if probe.is_taken else "the default is used"
    return f"{ours} takes {probe.ratio:.2f} of {theirs} time; {used}"


def _compiler() -> DoctorFinding:
    from attnlab.native.compiler import compiler_name

    name = compiler_name()
    if name is None:
        advice = "for populations of tiny models at full speed: install g++ or clang++"
        return DoctorFinding("optional", "C++ compiler", "not found", advice)
    return DoctorFinding("good", "C++ compiler", name)


def _this_folder() -> DoctorFinding:
    here = Path.cwd()
    free = shutil.disk_usage(here).free / 2**30
    folder = f"{here}, {free:.1f} GiB free"
    is_writable = os.access(here, os.W_OK)
    if is_writable and free > 0.1:
        return DoctorFinding("good", "this folder", folder)
    if not is_writable:
        folder += ", read-only"
    return DoctorFinding(
        "optional", "this folder", folder, "runs need a writable folder: use --out"
    )


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
