"""The run folder: a run writes it, opens it again, and resumes from it if it was stopped.

`config.json` comes first (all settings, with versions and seed); `checkpoints/` and `metrics.jsonl`
grow; `report.json`, `model.safetensors`, `figures/`, `report.html` and, last of all, `claims.json`
are written by `Report.write` when the run is done. A folder without `claims.json` is an unfinished
run. The folder is locked while a process writes to it.
"""

import itertools
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar, cast

from attnlab.core import store
from attnlab.display import plural
from attnlab.draw.sections import ReportContent
from attnlab.errors import CouldNotRun, WrongUsage, typed
from attnlab.experiments.claims import Claim, read_claims
from attnlab.experiments.run_config import ListedRun as ListedRun
from attnlab.experiments.run_config import RunConfig as RunConfig
from attnlab.experiments.run_config import RunKind as RunKind
from attnlab.experiments.run_config import RunState, refuse_another, seeds_of_config

_LEAST_FREE = 4 * 2**20  # a run of the default size writes about half a megabyte
_CONFIG = {
    "experiment": str,
    "seed": int,
    "started": str,
    "settings": dict,
    "versions": dict,
    "model": dict,
}
_ASKED = ("experiment", "seed", "settings", "layout", "engine", "population", "sweep", "search")
"""The fields of a config that a person asks for."""

_KINDS: dict[RunKind, tuple[str, str]] = {
    "population": ("a population", ""),
    "sweep": ("a sweep", "cell"),
    "search": ("a search", "trial"),
    "run": ("a run of one seed", ""),
}
"""Each kind of run with its article, and the noun of its settings; a config of an ordinary run of
one seed names none."""


class FolderTaken(CouldNotRun):
    """The folder is not empty; it was left as it was."""

    def __init__(self, path: Path, what: str = "a run") -> None:
        resume = ""
        if is_unfinished(path) and not store.writer_of(path):
            resume = f"resume it (attnlab resume {typed(path)}), "
        super().__init__(
            f"{path} holds {what} already, and nothing is overwritten: "
            f"{resume}choose another folder with --out, or remove it first."
        )


class AlreadyFinished(CouldNotRun):
    """The run that was to be resumed is finished."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            f"the run in {path} is finished: nothing is left to do, and nothing was changed."
        )


@dataclass(frozen=True)
class RunFolder:
    """A run's folder while it is written, with its config; it is locked within the context."""

    path: Path
    config: RunConfig

    @classmethod
    @contextmanager
    def create(cls, path: Path, config: RunConfig) -> Iterator[Self]:
        """Make and lock the folder, and write its `config.json`.

        Raises:
            FolderTaken: the folder is not empty; it is left as it is.
            CouldNotRun: it cannot be written.
        """
        with store.explained(path):
            _refuse_taken(path)
            store.check_room(path, _LEAST_FREE, "a run")
        store.make_folder(path)
        with ExitStack() as stack:
            try:
                stack.enter_context(store.locked(path))
            except store.FolderInUse as error:
                raise FolderTaken(path, f"a run ({error.writer} is writing it)") from None
            _refuse_taken(path)  # another run may have written it before we held the lock
            store.remove_remains(path)
            store.write_json(path / "config.json", config)
            yield cls(path, config)

    @classmethod
    @contextmanager
    def resume(cls, path: Path, config: RunConfig, tell: Callable[[str], None]) -> Iterator[Self]:
        """Lock the folder of a stopped run, if it is this run; its metrics are written anew.

        Args:
            path: the folder.
            config: what `config.json` would hold if the run began now.
            tell: is told of differences that may change the last digits.

        Raises:
            CouldNotRun: the folder holds no unfinished run, it is being written, or it holds
                another run (the message shows every difference).
        """
        with store.locked(path):
            begun = read_unfinished(path)
            refuse_another(path, begun, config, tell)
            store.remove_remains(path)
            with store.explained(path):
                (path / "metrics.jsonl").unlink(missing_ok=True)
            yield cls(path, begun)

    def add_metrics(self, line: Mapping[str, object]) -> None:
        """Append one line to `metrics.jsonl`."""
        file, text = self.path / "metrics.jsonl", json.dumps(line, allow_nan=False) + "\n"
        with store.explained(file, len(text)), file.open("a", encoding="utf-8") as stream:
            stream.write(text)


