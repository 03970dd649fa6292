"""A sweep's folder: that of a run, with `cells/` (the results of finished units) and `table.csv`.

Results are written as units finish, each with its digest, so that a sweep that was stopped computes
only what is missing when it is resumed, and damaged results are computed again.
"""

import hashlib
import os
from pathlib import Path
from typing import Any

from attnlab.configs import renamed_layout
from attnlab.errors import CouldNotRun
from attnlab.files import explained, read_json, write_text

__all__ = ["keep", "kept", "read_config_of"]


def keep(folder: Path, number: int, line: str) -> None:
    """Write the results of a unit."""
    file = _file(folder, number)
    with explained(file):
        file.parent.mkdir(exist_ok=True)
    write_text(file, f"{line}\n{_digest(line)}\n")


def kept(folder: Path, number: int) -> str | None:
    """Read the results of a unit; return None if they are missing or damaged."""
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
        raise CouldNotRun(
            f"there is no {kind} in {folder}; make one with: attnlab {kind} NAME --out {folder}"
        )
    config = read_json(folder / "config.json")
    if not isinstance(config, dict) or not isinstance(config.get(kind), dict):
        raise CouldNotRun(
            f"{folder} does not hold a {kind}; attnlab show {folder} shows what it holds."
        )
    return renamed_layout(config)


def _file(folder: Path, number: int) -> Path:
    return folder / "cells" / f"{number:05}.json"


def _digest(line: str) -> str:
    return hashlib.sha256(line.encode()).hexdigest()
