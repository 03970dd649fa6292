"""`attnlab sweep` and `attnlab search`: many settings, each with many seeds."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from attnlab.cli import terminal
from attnlab.cli.failures import leaving
from attnlab.cli.parsing import whole_number
from attnlab.cli.progress import progress
from attnlab.cli.running import print_json, say_task, tell_finished
from attnlab.configs import parse_settings
from attnlab.errors import WrongUsage

if TYPE_CHECKING:
    from attnlab.experiments.search import Search
    from attnlab.experiments.sweeps import Sweep

__all__ = ["search", "show_search", "show_sweep", "sweep"]

_RUNS = Path("runs")
_MOST_ROWS = 60  # of a table in the terminal

WholeNumber = Annotated[int, Parameter(converter=whole_number)]
Settings = Annotated[list[str] | None, Parameter(name="--set", consume_multiple=True, negative="")]
Switch = Annotated[bool, Parameter(negative="")]
Layout = Literal["auto", "lanes", "batched", "vmap", "solo"]


def sweep(
    name: str,
    /,
    *,
    set_: Settings = None,
    seeds: Annotated[int | None, Parameter(converter=whole_number)] = None,
    seed: Annotated[int | None, Parameter(converter=whole_number)] = None,
    out: Path | None = None,
    workers: WholeNumber | None = None,
    engine: Literal["local", "ray"] | None = None,
    address: str | None = None,
    layout: Layout = "auto",
    stop_when_solved: Switch = False,
    quick: Switch = False,
    resume: Switch = False,
    as_json: Annotated[bool, Parameter(name="--json", negative="")] = False,
    quiet: Annotated[bool, Parameter(name=["--quiet", "-q"], negative="")] = False,
) -> int:
    """Train every combination of some settings, each with many seeds, and draw where the task can be learned.

    Parameters
    ----------
    name
        The experiment, such as sorting.
    set_
        Settings, key=value; those with several values make the grid: rank=1..6 d_model=8..64..8 temperature=0.3,1,3.
    seeds
        Models in each cell; 64 if nothing is said.
    seed
        The first of them; 0 if nothing is said.
    out
        The folder to make; by default the first free one of runs/NAME-sweep, runs/NAME-sweep-2, …
    workers
        Processes on this machine that share the cells; 1 if nothing is said, or as many as began what is gone on with.
    engine
        local, or ray for a Ray cluster that is running.
    address
        Of the cluster: HOST:PORT, or auto for the one on this machine. Tokens are read from RAY_AUTH_TOKEN or
        RAY_AUTH_TOKEN_PATH.
    layout
        How the models of a cell lie side by side; auto takes what is quickest.
    stop_when_solved
        Let each model end as soon as it can do the task.
    quick
        Smaller settings that show the same in less time.
    resume
        Go on with the sweep in --out; nothing else has to be repeated.
    as_json
        Print the cells as JSON.
    quiet
        Show no progress.
    """
    from attnlab.experiments.sweeps import sweep as run_sweep

    chosen = None if seeds is None and seed is None else _range_of(seeds, seed or 0, 64)
    where: dict[str, Any] = {"workers": workers, "engine": engine, "address": address}
    how = {"layout": layout, "stop_when_solved": stop_when_solved, "quick": quick, **where}
    found = _made(run_sweep, name, out, set_, resume, (quiet, as_json), "sweep", seeds=chosen, **how)
    return found if isinstance(found, int) else show_sweep(found, as_json=as_json)


def search(
    name: str,
    /,
    *,
    set_: Settings = None,
    trials: WholeNumber = 30,
    seeds: WholeNumber = 8,
    seed: WholeNumber = 0,
    out: Path | None = None,
    workers: WholeNumber | None = None,
    engine: Literal["local", "ray"] | None = None,
    address: str | None = None,
    layout: Layout = "auto",
    quick: Switch = False,
    resume: Switch = False,
    as_json: Annotated[bool, Parameter(name="--json", negative="")] = False,
    quiet: Annotated[bool, Parameter(name=["--quiet", "-q"], negative="")] = False,
) -> int:
    """Look for the setting with which most seeds learn the task; Optuna proposes what to try.

    Parameters
    ----------
    name
        The experiment, such as sorting.
    set_
        Settings, key=value; those with a range or several values are searched: learning_rate=1e-4..1e-1 rank=1..6
        norm=layer,rms. A range over decades is searched by its logarithm.
    trials
        Settings to try.
    seeds
        Models that judge each of them.
    seed
        The first of them; the proposals follow from it too.
    out
        The folder to make; by default the first free one of runs/NAME-search, runs/NAME-search-2, …
    workers
        Processes on this machine that share the trials; 1 if nothing is said, or as many as began what is gone on with.
    engine
        local, or ray for a Ray cluster that is running.
    address
        Of the cluster: HOST:PORT, or auto for the one on this machine.
    layout
        How models lie side by side; auto takes what is quickest.
    quick
        Smaller settings that show the same in less time.
    resume
        Go on with the search in --out; nothing else has to be repeated.
    as_json
        Print the trials as JSON.
    quiet
        Show no progress.
    """
    from attnlab.experiments.search import search as run_search

    where: dict[str, Any] = {"workers": workers, "engine": engine, "address": address}
    how = {"seeds": _range_of(seeds, seed, 8), "trials": trials, "layout": layout, "quick": quick, **where}
    found = _made(run_search, name, out, set_, resume, (quiet, as_json), "search", **how)
    return found if isinstance(found, int) else show_search(found, as_json=as_json)


def show_sweep(found: "Sweep", *, as_json: bool) -> int:
    """Print the cells and what holds, and return the exit status."""
    if as_json:
        print_json({**_described(found), "cells": [_cell_to_json(cell) for cell in found.cells]})
        return found.report.exit_status
    names = [axis.name for axis in found.outcome.grid.axes]
    say_task(found.report)
    rows = [
        [*map(_word, cell.cell.fields.values()), f"{cell.solved}/{len(cell.members)}", *_share(cell.success)]
        for cell in found.cells
    ]
    terminal.show_table([*names, "learned", "share", "95 % interval"], rows[:_MOST_ROWS])
    if len(rows) > _MOST_ROWS:
        terminal.say(f"… and {len(rows) - _MOST_ROWS:,} more cells in table.csv", is_quiet=True)
    refused = [cell for cell in found.outcome.grid.cells if cell.config is None]
    if refused:
        more = f", and {len(refused) - 1:,} more" if len(refused) > 1 else ""
        terminal.say(f"cells that make no sense and stay blank: {refused[0].name} ({refused[0].refusal}){more}")
    return _show_rest(found)


def show_search(found: "Search", *, as_json: bool) -> int:
    """Print the best trials and what holds, and return the exit status."""
    from attnlab.experiments.search.trial import RANDOM

    ranked = sorted((trial for trial in found.trials if trial.seeds), key=lambda trial: -trial.score)
    if as_json:
        print_json({**_described(found), "trials": [{**t._asdict(), "success": t.success} for t in found.trials]})
        return found.report.exit_status
    say_task(found.report)
    rows = [
        [str(t.number), *map(_word, t.fields.values()), f"{t.solved}/{t.seeds}", *_share(t.success), _brief(t.loss)]
        for t in ranked[:10]
    ]
    names = list(found.trials[0].fields)
    terminal.show_table(["trial", *names, "learned", "share", "95 % interval", "loss"], rows)
    if ranked:
        terminal.say(f"best     {ranked[0].name}")
    if len(ranked) <= RANDOM:
        terminal.say(f"the first {RANDOM} trials are drawn at random: nothing was searched yet", is_quiet=True)
    return _show_rest(found)


def _made(
    make: Any,
    name: str,
    out: Path | None,
    set_: list[str] | None,
    resume: bool,
    shown: tuple[bool, bool],
    kind: str,
    **how: Any,
) -> Any:
    """Make a sweep or a search in the folder named, or in the first free one; an exit status where nothing is to do."""
    from attnlab.experiments.folder import Finished, FolderTaken, free_name

    quiet, as_json = shown
    if set_ == [] or (not set_ and not resume):
        raise WrongUsage(
            f"a {kind} needs --set key=value with several values; `attnlab settings {name}` lists the keys."
        )
    settings: Mapping[str, str] = parse_settings(set_ or [])
    while True:
        folder = out if out is not None else free_name(_RUNS, f"{name}-{kind}")
        try:
            with leaving(folder), progress(f"{name} {kind}", is_quiet=quiet or as_json) as observer:
                return make(
                    name,
                    out=None if resume and out is None else folder,
                    settings=settings,
                    resume=resume,
                    observer=observer,
                    **how,
                )
        except Finished:
            assert out is not None
            return tell_finished(out, as_json=as_json)
        except FolderTaken:
            if out is not None:
                raise
            # Another one took this name a moment ago; nothing was trained yet, so the next is as good.


def _range_of(seeds: int | None, first: int, usual: int) -> range:
    number = usual if seeds is None else seeds
    if number < 1:
        raise WrongUsage(f"--seeds must be at least 1; got {number}.")
    return range(first, first + number)


def _show_rest(found: "Sweep | Search") -> int:
    folder = found.folder
    assert folder is not None
    terminal.show_claims(found.report.claims)
    terminal.say(f"report   {folder / 'report.html'}")
    terminal.say(f"look at  attnlab open {folder} · attnlab show {folder} · {folder / 'table.csv'}", is_quiet=True)
    return found.report.exit_status


def _described(found: "Sweep | Search") -> dict[str, Any]:
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


def _word(value: Any) -> str:
    from attnlab.experiments.sweeps.axes import shown

    return shown(value)


def _brief(number: float | None) -> str:
    return "" if number is None else f"{number:.4g}"
