"""The run folder: a run writes it, opens it again, and resumes from it if it was stopped.

`config.json` comes first (all settings, with versions and seed); `checkpoints/` and `metrics.jsonl`
grow; `report.json`, `model.safetensors`, `figures/`, `report.html` and, last of all, `claims.json`
are written when the run is done. A folder without `claims.json` is an unfinished run. The folder is
locked while a process writes to it.
"""

import json
import math
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, NamedTuple, Self

from attnlab.configs import renamed_layout
from attnlab.draw.document import check_document
from attnlab.errors import CouldNotRun, WrongUsage
from attnlab.experiments.claims import Claim, read_claims
from attnlab.files import (
    LOCK,
    Taken,
    check_room,
    explained,
    locked,
    read_json,
    read_json_lines,
    remove_remains,
    write_json,
    writer_of,
)

__all__ = [
    "Finished",
    "FolderTaken",
    "Kind",
    "RunFiles",
    "RunFolder",
    "free_name",
    "is_finished",
    "is_unfinished",
    "kind_of",
    "list_runs",
    "read_config",
    "read_run",
    "read_to_go_on",
    "read_unfinished",
]


_LEAST_FREE = 4 * 2**20  # a run of the default size writes about half a megabyte
_CONFIG = {
    "experiment": str,
    "seed": int,
    "started": str,
    "settings": dict,
    "versions": dict,
    "model": dict,
}
_MAY_DIFFER = ("started", "versions.python", "versions.numpy")  # when a run is resumed
_WHERE = "computed_by."  # the engine of a sweep does not change its numbers
_ASKED = ("experiment", "seed", "settings", "layout", "engine", "population", "sweep", "search")
"""The fields of a config that a person asks for."""

Kind = Literal["run", "population", "sweep", "search"]
_KINDS: tuple[Kind, ...] = ("population", "sweep", "search")
"""The kinds that a config names; an ordinary run of one seed names none."""


class FolderTaken(CouldNotRun):
    """The folder is not empty; it was left as it was."""

    def __init__(self, path: Path, what: str = "a run") -> None:
        resume = ""
        if is_unfinished(path) and not writer_of(path):
            resume = f"resume it (attnlab resume {path}), "
        super().__init__(
            f"{path} holds {what} already, and nothing is overwritten: "
            f"{resume}choose another folder with --out, or remove it first."
        )


class Finished(CouldNotRun):
    """The run that was to be resumed is finished."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            f"the run in {path} is finished: nothing is left to do, and nothing was changed."
        )


class RunFolder:
    """A run's folder while it is written, with its config; it is locked until it is closed."""

    def __init__(self, path: Path, config: Mapping[str, Any], lock: ExitStack) -> None:
        self.path, self.config, self._lock = path, config, lock

    @classmethod
    def begin(
        cls,
        path: Path,
        config: Mapping[str, Any],
        tell: Callable[[str], None],
        *,
        resume: bool = False,
    ) -> Self:
        """Create the folder, or resume the run in it."""
        return cls.resume(path, config, tell) if resume else cls.create(path, config)

    @classmethod
    def create(cls, path: Path, config: Mapping[str, Any]) -> Self:
        """Make and lock the folder, and write its `config.json`.

        Raises:
            FolderTaken: the folder is not empty; it is left as it is.
            CouldNotRun: it cannot be written.
        """
        with ExitStack() as stack:
            with explained(path):
                _refuse_taken(path)
                check_room(path, _LEAST_FREE, "a run")
                path.mkdir(parents=True, exist_ok=True)
            try:
                stack.enter_context(locked(path))
            except Taken as error:
                raise FolderTaken(path, f"a run ({error.writer} is writing it)") from None
            _refuse_taken(path)  # another run may have written it before we held the lock
            remove_remains(path)
            write_json(path / "config.json", config)
            return cls(path, config, stack.pop_all())

    @classmethod
    def resume(cls, path: Path, config: Mapping[str, Any], tell: Callable[[str], None]) -> Self:
        """Lock the folder of a stopped run, if it is this run; its metrics are written anew.

        Args:
            path: the folder.
            config: what `config.json` would hold if the run began now.
            tell: is told of differences that may change the last digits.

        Raises:
            CouldNotRun: the folder holds no unfinished run, it is being written, or it holds
                another run (the message shows every difference).
        """
        read_unfinished(path)
        with ExitStack() as stack:
            stack.enter_context(locked(path))
            begun = read_unfinished(path)
            _refuse_another(path, begun, config, tell)
            remove_remains(path)
            with explained(path):
                (path / "metrics.jsonl").unlink(missing_ok=True)
            return cls(path, begun, stack.pop_all())

    @property
    def checkpoints(self) -> Path:
        """The folder for the checkpoints of trainings."""
        return self.path / "checkpoints"

    def add_metrics(self, line: Mapping[str, Any]) -> None:
        """Append one line to `metrics.jsonl`."""
        file, text = self.path / "metrics.jsonl", json.dumps(line, allow_nan=False) + "\n"
        with explained(file, len(text)), file.open("a", encoding="utf-8") as stream:
            stream.write(text)

    def close(self) -> None:
        """Release the lock."""
        self._lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def free_name(parent: Path, name: str) -> Path:
    """Return `parent/name`, or the first of `name-2`, `name-3`, … that is not taken."""
    path, number = parent / name, 1
    while os.path.lexists(path):
        number += 1
        path = parent / f"{name}-{number}"
    return path


