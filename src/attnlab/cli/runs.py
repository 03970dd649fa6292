"""attnlab run, resume, sweep and tune: train with progress, and show which claims hold."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from attnlab.cli.options import (
    AsJson,
    GridOptions,
    OptionalWholeNumber,
    Quiet,
    Settings,
    Strings,
    Switch,
    TrainingOptions,
    WholeNumber,
)
from attnlab.cli.resolve_run import RUNS, find_run, in_run_folder
from attnlab.cli.results import show_finished, show_result
from attnlab.cli.run_all import run_all
from attnlab.configs import parse_settings
from attnlab.errors import WrongUsage

if TYPE_CHECKING:
    from attnlab.cli.results import Result

_DEFAULTS = TrainingOptions()
_GRID_DEFAULTS = GridOptions()


def run(
    name: str,
    /,
    *,
    seed: WholeNumber = 0,
    seeds: OptionalWholeNumber = None,
    stop_when_solved: Switch = False,
    engine: Literal["auto", "eager", "compiled"] = "auto",
    set_: Settings = None,
    out: Path | None = None,
    log: Strings = None,
    claims: Switch = False,
    how: TrainingOptions = _DEFAULTS,
) -> int:
    """Run one experiment, or all of them, and report which claims hold.

    Parameters
    ----------
    name
        The experiment, such as sorting, or all. `attnlab settings` lists the experiments, `attnlab
        settings sorting` the settings of one.
    seed
        The seed of all randomness; the same seed gives the same weights, byte for byte.
    seeds
        How many models to train at once, the first with --seed; the report then also shows what
        only many seeds can show.
    stop_when_solved
        With --seeds: stop training each model as soon as it solves the task.
    engine
        Whether training steps are compiled; auto compiles where that pays.
    set_
        Settings as key=value, any number of them; for all, experiment.key=value.
    out
        The run folder to create; by default the first free one of runs/NAME, runs/NAME-2, …, and
        with --seeds 100 of runs/NAME-100-seeds, runs/NAME-100-seeds-2, … For all, the folder to
        create the run folders in.
    log
        Loggers that also receive the metrics of a run with one seed, in files inside its folder:
        tensorboard, mlflow, or both.
    claims
        For all: also print every claim with its measurement, as a single experiment always does.
    """
    from attnlab.experiments import registry
    from attnlab.experiments.population import train_population

    _check_run(name, seeds, stop_when_solved, set_, log)
    _check_resume(how, out if name != "all" else None)
    settings = parse_settings(set_ or [])
    options: dict[str, Any] = {"quick": how.quick, "layout": how.layout, "engine": engine}
    if name == "all":
        options["seed"] = seed
        return run_all(out or RUNS, settings, options, how=how, shows_claims=claims)
    options |= {"settings": settings, "resume": how.resume}
    try:
        if seeds is None:
            make = partial(registry.run, name, seed=seed, loggers=log or (), **options)
            return _train_and_show(make, out, name, f"{name}, seed {seed}", how)
        options["stop_when_solved"] = stop_when_solved
        many = partial(train_population, name, _seed_range(seeds, seed), **options)
        title = f"{name}, {seeds:,} seeds"
        return _train_and_show(many, out, f"{name}-{seeds}-seeds", title, how)
    except WrongUsage as error:
        raise _with_sweep_hint(error, name, settings) from None


def _check_run(
    name: str,
    seeds: int | None,
    stop_when_solved: bool,
    set_: list[str] | None,
    log: list[str] | None,
) -> None:
    """Raise `WrongUsage` for options of `run` that do not go together."""
    from attnlab.train.distributed import is_launched
    from attnlab.train.loggers import check_loggers

    is_many = name == "all" or seeds is not None
    if is_launched() and is_many:
        raise WrongUsage("torchrun distributes one training: name one experiment, without --seeds.")
    if log == []:
        raise WrongUsage("--log needs the name of a logger: tensorboard, mlflow, or both.")
    check_loggers(log or ())
    if log is not None and is_many:
        raise WrongUsage("--log is for a run of one seed: name one experiment, without --seeds.")
    if set_ == []:
        raise WrongUsage(
            "--set needs at least one key=value; `attnlab settings` lists the settings."
        )
    if stop_when_solved and seeds is None:
        raise WrongUsage("--stop-when-solved needs --seeds, the number of models to train.")
    if name == "all" and seeds is not None:
        raise WrongUsage(
            "--seeds is for one experiment at a time, such as: attnlab run sorting --seeds 64"
        )


def _check_resume(how: TrainingOptions, out: Path | None) -> None:
    if how.resume and out is None:
        raise WrongUsage(
            "--resume needs --out with the folder of one run; `attnlab list` shows the unfinished "
            "runs."
        )


def _with_sweep_hint(error: WrongUsage, name: str, settings: Mapping[str, str]) -> WrongUsage:
    """Return the error, with the command for a sweep where a setting has several values."""
    several = [f"{key}={value}" for key, value in settings.items() if ".." in value or "," in value]
    if not several:
        return error
    return WrongUsage(
        f"{error} Several values make a sweep: attnlab sweep {name} --set {' '.join(several)}"
    )


def _seed_range(number: int, first: int) -> range:
    if number < 1:
        raise WrongUsage(f"--seeds must be at least 1; got {number}.")
    return range(first, first + number)


def _train_and_show(
    make: "Callable[..., Result]", out: Path | None, name: str, title: str, how: TrainingOptions
) -> int:
    """Train, show the result, and return the exit status."""
    from attnlab.experiments.folder import Finished
    from attnlab.train.distributed import is_writer

    is_shown = is_writer()
    try:
        is_quiet = how.quiet or how.as_json or not is_shown
        found = in_run_folder(make, out, name, title, is_quiet=is_quiet)
    except Finished:
        assert out is not None
        return show_finished(out, as_json=how.as_json)
    return show_result(found, as_json=how.as_json) if is_shown else 0


def resume_(
    run: str,
    /,
    *,
    workers: OptionalWholeNumber = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> int:
    """Resume an interrupted run; it ends with the same bytes as an uninterrupted one.

    Parameters
    ----------
    run
        A run folder, or the name of one in runs/.
    workers
        For a sweep or a search: how many processes on this machine share the remaining work; by
        default as many as at its start.
    as_json
        Print the claims as JSON.
    quiet
        Hide the progress.
    """
    from attnlab.experiments.folder import is_finished
    from attnlab.experiments.resumption import resume

    folder = find_run(run)
    if is_finished(folder):
        return show_finished(folder, as_json=as_json)

    def make(out: Path, observer: Any) -> "Result":
        return resume(out, workers=workers, observer=observer)

    how = TrainingOptions(as_json=as_json, quiet=quiet)
    return _train_and_show(make, folder, "", str(folder), how)


def sweep(
    name: str,
    /,
    *,
    set_: Settings = None,
    seeds: OptionalWholeNumber = None,
    seed: OptionalWholeNumber = None,
    out: Path | None = None,
    stop_when_solved: Switch = False,
    how: GridOptions = _GRID_DEFAULTS,
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
    stop_when_solved
        Stop training each model as soon as it solves the task.
    """
    from attnlab.experiments import sweeps

    chosen = None
    if seeds is not None or seed is not None:
        chosen = _seed_range(64 if seeds is None else seeds, seed or 0)
    options = {"seeds": chosen, "stop_when_solved": stop_when_solved}
    return _train_many("sweep", sweeps.sweep, name, set_, out, how, options)