def free_name(parent: Path, name: str) -> Path:
    """Return `parent/name`, or the first of `name-2`, `name-3`, … that is not taken."""
    path = parent / name
    numbers = itertools.count(2)
    while os.path.lexists(path):
        path = parent / f"{name}-{next(numbers)}"
    return path


@dataclass(frozen=True)
class RunFiles:
    """The contents of a finished run's files, each checked for its form."""

    config: RunConfig
    claims: tuple[Claim, ...]
    metrics: list[store.JsonObject]
    content: ReportContent


def read_run(folder: Path) -> RunFiles:
    """Read a finished run.

    Raises:
        CouldNotRun: no run is there, it is unfinished, or a file of it is damaged.
    """
    config = read_config(folder)
    if config is None:
        raise _no_run(folder)
    if not is_finished(folder):
        writer = store.writer_of(folder)
        state = "unfinished: it was stopped before its claims were evaluated. Resume it with: "
        state += f"attnlab resume {typed(folder)}"
        if writer is not None:
            state = f"still running ({writer}): look again when it has ended."
        raise CouldNotRun(f"the run in {folder} is {state}")
    claims = _parsed(folder / "claims.json", read_claims)
    content = _parsed(folder / "report.json", ReportContent.from_json)
    return RunFiles(config, claims, store.read_json_lines(folder / "metrics.jsonl"), content)


def _no_run(folder: Path) -> CouldNotRun:
    if os.path.isfile(folder / "program.json"):
        return CouldNotRun(
            f"{folder} holds a compiled program, no run; see it in Python: "
            f'attnlab.show("{folder}", TEXT).'
        )
    if _has_config(folder):
        return CouldNotRun(
            f"{folder} holds a model, but not a run; load it with attnlab.load(folder)."
        )
    return CouldNotRun(
        f"{folder} is not a run folder (it has no config.json); `attnlab list` shows the runs."
    )


_Form = TypeVar("_Form")


def _parsed(file: Path, parse: Callable[[Any], _Form]) -> _Form:
    try:
        return parse(store.read_json(file))
    except WrongUsage as error:
        raise CouldNotRun(f"{file} is damaged: {error}.") from None


def read_unfinished(folder: Path) -> RunConfig:
    """Return the config of a run that was stopped.

    Raises:
        AlreadyFinished: it is finished.
        CouldNotRun: no run is there.
    """
    config = _read_begun(folder)
    if is_finished(folder):
        raise AlreadyFinished(folder)
    return config


def _read_begun(folder: Path) -> RunConfig:
    config = read_config(folder)
    if config is None:
        raise CouldNotRun(f"there is no run to resume in {folder}; begin it without --resume.")
    return config


def read_to_go_on(folder: Path, kind: RunKind, described: RunConfig) -> RunConfig:
    """Return the config of a stopped run, if it is the run that was asked for.

    Args:
        folder: the run's.
        kind: run, population, sweep or search.
        described: the fields of the config that must be the same (`experiment`, `seed`, `settings`,
            …); fields that are missing are not compared.

    Raises:
        AlreadyFinished: it is finished.
        CouldNotRun: no run is there, or another one; the message shows every difference.
    """
    config = _read_begun(folder)
    found_kind = run_kind(config)
    if found_kind != kind:
        how = "" if found_kind == "run" else f", made with --seeds {_sizes(config)[0]:,}"
        raise CouldNotRun(
            f"{folder} holds {_KINDS[found_kind][0]} of {config['experiment']}{how}, not "
            f"{_KINDS[kind][0]}: resume it with attnlab resume {typed(folder)}, or choose "
            "another folder with --out."
        )
    here = {name: value for name, value in described.items() if name in _ASKED}
    refuse_another(folder, {name: config.get(name) for name in here}, here)
    if is_finished(folder):
        raise AlreadyFinished(folder)
    return config


def read_config(folder: Path) -> RunConfig | None:
    """Read the config of a run, finished or not; return None for a saved model, or without any."""
    if not _has_config(folder):
        return None
    file = folder / "config.json"
    config = store.read_json(file)
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
    return cast(RunConfig, config)


def _has_config(folder: Path) -> bool:
    # os.path answers False where Path would raise, such as for a name too long.
    return os.path.isfile(folder / "config.json")