class RunFiles(NamedTuple):
    """The contents of a finished run's files, each checked for its form."""

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
        raise CouldNotRun(
            f"{folder} is not a run folder (it has no config.json); `attnlab list` shows the runs."
        )
    config = _read_config(folder / "config.json")
    if config is None:
        raise CouldNotRun(
            f"{folder} holds a model, but not a run; load it with attnlab.load(folder)."
        )
    if not (folder / "claims.json").exists():
        writer = writer_of(folder)
        if writer is not None:
            raise CouldNotRun(
                f"the run in {folder} is still running ({writer}): look again when it has ended."
            )
        raise CouldNotRun(
            f"the run in {folder} is unfinished: it was stopped before its claims were evaluated. "
            f"Resume it with: attnlab resume {folder}"
        )
    claims = _read_claims(folder / "claims.json")
    document = _read_document(folder / "report.json", claims)
    return RunFiles(config, claims, read_json_lines(folder / "metrics.jsonl"), document)


def read_unfinished(folder: Path) -> dict[str, Any]:
    """Return the config of a run that was stopped.

    Raises:
        Finished: it is finished.
        CouldNotRun: no run is there.
    """
    config = read_config(folder)
    if config is None:
        raise CouldNotRun(f"there is no run to resume in {folder}; begin it without --resume.")
    if is_finished(folder):
        raise Finished(folder)
    return config


