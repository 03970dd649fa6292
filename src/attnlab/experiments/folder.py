"""The run folder: where a run writes, so that it can be opened again, and so that an unfinished one shows.

`checkpoints/` is made first, for whoever makes it owns the folder; it holds the best and the last weights.
`config.json` follows (all of it, with versions and seed), `metrics.jsonl` grows; `report.json`, `model.safetensors`,
`figures/`, `report.html` and, last of all, `claims.json` are written when the run is done. A folder without
`claims.json` is an unfinished run.
"""

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from attnlab.draw.document import check_document
from attnlab.errors import CouldNotRun, WrongUsage
from attnlab.experiments.claims import Claim, read_claims
from attnlab.files import explained, read_json, read_json_lines, write_json

__all__ = ["FolderTaken", "RunFiles", "RunFolder", "free_name", "list_runs", "read_run"]


_LEAST_FREE = 4 * 2**20  # a run of the default size writes about half a megabyte
_CONFIG = {"experiment": str, "seed": int, "started": str, "settings": dict, "versions": dict, "model": dict}


class FolderTaken(CouldNotRun):
    """The folder holds something already; nothing of it was touched."""

    def __init__(self, path: Path, what: str = "a run") -> None:
        super().__init__(
            f"{path} holds {what} already, and nothing is overwritten: "
            "choose another folder with --out, or remove it first."
        )


class RunFolder:
    """One run's folder while it is written."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, path: Path, config: Mapping[str, Any]) -> "RunFolder":
        """Make the folder, which is then ours alone, and write its `config.json`.

        Raises:
            FolderTaken: something stands there already, perhaps since a moment ago; nothing of it is touched.
            CouldNotRun: it cannot be written.
        """
        with explained(path):
            if path.is_dir() and any(path.iterdir()):
                is_run = any((path / name).exists() for name in ("config.json", "checkpoints"))
                raise FolderTaken(path, "a run" if is_run else "something")
            _check_room(path)
            path.mkdir(parents=True, exist_ok=True)
            try:
                # Two runs may both have found the folder empty: the system lets only one of them make this.
                (path / "checkpoints").mkdir()
            except FileExistsError:
                raise FolderTaken(path) from None
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
    while os.path.lexists(path):
        number += 1
        path = parent / f"{name}-{number}"
    return path


class RunFiles(NamedTuple):
    """What the files of a finished run hold, each checked for its form."""

    config: dict[str, Any]
    claims: tuple[Claim, ...]
    metrics: list[dict[str, Any]]
    document: dict[str, Any]


def read_run(folder: Path) -> RunFiles:
    """Read a finished run.

    Raises:
        CouldNotRun: no run is there, it is unfinished, or a file of it is damaged.
    """
    # os.path answers False where Path would raise, such as for a name too long.
    if not os.path.isfile(folder / "config.json"):
        raise CouldNotRun(f"{folder} is not a run folder (it has no config.json); `attnlab list` shows the runs.")
    config = _read_config(folder / "config.json")
    if config is None:
        raise CouldNotRun(f"{folder} holds a model, but not a run; load it with attnlab.load(folder).")
    if not (folder / "claims.json").exists():
        raise CouldNotRun(f"the run in {folder} is unfinished: it was stopped before its claims were judged.")
    claims = _read_claims(folder / "claims.json")
    document = _read_document(folder / "report.json", claims)
    return RunFiles(config, claims, read_json_lines(folder / "metrics.jsonl"), document)


def list_runs(parent: Path) -> list[dict[str, Any]]:
    """Describe every run folder inside a folder, oldest first; what is not a run is passed over.

    Raises:
        CouldNotRun: the folder is not there.
    """
    if not os.path.isdir(parent):
        raise CouldNotRun(f"there is no folder {parent}; runs are made with: attnlab run sorting --out {parent}/NAME")
    folders = [each for each in parent.iterdir() if os.path.isfile(each / "config.json")]
    found = [described for each in folders if (described := _described(each)) is not None]
    return sorted(found, key=lambda run: (str(run["started"]), run["run"]))


def _described(folder: Path) -> dict[str, Any] | None:
    """Describe one run folder for a list; None for a saved model, which is no run."""
    config: dict[str, Any] | None = {"experiment": "?"}
    claims: tuple[Claim, ...] = ()
    try:
        config = _read_config(folder / "config.json")
        if config is None:
            return None
        is_finished = (folder / "claims.json").exists()
        claims = read_run(folder).claims if is_finished else ()
        state = "finished" if is_finished else "unfinished"
    except CouldNotRun:
        state = "damaged"
    assert config is not None
    return {
        "run": str(folder),
        "experiment": config.get("experiment"),
        "seed": config.get("seed"),
        "started": config.get("started"),
        "state": state,
        "claims": len(claims),
        "passed": sum(claim.passed for claim in claims),
    }


def _check_room(path: Path) -> None:
    standing = next(each for each in (path, *path.absolute().parents) if each.exists())
    usage = shutil.disk_usage(standing)
    free = usage.free
    if free < _LEAST_FREE and usage.total:  # a place of no size at all is no disk; writing there says why it fails
        raise CouldNotRun(
            f"could not write {path}: only {free:,} bytes are free there and a run needs {_LEAST_FREE:,}. "
            "Free some space, or choose another folder with --out."
        )


def _read_config(file: Path) -> dict[str, Any] | None:
    """Read a run's config; None when it is that of a saved model, which names no experiment."""
    config = read_json(file)
    if not isinstance(config, dict):
        raise CouldNotRun(f"{file} is damaged: expected an object; got {str(config)[:60]}.")
    if "experiment" not in config:
        return None
    for name, kind in _CONFIG.items():
        if not isinstance(config.get(name), kind):
            raise CouldNotRun(f"{file} is damaged: expected {name}, of type {kind.__name__}; got {config.get(name)!r}.")
    return config


def _read_claims(file: Path) -> tuple[Claim, ...]:
    values = read_json(file)
    try:
        return read_claims(values)
    except CouldNotRun as error:
        raise CouldNotRun(f"{file} does not hold a list of claims: {error}") from None


def _read_document(file: Path, claims: tuple[Claim, ...]) -> dict[str, Any]:
    """Read `report.json`; the claims, which stand in a file of their own, complete the document."""
    document = read_json(file)
    try:
        if not isinstance(document, dict):
            raise WrongUsage(f"expected an object; got {str(document)[:60]}")
        check_document({**document, "claims": [claim.to_mapping() for claim in claims]})
        if any(len(fact) != 2 for fact in document["facts"]):
            raise WrongUsage("expected facts to be pairs of name and value")
    except WrongUsage as error:
        raise CouldNotRun(f"{file} is damaged: {error}.") from None
    return document