def member_path(path: Path) -> Path:
    """Return the path of a population's member by its seed, RUN/SEED, also for RUN/BLOCK/ROW.

    Raises:
        WrongUsage: the population in RUN has no such block or row.
    """
    folder, block, row = path.parent.parent, path.parent.name, path.name
    if not (block.isdecimal() and row.isdecimal()):
        return path
    config = read_config(folder)
    many = {} if config is None else config.get("population", {})
    if "block" not in many:
        return path
    seeds, index = seeds_of_config(many), int(block) * many["block"] + int(row)
    if int(row) >= many["block"] or index >= len(seeds):
        last, rest = divmod(len(seeds) - 1, many["block"])
        raise WrongUsage(
            f"the population in {folder} has no member {block}/{row}; its blocks of "
            f"{many['block']:,} end with {last}/{rest}."
        )
    return folder / str(seeds[index])


def run_kind(config: Mapping[str, object]) -> RunKind:
    """Return the kind of run that a config describes."""
    for kind in _KINDS:
        if kind in config:
            return kind
    return "run"


def is_finished(folder: Path) -> bool:
    """Does this folder hold a finished run?"""
    return _has_config(folder) and os.path.exists(folder / "claims.json")


def is_unfinished(folder: Path) -> bool:
    """Does this folder hold a run that is not finished?"""
    return _has_config(folder) and not is_finished(folder)


def list_runs(parent: Path) -> list[ListedRun]:
    """Describe every run folder inside a folder, oldest first; other folders are skipped.

    Raises:
        CouldNotRun: the folder is not there.
    """
    if not os.path.isdir(parent):
        raise CouldNotRun(
            f"there is no folder {parent}; runs are made with: attnlab run sorting --out "
            f"{parent}/NAME"
        )
    runs = []
    for folder in filter(_has_config, parent.iterdir()):
        described = _described(folder)
        if described is not None:
            runs.append(described)
    return sorted(runs, key=lambda run: (str(run["started"]), run["run"]))


def _described(folder: Path) -> ListedRun | None:
    """Describe one run folder for a list; return None for a saved model, which is not a run."""
    config: RunConfig | None = {"experiment": "?"}
    passed: list[bool | None] = []
    writer = store.writer_of(folder)
    state: RunState = "unfinished"
    if writer:
        state = "running"
    try:
        config = read_config(folder)
        if config is not None and is_finished(folder):
            claims = read_run(folder).claims
            passed = [claim.passed for claim in claims if not claim.is_folded]
            state = "finished"
    except CouldNotRun:
        state = "damaged"
    if config is None:
        return None
    seeds, cells = _sizes(config)
    return {
        "run": str(folder),
        "experiment": config["experiment"],
        "kind": run_kind(config),
        "what": _what(config),
        "seed": config.get("seed"),
        "settings": config.get("settings", {}),
        "seeds": seeds,
        "members": seeds if "population" in config else 1,
        "cells": cells,
        "started": config.get("started"),
        "state": state,
        "writer": writer,
        "claims": len(passed),
        "passed": passed.count(True),
        "undecided": passed.count(None),
    }


def _what(config: RunConfig) -> str:
    """Describe a run in a few words: its experiment, kind and size."""
    kind, name = run_kind(config), config["experiment"]
    seeds, settings = _sizes(config)
    if kind == "run":
        return name
    of_seeds = f"{seeds:,} {plural(seeds, 'seed')}"
    if kind == "population":
        return f"{name}, {of_seeds}"
    return f"{name} {kind}, {settings:,} {plural(settings, _KINDS[kind][1])} × {of_seeds}"


def _sizes(config: RunConfig) -> tuple[int, int]:
    """Return the number of seeds of each setting, and the number of settings: cells or trials.

    1 and 1 for an ordinary run, or where the config is odd.
    """
    kind = run_kind(config)
    if kind == "run":
        return 1, 1
    section = config[kind]
    try:
        settings = 1
        if kind == "sweep":
            settings = math.prod(map(len, section["axes"].values()))
        elif kind == "search":
            settings = int(section["trials"])
        return len(seeds_of_config(section)), settings
    except (KeyError, TypeError, ValueError, AttributeError):
        return 1, 1


def _refuse_taken(path: Path) -> None:
    """Refuse a folder that holds more than the lock and the parts of files of a killed writer."""
    if not path.is_dir():
        return
    names = {path.name for path in path.iterdir()}
    if "config.json" in names:
        raise FolderTaken(path)
    for name in names - {store.LOCK}:
        if not (name.startswith(".") and name.endswith(".part")):
            raise FolderTaken(path, "something")
