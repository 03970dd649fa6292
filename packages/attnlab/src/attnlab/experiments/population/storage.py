"""Open a population, or one of its members as an ordinary run."""

import json
import os
from dataclasses import replace
from pathlib import Path

from torch import nn

from attnlab.core.store import read_header, read_tensors, refusing_damage
from attnlab.errors import CouldNotRun
from attnlab.experiments.folder import kind_of, read_config
from attnlab.experiments.population.population import Population
from attnlab.experiments.population.report import HISTORY, MEMBERS, TABLE, WEIGHTS, make_report
from attnlab.experiments.registry import RunReader, find
from attnlab.experiments.report import Report
from attnlab.experiments.report import open_run as open_folder
from attnlab.models.storage import load_model
from attnlab.train.history import History


def is_population(folder: Path | str) -> bool:
    """Does this folder hold a population?"""
    return os.path.isfile(Path(folder) / WEIGHTS) and os.path.isfile(Path(folder) / "config.json")


def is_member(path: Path | str) -> bool:
    """Does this path name a member of a population, such as `runs/sorting-64-seeds/17`?"""
    path = Path(path)
    return is_population(path.parent) and not os.path.isfile(path / "config.json")


def open_run(path: Path | str) -> Report:
    """Open a finished run, or a member of a population, such as `runs/sorting-64-seeds/17`.

    Raises:
        WrongUsage: the population has no such member.
        CouldNotRun: no run is there, it is unfinished, its training diverged, or a file of it is
            damaged.
    """
    path = Path(path)
    if is_member(path):
        return open_population(path.parent).member(path.name)
    return open_folder(path)


def load(path: Path | str) -> nn.Module:
    """Load the model of a saved model's folder, of a run, or of a member of a population.

    Raises:
        WrongUsage: the population has no such member.
        CouldNotRun: a file is missing, damaged, or not what the config implies.
    """
    path = Path(path)
    if is_member(path):
        return open_population(path.parent).model(path.name)
    config = read_config(path)
    if config is not None and kind_of(config) in ("sweep", "search"):
        return open_folder(path).model  # raises, with the command that trains its models again
    model = load_model(path)
    if config is not None and isinstance(config.get("settings"), dict):
        reader = RunReader(str(config["experiment"]), config["settings"], path)
        vars(model)["reader"] = reader
    return model


def open_population(folder: Path | str) -> Population:
    """Open a finished population.

    Raises:
        CouldNotRun: none is there, it is unfinished, or a file of it is damaged.
    """
    folder = Path(folder)
    whole = open_folder(folder)
    described = whole.config.get("population")
    if not isinstance(described, dict):
        raise CouldNotRun(
            f"{folder} holds a run of one seed, not a population; open it with "
            "attnlab.open(folder)."
        )
    weights, tensors = read_tensors(folder / WEIGHTS), read_tensors(folder / HISTORY)
    _, metadata = read_header(folder / HISTORY)
    config_class = find(whole.experiment).config_class
    with refusing_damage(f"the population in {folder}"):
        facts = json.loads(metadata.get("facts", "{}"))
        population = Population(
            experiment=whole.experiment,
            description=whole.config,
            config=config_class.from_mapping(whole.config["settings"]),
            seeds=tuple(map(int, described["seeds"])),
            history=History.from_state(tensors, facts),
            weights=weights,
            layout=str(facts["layout"]),
            make_report=make_report,
            folder=folder,
        )
    # The report is the saved one; it takes the files that it does not know along, for `save`.
    files = [folder / name for name in (WEIGHTS, HISTORY, TABLE, MEMBERS)]
    contents = {file.name: file.read_bytes() for file in files if file.is_file()}
    vars(population)["report"] = replace(whole, _files=contents)
    _check_weights(population, folder / WEIGHTS)
    return population


def _check_weights(population: Population, file: Path) -> None:
    states = population.problem.members[0].model.state_dict()
    expected = {name: (len(population), *value.shape) for name, value in states.items()}
    shapes = {name: tuple(value.shape) for name, value in population.weights.items()}
    if shapes != expected or population.history.num_members != len(population):
        raise CouldNotRun(
            f"{file} does not hold the {len(population):,} members that config.json names."
        )
