"""attnlab sweep and attnlab search: many settings, each with many seeds."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from attnlab.cli import terminal
from attnlab.cli.failures import writing_to
from attnlab.cli.options import (
    AsJson,
    Layout,
    OptionalWholeNumber,
    Quiet,
    Settings,
    Switch,
    WholeNumber,
)
from attnlab.cli.progress import progress
from attnlab.cli.resolve_run import RUNS
from attnlab.cli.runs import print_json, show_finished, show_task
from attnlab.configs import parse_settings
from attnlab.errors import WrongUsage

if TYPE_CHECKING:
    from attnlab.experiments.search import Search
    from attnlab.experiments.sweeps import Sweep

__all__ = ["search", "show_search", "show_sweep", "sweep"]

_MAX_ROWS = 60  # of a table in the terminal

_Engine = Literal["local", "ray"] | None
_Found = TypeVar("_Found")


def sweep(
    name: str,
    /,
    *,
    set_: Settings = None,
    seeds: OptionalWholeNumber = None,
    seed: OptionalWholeNumber = None,
    out: Path | None = None,
    workers: OptionalWholeNumber = None,
    engine: _Engine = None,
    address: str | None = None,
    layout: Layout = "auto",
    stop_when_solved: Switch = False,
    quick: Switch = False,
    resume: Switch = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> int:
    """Train every combination of some settings with many seeds, and draw where the task is learned.

    Parameters
    ----------
    name
        The experiment, such as sorting.
    set_
        Settings as key=value; those with several values form the grid: rank=1..6 d_model=8..64..8
        temperature=0.3,1,3.
    seeds
        How many models to train in each cell; by default 64.
    seed
        The first seed; by default 0.
    out
        The folder to create; by default the first free one of runs/NAME-sweep, runs/NAME-sweep-2, …
    workers
        How many processes on this machine share the cells; by default 1, or on resuming as many as
        at the start.
    engine
        Where cells are trained: local, or ray for a running Ray cluster.
    address
        The address of the cluster: HOST:PORT, or auto for the one on this machine. Tokens are read
        from RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH.
    layout
        How the models of a cell are laid out in memory; auto chooses the fastest.
    stop_when_solved
        Stop training each model as soon as it solves the task.
    quick
        Smaller settings that show the same in less time.
    resume
        Resume the sweep in --out; no other option has to be repeated.
    as_json
        Print the cells as JSON.
    quiet
        Hide the progress.
    """
    from attnlab.experiments.sweeps import sweep as run_sweep

    chosen = None
    if seeds is not None or seed is not None:
        chosen = _seed_range(64 if seeds is None else seeds, seed or 0)
    options: dict[str, Any] = {
        "seeds": chosen,
        "workers": workers,
        "engine": engine,
        "address": address,
        "layout": layout,
        "stop_when_solved": stop_when_solved,
        "quick": quick,
    }
    is_quiet = quiet or as_json
    found = _run("sweep", run_sweep, name, out, set_, resume, is_quiet, options)
    if found is None:
        assert out is not None
        return show_finished(out, as_json=as_json)
    return show_sweep(found, as_json=as_json)


def search(
    name: str,
    /,
    *,
    set_: Settings = None,
    trials: WholeNumber = 30,
    seeds: WholeNumber = 8,
    seed: WholeNumber = 0,
    out: Path | None = None,
    workers: OptionalWholeNumber = None,
    engine: _Engine = None,
    address: str | None = None,
    layout: Layout = "auto",
    quick: Switch = False,
    resume: Switch = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> int:
    """Search for the settings with which most seeds learn the task; Optuna proposes the trials.

    Parameters
    ----------
    name
        The experiment, such as sorting.
    set_
        Settings as key=value; those with a range or several values are searched:
        learning_rate=1e-4..1e-1 rank=1..6 norm=layer,rms. A range over decades is searched on a
        logarithmic scale.
    trials
        How many settings to try.
    seeds
        How many models to train in each trial.
    seed
        The first seed; the proposals depend on it too.
    out
        The folder to create; by default the first free one of runs/NAME-search, runs/NAME-search-2,
        …
    workers
        How many processes on this machine share the trials; by default 1, or on resuming as many as
        at the start.
    engine
        Where trials are trained: local, or ray for a running Ray cluster.
    address
        The address of the cluster: HOST:PORT, or auto for the one on this machine.
    layout
        How the models of a trial are laid out in memory; auto chooses the fastest.
    quick
        Smaller settings that show the same in less time.
    resume
        Resume the search in --out; no other option has to be repeated.
    as_json
        Print the trials as JSON.
    quiet
        Hide the progress.
    """
    from attnlab.experiments.search import search as run_search

    options: dict[str, Any] = {
        "seeds": _seed_range(seeds, seed),
        "trials": trials,
        "workers": workers,
        "engine": engine,
        "address": address,
        "layout": layout,
        "quick": quick,
    }
    is_quiet = quiet or as_json
    found = _run("search", run_search, name, out, set_, resume, is_quiet, options)
    if found is None:
        assert out is not None
        return show_finished(out, as_json=as_json)
    return show_search(found, as_json=as_json)


def show_sweep(found: "Sweep", *, as_json: bool) -> int:
    """Print the cells and which claims hold, and return the exit status."""
    if as_json:
        print_json({**_as_mapping(found), "cells": [_cell_to_json(cell) for cell in found.cells]})
        return found.report.exit_status
    names = [axis.name for axis in found.outcome.grid.axes]
    show_task(found.report)
    rows = []
    for cell in found.cells:
        learned = f"{cell.solved}/{len(cell.members)}"
        rows.append([*_values(cell.cell.fields), learned, *_share(cell.success)])
    terminal.show_table([*names, "learned", "share", "95 % interval"], rows[:_MAX_ROWS])
    if len(rows) > _MAX_ROWS:
        terminal.say(f"… and {len(rows) - _MAX_ROWS:,} more cells in table.csv", is_quiet=True)
    refused = [cell for cell in found.outcome.grid.cells if cell.config is None]
    if refused:
        more = f", and {len(refused) - 1:,} more" if len(refused) > 1 else ""
        terminal.say(
            f"invalid cells, which stay blank: {refused[0].name} ({refused[0].refusal}){more}"
        )
    return _show_claims(found)


def show_search(found: "Search", *, as_json: bool) -> int:
    """Print the best trials and which claims hold, and return the exit status."""
    from attnlab.experiments.search.trial import RANDOM

    if as_json:
        trials = [{**trial._asdict(), "success": trial.success} for trial in found.trials]
        print_json({**_as_mapping(found), "trials": trials})
        return found.report.exit_status
    show_task(found.report)
    ranked = sorted((each for each in found.trials if each.seeds), key=lambda each: -each.score)
    rows = []
    for trial in ranked[:10]:
        learned = f"{trial.solved}/{trial.seeds}"
        loss = "" if trial.loss is None else f"{trial.loss:.4g}"
        share = _share(trial.success)
        rows.append([str(trial.number), *_values(trial.fields), learned, *share, loss])
    names = list(found.trials[0].fields)
    terminal.show_table(["trial", *names, "learned", "share", "95 % interval", "loss"], rows)
    if ranked:
        terminal.say(f"best     {ranked[0].name}")
    if len(ranked) <= RANDOM:
        terminal.say(
            f"the first {RANDOM} trials are drawn at random: the search has not begun yet",
            is_quiet=True,
        )
    return _show_claims(found)


def _run(
    kind: str,
    train: Callable[..., _Found],
    name: str,
    out: Path | None,
    set_: list[str] | None,
    resume: bool,
    is_quiet: bool,
    options: dict[str, Any],
) -> _Found | None:
    """Run or resume a sweep or a search; None if it is finished already."""
    from attnlab.experiments.folder import Finished, FolderTaken, free_name

    if set_ == [] or (set_ is None and not resume):
        raise WrongUsage(
            f"a {kind} needs --set key=value with several values; `attnlab settings {name}` "
            "lists the keys."
        )
    options |= {"settings": parse_settings(set_ or []), "resume": resume}
    while True:
        folder = out if out is not None else free_name(RUNS, f"{name}-{kind}")
        target = None if resume and out is None else folder
        try:
            with writing_to(folder), progress(f"{name} {kind}", is_quiet=is_quiet) as observer:
                return train(name, out=target, observer=observer, **options)
        except Finished:
            return None
        except FolderTaken:
            if out is not None:
                raise
            # Another run has just taken this name; nothing was trained yet, so try the next one.


def _seed_range(number: int, first: int) -> range:
    if number < 1:
        raise WrongUsage(f"--seeds must be at least 1; got {number}.")
    return range(first, first + number)


def _show_claims(found: "Sweep | Search") -> int:
    folder = found.folder
    assert folder is not None
    terminal.show_claims(found.report.claims)
    terminal.say(f"report   {folder / 'report.html'}")
    terminal.say(
        f"look at  attnlab open {folder} · attnlab show {folder} · {folder / 'table.csv'}",
        is_quiet=True,
    )
    return found.report.exit_status


def _as_mapping(found: "Sweep | Search") -> dict[str, Any]:
    claims = [claim.to_mapping() for claim in found.report.claims]
    return {"run": str(found.folder), "passed": found.passed, "claims": claims}


def _cell_to_json(cell: Any) -> dict[str, Any]:
    share, low, high = cell.success
    return {
        "fields": cell.cell.fields,
        "seeds": len(cell.members),
        "solved": cell.solved,
        "share": share,
        "low": low,
        "high": high,
        "solved_at": cell.solved_at,
        "loss": cell.loss,
        "figures": cell.figures,
        "broken": cell.broken,
    }


def _share(interval: Any) -> list[str]:
    return [f"{interval.value:.0%}", f"{interval.low:.0%} to {interval.high:.0%}"]


def _values(fields: Mapping[str, Any]) -> list[str]:
    """Write the values of settings as a person types them."""
    from attnlab.experiments.sweeps.axes import shown

    return [shown(value) for value in fields.values()]
