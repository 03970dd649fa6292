"""A population's own files, beside those that every run has.

`population.safetensors` holds the best weights of all members, stacked: (member, …). `history.safetensors` holds the
course of the training exactly; `table.csv` holds the same for people and other programs, a line for each seed and
step; `members.csv` ranks the members by how typical they are. Who they are stands in `config.json` under "population".
"""

import csv
import dataclasses
import io
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
from torch import Tensor, nn

from attnlab.errors import CouldNotRun
from attnlab.experiments import report
from attnlab.experiments.folder import kind_of, read_config
from attnlab.experiments.population.population import Place, Population
from attnlab.experiments.registry import find
from attnlab.experiments.report import Report
from attnlab.models.storage import load_model
from attnlab.train.history import History

__all__ = ["MEMBERS", "csv_bytes", "files_of", "is_member", "is_population", "load", "open_population", "open_run"]

_WEIGHTS, _HISTORY, _TABLE = "population.safetensors", "history.safetensors", "table.csv"
MEMBERS = "members.csv"


def files_of(population: Population) -> dict[str, bytes]:
    """Return the population's own files by name."""
    tensors, facts = population.history.to_state()
    weights = {name: value.contiguous() for name, value in population.weights.items()}
    return {
        _WEIGHTS: safetensors.torch.save(weights),
        _HISTORY: safetensors.torch.save(
            {name: value.contiguous() for name, value in tensors.items()},
            metadata={"facts": json.dumps({**facts, "layout": population.layout})},
        ),
        _TABLE: _table(population),
    }


def is_population(folder: Path | str) -> bool:
    """Say whether a folder holds a finished population."""
    return os.path.isfile(Path(folder) / _WEIGHTS) and os.path.isfile(Path(folder) / "config.json")


def is_member(path: Path | str) -> bool:
    """Say whether a path names a member of a population, such as `runs/sorting-64-seeds/17`, that is no folder yet."""
    path = Path(path)
    return is_population(path.parent) and not os.path.isfile(path / "config.json")


def open_run(path: Path | str) -> Report:
    """Open a finished run: its folder, or a population's and the seed of a member, such as `runs/sorting-64-seeds/17`.

    Raises:
        WrongUsage: the population has no such member.
        CouldNotRun: no run is there, it is unfinished, its training broke, or a file of it is damaged.
    """
    path = Path(path)
    return open_population(path.parent).member(path.name) if is_member(path) else report.open_run(path)


def load(path: Path | str) -> nn.Module:
    """Load a model from a folder: a saved model's, a run's, or a population's with the seed of a member.

    Raises:
        WrongUsage: the population has no such member.
        CouldNotRun: a file is missing, damaged, or not what the config implies.
    """
    path = Path(path)
    if is_member(path):
        return open_population(path.parent).model(path.name)
    config = read_config(path)
    if config is not None and kind_of(config) in ("sweep", "search"):
        return report.open_run(path).model  # it says why there is none
    return load_model(path)


def open_population(folder: Path | str) -> Population:
    """Open a finished population.

    Raises:
        CouldNotRun: none is there, it is unfinished, or a file of it is damaged.
    """
    folder = Path(folder)
    whole = report.open_run(folder)
    described = whole.config.get("population")
    if not isinstance(described, dict):
        raise CouldNotRun(f"{folder} holds a run of one seed, not a population; open it with attnlab.open_run(folder).")
    weights, _ = _read(folder / _WEIGHTS)
    tensors, facts = _read(folder / _HISTORY)
    found = find(whole.experiment)
    try:
        variants = tuple(dict(each) for each in described["variants"])
        seeds = [int(seed) for seed in described["seeds"]]
        places = tuple(Place(seed, variant) for variant in range(len(variants)) for seed in seeds)
        history = History.from_state(tensors, facts)
        layout = str(facts["layout"])
        config = found.config_class.from_mapping(whole.config["settings"])
    except (KeyError, TypeError, ValueError) as error:
        raise CouldNotRun(f"the population in {folder} is damaged: {error}.") from None
    experiment: Any = found.experiment
    population = Population(
        whole.experiment,
        whole.config,
        variants,
        places,
        history,
        weights,
        layout,
        config,
        experiment,
        folder,
        dataclasses.replace(whole, _files=_own_files(folder)),
    )
    own = population.lesson.members[0].model.state_dict()
    expected = {name: (len(places), *value.shape) for name, value in own.items()}
    if {name: tuple(value.shape) for name, value in weights.items()} != expected or history.num_members != len(places):
        raise CouldNotRun(f"{folder / _WEIGHTS} does not hold the {len(places):,} members that config.json names.")
    return population


def _own_files(folder: Path) -> dict[str, bytes]:
    """Read what a report that was opened does not bring along, so that it can be saved elsewhere."""
    files = [folder / name for name in (_WEIGHTS, _HISTORY, _TABLE, MEMBERS)]
    return {file.name: file.read_bytes() for file in files if file.is_file()}


def _read(file: Path) -> tuple[dict[str, Tensor], Mapping[str, Any]]:
    try:
        with safetensors.safe_open(str(file), framework="pt") as stored:
            facts = json.loads((stored.metadata() or {}).get("facts", "{}"))
            return {name: stored.get_tensor(name) for name in stored.keys()}, facts  # noqa: SIM118  not a mapping
    except (OSError, ValueError, safetensors.SafetensorError) as error:
        raise CouldNotRun(f"could not read {file}: {error}.") from None


def _table(population: Population) -> bytes:
    """Write each member's lines of metrics under one another: seed, variant, step, then whatever was measured."""
    names = ["loss", "learning_rate", "gradient_norm", *population.history.figures()]
    rows: list[list[Any]] = []
    for index, (seed, variant) in enumerate(population.places):
        merged: dict[int, dict[str, Any]] = {}
        for line in population.history.lines(index):
            merged.setdefault(line["step"], {}).update(line)
        rows += [[seed, variant, step, *map(line.get, names)] for step, line in merged.items()]
    return csv_bytes(["seed", "variant", "step", *names], rows)


def csv_bytes(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> bytes:
    """Write a table as CSV; None is an empty cell."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerows([columns, *rows])
    return stream.getvalue().encode()
