"""The run folder: where a run writes, so that it can be opened again, and so that an unfinished one shows.

`config.json` stands first (all of it, with versions and seed), `metrics.jsonl` grows, `checkpoints/` hold the best
and the last weights; `report.json`, `model.safetensors`, `figures/`, `report.html` and, last of all, `claims.json`
are written when the run is done. A folder without `claims.json` is an unfinished run.
"""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attnlab.errors import CouldNotRun
from attnlab.files import explained, read_json, write_json

__all__ = ["RunFolder", "free_name", "list_runs"]


_LEAST_FREE = 4 * 2**20  # a run of the default size writes about half a megabyte


class RunFolder:
    """One run's folder while it is written."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, path: Path, config: Mapping[str, Any]) -> "RunFolder":
        """Make the folder and write its `config.json`.

        Raises:
            CouldNotRun: something stands there already (nothing of it is touched), or it cannot be written.
        """
        with explained(path):
            if path.is_dir() and any(path.iterdir()):
                what = "a run" if (path / "config.json").exists() else "something"
                raise CouldNotRun(
                    f"{path} holds {what} already, and nothing is overwritten: "
                    "choose another folder with --out, or remove it first."
                )
            standing = next(each for each in (path, *path.absolute().parents) if each.exists())
            free = shutil.disk_usage(standing).free
            if free < _LEAST_FREE:
                raise CouldNotRun(
                    f"could not write {path}: only {free:,} bytes are free there and a run needs {_LEAST_FREE:,}. "
                    "Free some space, or choose another folder with --out."
                )
            (path / "checkpoints").mkdir(parents=True, exist_ok=True)
        write_json(path / "config.json", config)
        return cls(path)

    @property
    def checkpoints(self) -> Path:
        """Where the training keeps its checkpoints."""
        return self.path / "checkpoints"

    def add_metrics(self, line: Mapping[str, Any]) -> None:
        """Append one line to `metrics.jsonl`."""
        file = self.path / "metrics.jsonl"
        with explained(file), file.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(line, allow_nan=False) + "\n")


def free_name(parent: Path, name: str) -> Path:
    """Return `parent/name`, or the first of `name-2`, `name-3`, … that is not taken."""
    path, number = parent / name, 1
    while path.exists():
        number += 1
        path = parent / f"{name}-{number}"
    return path


def list_runs(parent: Path) -> list[dict[str, Any]]:
    """Describe every run folder inside a folder, oldest first; what is not a run is passed over.

    Raises:
        CouldNotRun: the folder is not there.
    """
    if not parent.is_dir():
        raise CouldNotRun(f"there is no folder {parent}; runs are made with: attnlab run sorting --out {parent}/NAME")
    found = []
    for path in sorted(each for each in parent.iterdir() if (each / "config.json").is_file()):
        try:
            config = read_json(path / "config.json")
            if not isinstance(config, dict) or "experiment" not in config:
                continue
            is_finished = (path / "claims.json").exists()
            claims = read_json(path / "claims.json") if is_finished else []
            state = "finished" if is_finished else "unfinished"
        except CouldNotRun:
            config, claims, state = {"experiment": "?"}, [], "damaged"
        found.append(
            {
                "run": str(path),
                "experiment": config.get("experiment"),
                "seed": config.get("seed"),
                "started": config.get("started"),
                "state": state,
                "claims": len(claims),
                "passed": sum(bool(claim.get("passed")) for claim in claims),
            }
        )
    return sorted(found, key=lambda run: (str(run["started"]), run["run"]))
