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
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

from attnlab.configs import renamed_layout
from attnlab.core.store import (
    LOCK,
    Taken,
    check_room,
    explained,
    locked,
    make_folder,
    read_json,
    read_json_lines,
    remove_remains,
    write_json,
    writer_of,
)
from attnlab.draw.numbers import plural
from attnlab.draw.sections import ReportContent
from attnlab.errors import CouldNotRun, WrongUsage
from attnlab.experiments.claims import Claim, read_claims

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
_KINDS: dict[Kind, tuple[str, str]] = {
    "population": ("a population", "variant"),
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


@dataclass(frozen=True)
class RunFolder:
    """A run's folder while it is written, with its config; it is locked within the context."""

    path: Path
    config: Mapping[str, Any]

    @classmethod
    def begin(
        cls,
        path: Path,
        config: Mapping[str, Any],
        tell: Callable[[str], None],
        *,
        resume: bool = False,
    ) -> AbstractContextManager[Self]:
        """Create the folder, or resume the run in it."""
        return cls.resume(path, config, tell) if resume else cls.create(path, config)

    @classmethod
    @contextmanager
    def create(cls, path: Path, config: Mapping[str, Any]) -> Iterator[Self]:
        """Make and lock the folder, and write its `config.json`.

        Raises:
            FolderTaken: the folder is not empty; it is left as it is.
            CouldNotRun: it cannot be written.
        """
        with explained(path):
            _refuse_taken(path)
            check_room(path, _LEAST_FREE, "a run")
        make_folder(path)
        with ExitStack() as stack:
            try:
                stack.enter_context(locked(path))
            except Taken as error:
                raise FolderTaken(path, f"a run ({error.writer} is writing it)") from None
            _refuse_taken(path)  # another run may have written it before we held the lock
            remove_remains(path)
            write_json(path / "config.json", config)
            yield cls(path, config)

    @classmethod
    @contextmanager
    def resume(
        cls, path: Path, config: Mapping[str, Any], tell: Callable[[str], None]
    ) -> Iterator[Self]:
        """Lock the folder of a stopped run, if it is this run; its metrics are written anew.

        Args:
            path: the folder.
            config: what `config.json` would hold if the run began now.
            tell: is told of differences that may change the last digits.

        Raises:
            CouldNotRun: the folder holds no unfinished run, it is being written, or it holds
                another run (the message shows every difference).
        """
        with locked(path):
            begun = read_unfinished(path)
            _refuse_another(path, begun, config, tell)
            remove_remains(path)
            with explained(path):
                (path / "metrics.jsonl").unlink(missing_ok=True)
            yield cls(path, begun)

    @property
    def checkpoints(self) -> Path:
        """The folder for the checkpoints of trainings."""
        return self.path / "checkpoints"

    def add_metrics(self, line: Mapping[str, Any]) -> None:
        """Append one line to `metrics.jsonl`."""
        file, text = self.path / "metrics.jsonl", json.dumps(line, allow_nan=False) + "\n"
        with explained(file, len(text)), file.open("a", encoding="utf-8") as stream:
            stream.write(text)


def free_name(parent: Path, name: str) -> Path:
    """Return `parent/name`, or the first of `name-2`, `name-3`, … that is not taken."""
    numbered = (f"{name}-{number}" for number in itertools.count(2))
    paths = (parent / each for each in itertools.chain([name], numbered))
    return next(path for path in paths if not os.path.lexists(path))


@dataclass(frozen=True)
class RunFiles:
    """The contents of a finished run's files, each checked for its form."""

    config: dict[str, Any]
    claims: tuple[Claim, ...]
    metrics: list[dict[str, Any]]
    content: ReportContent


def read_run(folder: Path) -> RunFiles:
    """Read a finished run.

    Raises:
        CouldNotRun: no run is there, it is unfinished, or a file of it is damaged.
    """
    config = read_config(folder)
    if config is None and os.path.isfile(folder / "program.json"):
        raise CouldNotRun(
            f"{folder} holds a compiled program, no run; see it in Python: "
            f'attnlab.show("{folder}", TEXT).'
        )
    if config is None and _has_config(folder):
        raise CouldNotRun(
            f"{folder} holds a model, but not a run; load it with attnlab.load(folder)."
        )
    if config is None:
        raise CouldNotRun(
            f"{folder} is not a run folder (it has no config.json); `attnlab list` shows the runs."
        )
    if not is_finished(folder):
        writer = writer_of(folder)
        state = "unfinished: it was stopped before its claims were evaluated. Resume it with: "
        state += f"attnlab resume {folder}"
        if writer is not None:
            state = f"still running ({writer}): look again when it has ended."
        raise CouldNotRun(f"the run in {folder} is {state}")
    claims = _parsed(folder / "claims.json", read_claims)
    content = _parsed(folder / "report.json", ReportContent.from_json)
    return RunFiles(config, claims, read_json_lines(folder / "metrics.jsonl"), content)


_Form = TypeVar("_Form")


def _parsed(file: Path, parse: Callable[[Any], _Form]) -> _Form:
    try:
        return parse(read_json(file))
    except WrongUsage as error:
        raise CouldNotRun(f"{file} is damaged: {error}.") from None


def read_unfinished(folder: Path) -> dict[str, Any]:
    """Return the config of a run that was stopped.

    Raises:
        Finished: it is finished.
        CouldNotRun: no run is there.
    """
    config = _read_begun(folder)
    if is_finished(folder):
        raise Finished(folder)
    return config


def _read_begun(folder: Path) -> dict[str, Any]:
    config = read_config(folder)
    if config is None:
        raise CouldNotRun(f"there is no run to resume in {folder}; begin it without --resume.")
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
    config = _read_begun(folder)
    found = kind_of(config)
    if found != kind:
        how = "" if found == "run" else f", made with --seeds {_sizes(config)[0]:,}"
        raise CouldNotRun(
            f"{folder} holds {_KINDS[found][0]} of {config['experiment']}{how}, not "
            f"{_KINDS[kind][0]}: resume it with attnlab resume {folder}, or choose another folder "
            "with --out."
        )
    names = [name for name in _ASKED if name in asked]
    _refuse_another(
        folder, {name: config.get(name) for name in names}, {name: asked[name] for name in names}
    )
    if is_finished(folder):
        raise Finished(folder)
    return config


def read_config(folder: Path) -> dict[str, Any] | None:
    """Read the config of a run, finished or not; return None for a saved model, or without any."""
    if not _has_config(folder):
        return None
    file = folder / "config.json"
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


def _has_config(folder: Path) -> bool:
    # os.path answers False where Path would raise, such as for a name too long.
    return os.path.isfile(folder / "config.json")


def kind_of(config: Mapping[str, Any]) -> Kind:
    """Return the kind of run that a config describes."""
    return next((kind for kind in _KINDS if kind in config), "run")


def is_finished(folder: Path) -> bool:
    """Does this folder hold a finished run?"""
    return _has_config(folder) and os.path.exists(folder / "claims.json")


def is_unfinished(folder: Path) -> bool:
    """Does this folder hold a run that is not finished?"""
    return _has_config(folder) and not is_finished(folder)


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
    found = [_described(each) for each in parent.iterdir() if _has_config(each)]
    runs = [run for run in found if run is not None]
    return sorted(runs, key=lambda run: (str(run["started"]), run["run"]))


def _described(folder: Path) -> dict[str, Any] | None:
    """Describe one run folder for a list; return None for a saved model, which is not a run."""
    config: dict[str, Any] | None = {"experiment": "?"}
    claims: tuple[Claim, ...] = ()
    writer = writer_of(folder)
    try:
        config = read_config(folder)
        if config is None:
            return None
        if is_finished(folder):
            claims = read_run(folder).claims
            state = "finished"
        else:
            state = "running" if writer else "unfinished"
    except CouldNotRun:
        state = "damaged"
    assert config is not None
    seeds, cells = _sizes(config)
    return {
        "run": str(folder),
        "experiment": config.get("experiment"),
        "kind": kind_of(config),
        "what": _what(config),
        "seed": config.get("seed"),
        "seeds": seeds,
        "members": seeds * cells if "population" in config else 1,
        "cells": cells,
        "started": config.get("started"),
        "state": state,
        "writer": writer,
        "claims": len(claims),
        "passed": sum(claim.passed is True for claim in claims),
        "undecided": sum(claim.passed is None for claim in claims),
    }


def _what(config: Mapping[str, Any]) -> str:
    """Describe a run in a few words: its experiment, kind and size."""
    kind, name = kind_of(config), str(config["experiment"])
    seeds, settings = _sizes(config)
    if kind == "run":
        return name
    of_seeds = f"{seeds:,} {plural(seeds, 'seed')}"
    if kind == "population" and settings == 1:
        return f"{name}, {of_seeds}"
    whole = name if kind == "population" else f"{name} {kind}"
    return f"{whole}, {settings:,} {plural(settings, _KINDS[kind][1])} × {of_seeds}"


def _sizes(config: Mapping[str, Any]) -> tuple[int, int]:
    """Return the number of seeds of each setting and the number of settings: variants of a
    population, cells of a sweep, or trials; 1 and 1 for an ordinary run, or where that is odd."""
    kind = kind_of(config)
    if kind == "run":
        return 1, 1
    own = config[kind]
    try:
        seeds = len(own["seeds"])
        if kind == "sweep":
            return seeds, math.prod(len(values) for values in own["axes"].values())
        if kind == "search":
            return seeds, int(own["trials"])
        return seeds, len(own["variants"])
    except (KeyError, TypeError, ValueError, AttributeError):
        return 1, 1


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
    different = _differences(there, here)
    grave = [words for name, words in different.items() if name not in _MAY_DIFFER]
    if grave:
        raise CouldNotRun(
            "\n  ".join([f"the run in {path} is another one, and was left as it is:", *grave])
        )
    different.pop("started", None)
    if different:
        tell(f"The last digits may differ ({'; '.join(different.values())}).")


def _differences(there: Mapping[str, Any], here: Mapping[str, Any]) -> dict[str, str]:
    """Return the fields that differ, each with both values in words."""
    old, new = dict(_flat(there)), dict(_flat(json.loads(json.dumps(here))))
    found = {}
    for name in {**old, **new}:
        if old.get(name) != new.get(name) and not name.startswith(_WHERE):
            both = f"{_shown(old, name)} there, {_shown(new, name)} here"
            found[name] = f"{name.removeprefix('settings.')}: {both}"
    if "experiment" in found:  # then the settings differ too, which says nothing more
        return {"experiment": found["experiment"]}
    return found


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
