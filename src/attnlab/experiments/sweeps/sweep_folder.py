"""A sweep's folder: that of a run, with `cells/` (the results of finished units) and `table.csv`.

Results are written as units finish, each with its digest, so that a sweep that was stopped computes
only what is missing when it is resumed, and damaged results are computed again.
"""

from pathlib import Path
from typing import Any

from attnlab.core.store import digest_of, make_folder, write_text
from attnlab.errors import CouldNotRun
from attnlab.experiments.folder import read_config


def keep(folder: Path, number: int, line: str) -> None:
    """Write the results of a unit."""
    file = _file(folder, number)
    make_folder(file.parent)
    write_text(file, f"{line}\n{digest_of(line.encode())}\n")


def kept(folder: Path, number: int) -> str | None:
    """Read the results of a unit; return None if they are missing or damaged."""
    try:
        line, digest, end = _file(folder, number).read_text(encoding="utf-8").split("\n")
    except (OSError, ValueError):
        return None
    return line if (digest, end) == (digest_of(line.encode()), "") else None


def read_config_of(kind: str, folder: Path) -> dict[str, Any]:
    """Read the `config.json` of a sweep or a search.

    Raises:
        CouldNotRun: none is there.
    """
    config = read_config(folder)
    if config is None:
        raise CouldNotRun(
            f"there is no {kind} in {folder}; make one with: attnlab {kind} NAME --out {folder}"
        )
    if not isinstance(config.get(kind), dict):
        raise CouldNotRun(
            f"{folder} does not hold a {kind}; attnlab show {folder} shows what it holds."
        )
    return config


def _file(folder: Path, number: int) -> Path:
    return folder / "cells" / f"{number:05}.json"
