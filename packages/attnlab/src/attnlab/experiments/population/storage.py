"""Open a population, or one of its members as an ordinary run."""

import json
import os
from dataclasses import replace
from pathlib import Path

from torch import nn

from attnlab.configs import Config
from attnlab.core.store import read_header, read_tensors, refusing_damage
from attnlab.errors import CouldNotRun
from attnlab.experiments.folder import member_path, read_config, run_kind
from attnlab.experiments.population.blocks import (
    BLOCKS,
    MemberBlock,
    MemoryBlocks,
    StoredBlocks,
    solved_at_each_step,
)
from attnlab.experiments.population.population import Population
from attnlab.experiments.population.report import HISTORY, MEMBERS, TABLE, WEIGHTS, make_report
from attnlab.experiments.registry import RunReader, find, learnable
from attnlab.experiments.report import Report
from attnlab.experiments.report import open_run as open_folder
from attnlab.experiments.run_config import ManyConfig, seeds_of_config
from attnlab.models.storage import load_model
from attnlab.train.history import History


def is_population(folder: Path | str) -> bool:
    """Does this folder hold a population?"""
    folder = Path(folder)
    has_members = os.path.isfile(folder / WEIGHTS) or os.path.isdir(folder / BLOCKS)
    return has_members and os.path.isfile(folder / "config.json")


def is_member(path: Path | str) -> bool:
    """Does this path name a member of a population, such as `runs/sorting-64-seeds/17`, or in
    blocks also `runs/sorting-2048-seeds/1/17`, its block and row?"""
    path = member_path(Path(path))
    return is_population(path.parent) and not os.path.isfile(path / "config.json")


def open_run_or_member(path: Path | str) -> Report:
    """Open a finished run, or a member of a population, such as `runs/sorting-64-seeds/17`.

    Raises:
        WrongUsage: the population has no such member.
        CouldNotRun: no run is there, it is unfinished, its training diverged, or a file of it is
            damaged.
    """
    path = member_path(Path(path))
    if is_member(path):
        return open_population(path.parent).member(path.name)
    return open_folder(path)


def load_run_model(path: Path | str) -> nn.Module:
    """Load the model of a saved model's folder, of a run, or of a member of a population.

    Raises:
        WrongUsage: the population has no such member.
        CouldNotRun: a file is missing, damaged, or not what the config implies.
    """
    path = member_path(Path(path))
    if is_member(path):
        return open_population(path.parent).model(path.name)
    config = read_config(path)
    if config is not None and run_kind(config) in ("sweep", "search"):
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
    with refusing_damage(f"the population in {folder}"):
        config_class = find(whole.experiment).config_class
        config = config_class.from_mapping(whole.config["settings"])
        population = Population(
            experiment=whole.experiment,
            description=whole.config,
            config=config,
            seeds=seeds_of_config(described),
            blocks=_open_blocks(folder, whole.experiment, config, described),
            make_report=make_report,
            folder=folder,
        )
    # The report is the saved one; it takes the files that it does not know along, for `save`.
    files = [folder / name for name in (WEIGHTS, HISTORY, TABLE, MEMBERS)]
    contents = {file.name: file.read_bytes() for file in files if file.is_file()}
    vars(population)["report"] = replace(whole, _files=contents)
    return population


def _open_blocks(
    folder: Path, name: str, config: Config, many: ManyConfig
) -> MemoryBlocks | StoredBlocks:
    """Open the members of a population: its blocks, or the files of up to 1,000 members."""
    seeds = seeds_of_config(many)
    if "block" in many:
        return StoredBlocks(folder, seeds, many["block"])
    weights, tensors = read_tensors(folder / WEIGHTS), read_tensors(folder / HISTORY)
    _, metadata = read_header(folder / HISTORY)
    facts = json.loads(metadata.get("facts", "{}"))
    history = History.from_state(tensors, facts)
    problem = learnable(name).problem([config], seeds[:1])
    states = problem.members[0].model.state_dict()
    expected = {name: (len(seeds), *value.shape) for name, value in states.items()}
    shapes = {name: tuple(value.shape) for name, value in weights.items()}
    if shapes != expected or history.num_members != len(seeds):
        raise CouldNotRun(
            f"{folder / WEIGHTS} does not hold the {len(seeds):,} members that config.json names."
        )
    solved = solved_at_each_step(history, problem.is_solved)
    return MemoryBlocks(MemberBlock(seeds, history, weights, solved, str(facts["layout"])))
