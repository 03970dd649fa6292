"""What a run's `config.json` holds, and how the configs of two runs differ."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypedDict

from attnlab.configs import Fields
from attnlab.errors import CouldNotRun

RunKind = Literal["run", "population", "sweep", "search"]
RunState = Literal["finished", "running", "unfinished", "damaged"]

_MAY_DIFFER = ("started", "versions.python", "versions.numpy")  # when a run is resumed
_WHERE = "computed_by."  # the engine of a sweep does not change its numbers


class ManyConfig(TypedDict, total=False):
    """What a config holds of many models: those of a population (seeds; block: members of a
    block), the cells of a sweep (seeds, axes), or the trials of a search (seeds, axes; ends: of
    those between two)."""

    seeds: list[int] | dict[str, int]
    axes: dict[str, list[Any]]
    ends: dict[str, list[float]]
    trials: int
    stop_when_solved: bool
    block: int


class RunConfig(TypedDict, total=False):
    """What a run's `config.json` holds."""

    experiment: str
    seed: int
    started: str
    settings: Fields
    versions: dict[str, str]
    threads: int
    matrix_path: str
    layout: str
    engine: str
    model: Fields
    population: ManyConfig
    sweep: ManyConfig
    search: ManyConfig
    computed_by: Fields


def seeds_to_config(seeds: Sequence[int]) -> list[int] | dict[str, int]:
    """Return seeds as a config holds them: all, or the first of a range and their number."""
    if isinstance(seeds, range):
        return {"first": seeds.start, "count": len(seeds)}
    return list(seeds)


def seeds_of_config(many: ManyConfig) -> Sequence[int]:
    """Return the seeds that a config holds."""
    seeds = many["seeds"]
    if isinstance(seeds, dict):
        return range(seeds["first"], seeds["first"] + seeds["count"])
    return tuple(map(int, seeds))


class ListedRun(TypedDict):
    """A run folder in a list."""

    run: str
    experiment: str
    kind: RunKind
    what: str
    seed: int | None
    settings: Fields
    seeds: int
    members: int
    cells: int
    started: str | None
    state: RunState
    writer: str | None
    claims: int
    passed: int
    undecided: int


def refuse_another(
    path: Path,
    there: Mapping[str, object],
    here: Mapping[str, object],
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


def _differences(there: Mapping[str, object], here: Mapping[str, object]) -> dict[str, str]:
    """Return the fields that differ, each with both values in words."""
    old, new = dict(_flat(there)), dict(_flat(json.loads(json.dumps(here))))
    differences = {}
    for name in {**old, **new}:
        if old.get(name) != new.get(name) and not name.startswith(_WHERE):
            both = f"{_shown(old, name)} there, {_shown(new, name)} here"
            differences[name] = f"{name.removeprefix('settings.')}: {both}"
    if "experiment" in differences:  # then the settings differ too, which says nothing more
        return {"experiment": differences["experiment"]}
    return differences


def _flat(values: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Yield nested names, joined by dots, with their values."""
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def _shown(values: Mapping[str, object], name: str) -> str:
    if name not in values:
        return "nothing"
    value = values[name]
    if isinstance(value, list) and len(value) > 2 and value == list(range(len(value))):
        return f"0 to {len(value) - 1:,}"  # seeds, most often
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."
