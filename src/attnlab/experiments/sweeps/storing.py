"""A sweep's folder: that of a run, with `cells/` (what each finished population came to) and `table.csv`.

Populations are written as they finish, each with its digest, so that a sweep that was stopped, killed or lost its
cluster goes on with what is missing, and nothing that is damaged is taken for whole.
"""

import hashlib
import os
from pathlib import Path
from typing import Any

from attnlab.errors import CouldNotRun
from attnlab.files import explained, read_json, write_text

__all__ = ["keep", "kept", "read_config_of"]


def keep(folder: Path, number: int, line: str) -> None:
    """Write down what a population came to."""
    file = _file(folder, number)
    with explained(file):
        file.parent.mkdir(exist_ok=True)
    write_text(file, f"{line}\n{_digest(line)}\n")


def kept(folder: Path, number: int) -> str | None:
    """Return what a population came to; None when that is missing or damaged, and must be computed (again)."""
    try:
        line, digest, end = _file(folder, number).read_text(encoding="utf-8").split("\n")
    except (OSError, ValueError):
        return None
    return line if (digest, end) == (_digest(line), "") else None


def read_config_of(kind: str, folder: Path) -> dict[str, Any]:
    """Read the `config.json` of a sweep or a search.

    Raises:
        CouldNotRun: none is there.
    """
    if not os.path.isfile(folder / "config.json"):
        raise CouldNotRun(f"there is no {kind} in {folder}; make one with: attnlab {kind} NAME --out {folder}")
    config = read_json(folder / "config.json")
    if not isinstance(config, dict) or not isinstance(config.get(kind), dict):
        raise CouldNotRun(f"{folder} holds something else than a {kind}; attnlab show {folder} says what.")
    return config


def _file(folder: Path, number: int) -> Path:
    return folder / "cells" / f"{number:05}.json"


def _digest(line: str) -> str:
    return hashlib.sha256(line.encode()).hexdigest()