def tune(
    name: str,
    /,
    *,
    set_: Settings = None,
    trials: WholeNumber = 30,
    seeds: WholeNumber = 8,
    seed: WholeNumber = 0,
    out: Path | None = None,
    how: GridOptions = _GRID_DEFAULTS,
) -> int:
    """Tune settings: find those with which most seeds learn the task; Optuna proposes the trials.

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
        The folder to create; by default the first free one of runs/NAME-tune, runs/NAME-tune-2, …
    """
    from attnlab.experiments import search

    options = {"seeds": _seed_range(seeds, seed), "trials": trials}
    return _train_many("tune", search.tune, name, set_, out, how, options)


def _train_many(
    command: str,
    train_all: "Callable[..., Result]",
    name: str,
    set_: list[str] | None,
    out: Path | None,
    how: GridOptions,
    options: Mapping[str, Any],
) -> int:
    """Train a sweep's cells or a search's trials, and show them."""
    if set_ == [] or (set_ is None and not how.resume):
        raise WrongUsage(
            f"attnlab {command} needs --set key=value with several values; `attnlab settings "
            f"{name}` lists the keys."
        )
    _check_resume(how, out)
    make = partial(
        train_all,
        name,
        settings=parse_settings(set_ or []),
        workers=how.workers,
        engine=how.engine,
        address=how.address,
        layout=how.layout,
        quick=how.quick,
        resume=how.resume,
        **options,
    )
    return _train_and_show(make, out, f"{name}-{command}", f"{name} {command}", how)