def read_to_go_on(folder: Path, kind: Kind, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return the config of a stopped run, if it is the run that was asked for.

    Args:
        folder: the run's.
        kind: run, population, sweep or search.
        asked: the fields of the config that must be the same (`experiment`, `seed`, `settings`,
            …); fields that are missing are not compared.

    Raises:
        Finished: it is finished.
        CouldNotRun: no run is there, or another one; the message shows every difference.
    """
    config = read_config(folder)
    if config is None:
        raise CouldNotRun(f"there is no run to resume in {folder}; begin it without --resume.")
    if kind_of(config) != kind:
        raise CouldNotRun(
            f"{folder} holds {_described_kind(config)}, not {_ARTICLES[kind]}: resume it with "
            f"attnlab resume {folder}, or choose another folder with --out."
        )
    names = [name for name in _ASKED if name in asked]
    _refuse_another(
        folder, {name: config.get(name) for name in names}, {name: asked[name] for name in names}
    )
    if is_finished(folder):
        raise Finished(folder)
    return config


def read_config(folder: Path) -> dict[str, Any] | None:
    """Read the config of a run, finished or not; return None if there is no run."""
    file = folder / "config.json"
    # os.path answers False where Path would raise, such as for a name too long.
    return _read_config(file) if os.path.isfile(file) else None


def kind_of(config: Mapping[str, Any]) -> Kind:
    """Return the kind of run that a config describes."""
    return next((kind for kind in _KINDS if kind in config), "run")


_ARTICLES: dict[Kind, str] = {
    "run": "a run of one seed",
    "population": "a population",
    "sweep": "a sweep",
    "search": "a search",
}


def _described_kind(config: Mapping[str, Any]) -> str:
    kind = kind_of(config)
    how = f", made with --seeds {_num_seeds(config):,}" if kind != "run" else ""
    return f"{_ARTICLES[kind]} of {config['experiment']}{how}"


def is_finished(folder: Path) -> bool:
    """Does this folder hold a finished run?"""
    return os.path.isfile(folder / "config.json") and os.path.exists(folder / "claims.json")


def is_unfinished(folder: Path) -> bool:
    """Does this folder hold a run that is not finished?"""
    return os.path.isfile(folder / "config.json") and not os.path.exists(folder / "claims.json")


def list_runs(parent: Path) -> list[dict[str, Any]]:
    """Describe every run folder inside a folder, oldest first; other folders are skipped.

    Raises:
        CouldNotRun: the folder is not there.
    """
    if not os.path.isdir(parent):
        raise CouldNotRun(
            f"there is no folder {parent}; runs are made with: attnlab run sorting --out "
            f"{parent}/NAME"
        )
    folders = [each for each in parent.iterdir() if os.path.isfile(each / "config.json")]
    found = [described for each in folders if (described := _described(each)) is not None]
    return sorted(found, key=lambda run: (str(run["started"]), run["run"]))


def _described(folder: Path) -> dict[str, Any] | None:
    """Describe one run folder for a list; return None for a saved model, which is not a run."""
    config: dict[str, Any] | None = {"experiment": "?"}
    claims: tuple[Claim, ...] = ()
    try:
        config = _read_config(folder / "config.json")
        if config is None:
            return None
        if (folder / "claims.json").exists():
            claims = read_run(folder).claims
            state = "finished"
        else:
            state = "running" if writer_of(folder) else "unfinished"
    except CouldNotRun:
        state = "damaged"
    assert config is not None
    return {
        "run": str(folder),
        "experiment": config.get("experiment"),
        "kind": kind_of(config),
        "what": _what(config),
        "seed": config.get("seed"),
        "seeds": _num_seeds(config),
        "members": _num_members(config),
        "cells": _num_cells(config),
        "started": config.get("started"),
        "state": state,
        "writer": writer_of(folder),
        "claims": len(claims),
        "passed": sum(claim.passed is True for claim in claims),
        "undecided": sum(claim.passed is None for claim in claims),
    }


def _what(config: Mapping[str, Any]) -> str:
    """Describe a run in a few words: its experiment, kind and size."""
    kind, name = kind_of(config), str(config["experiment"])
    seeds, cells = _num_seeds(config), _num_cells(config)
    if kind == "run":
        return name
    each = f"{seeds:,} {'seed' if seeds == 1 else 'seeds'}"
    if kind == "population":
        return f"{name}, {each}" if cells == 1 else f"{name}, {cells:,} variants × {each}"
    noun = {"sweep": "cell", "search": "trial"}[kind]
    return f"{name} {kind}, {cells:,} {noun}{'' if cells == 1 else 's'} × {each}"


def _num_seeds(config: Mapping[str, Any]) -> int:
    """Return the number of seeds of each setting; an ordinary run has one."""
    try:
        kind = kind_of(config)
        return 1 if kind == "run" else len(config[kind]["seeds"])
    except (KeyError, TypeError):
        return 1


def _num_cells(config: Mapping[str, Any]) -> int:
    """Return the number of settings: variants of a population, cells of a sweep, or trials."""
    try:
        if "sweep" in config:
            return math.prod(len(values) for values in config["sweep"]["axes"].values())
        if "search" in config:
            return int(config["search"]["trials"])
        return len(config["population"]["variants"])
    except (KeyError, TypeError, ValueError, AttributeError):
        return 1


def _num_members(config: Mapping[str, Any]) -> int:
    """Return the number of models of a population; 1 for any other kind of run."""
    return _num_seeds(config) * _num_cells(config) if "population" in config else 1


def _refuse_taken(path: Path) -> None:
    """Refuse a folder that holds more than the lock and the parts of files of a killed writer."""
    if not path.is_dir():
        return
    names = [each.name for each in path.iterdir() if each.name != LOCK]
    if not all(name.startswith(".") and name.endswith(".part") for name in names):
        raise FolderTaken(path, "a run" if "config.json" in names else "something")


def _refuse_another(
    path: Path,
    there: Mapping[str, Any],
    here: Mapping[str, Any],
    tell: Callable[[str], None] = lambda _: None,
) -> None:
    """Compare two runs' configs field by field, and refuse a difference that matters."""
    old, new = dict(_flat(there)), dict(_flat(json.loads(json.dumps(here))))
    names = [name for name in {**old, **new} if not name.startswith(_WHERE)]
    different = [name for name in names if old.get(name) != new.get(name)]
    if "experiment" in different:  # then the settings differ too, which says nothing more
        different = ["experiment"]
    shown = {}
    for name in different:
        there_and_here = f"{_shown(old, name)} there, {_shown(new, name)} here"
        shown[name] = f"{name.removeprefix('settings.')}: {there_and_here}"
    grave = [shown[name] for name in different if name not in _MAY_DIFFER]
    if grave:
        raise CouldNotRun(
            "\n  ".join([f"the run in {path} is another one, and was left as it is:", *grave])
        )
    slight = [shown[name] for name in different if name != "started"]
    if slight:
        tell(f"The last digits may differ ({'; '.join(slight)}).")


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield nested names, joined by dots, with their values."""
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def _shown(values: Mapping[str, Any], name: str) -> str:
    value = values.get(name)
    if isinstance(value, list) and len(value) > 2 and value == list(range(len(value))):
        return f"0 to {len(value) - 1:,}"  # seeds, most often
    text = json.dumps(value) if name in values else "nothing"
    return text if len(text) <= 60 else text[:57] + "..."


def _read_config(file: Path) -> dict[str, Any] | None:
    """Read a run's config; return None for that of a saved model, which names no experiment."""
    config = read_json(file)
    if not isinstance(config, dict):
        raise CouldNotRun(f"{file} is damaged: expected an object; got {str(config)[:60]}.")
    if "experiment" not in config:
        return None
    for name, kind in _CONFIG.items():
        if not isinstance(config.get(name), kind):
            raise CouldNotRun(
                f"{file} is damaged: expected {name}, of type {kind.__name__}; got "
                f"{config.get(name)!r}."
            )
    return renamed_layout(config)


def _read_claims(file: Path) -> tuple[Claim, ...]:
    values = read_json(file)
    try:
        return read_claims(values)
    except CouldNotRun as error:
        raise CouldNotRun(f"{file} does not hold a list of claims: {error}") from None


def _read_document(file: Path, claims: tuple[Claim, ...]) -> dict[str, Any]:
    """Read `report.json`, and check it together with the claims of `claims.json`."""
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
