"""attnlab run, resume, sweep and tune: train with progress, and show which claims hold."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from attnlab.cli.options import (
    NO_BLOCKS,
    AsJson,
    BlockOptions,
    GridOptions,
    OptionalWholeNumber,
    Quiet,
    Switch,
    TrainingOptions,
    WholeNumber,
)
from attnlab.cli.resolve_run import RUNS, find_run, in_run_folder
from attnlab.cli.results import show_finished, show_result
from attnlab.cli.run_all import run_all
from attnlab.cli.terminal import duration, say
from attnlab.errors import WrongUsage, not_none

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
    engine: Literal["auto", "eager", "compiled", "ray", "slurm"] = "auto",
    blocks: BlockOptions = NO_BLOCKS,
    claims: Switch = False,
    full: Switch = False,
    training: TrainingOptions = _DEFAULTS,
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
        only many seeds can show. More than 1,000 are trained and kept in blocks of 1,024.
    stop_when_solved
        With --seeds: stop training each model as soon as it solves the task.
    engine
        Whether training steps are compiled; auto compiles where that pays. With more than 1,000
        seeds, ray or slurm: where the blocks are trained.
    claims
        For all: also print every claim with its measurement, as a single experiment always does.
    full
        Start from the settings of a full run: the same claims from more seeds, texts and steps, in
        minutes.
    """
    from attnlab.experiments.population import train_population
    from attnlab.experiments.runner import run as run_experiment

    is_all = name == "all"
    _check_run(is_all, seeds, stop_when_solved, training)
    _check_blocks(seeds, engine, blocks)
    if full and seeds is not None:
        raise WrongUsage("--full is for a run without --seeds; --set takes single settings.")
    settings = training.settings()
    options: dict[str, Any] = {**training.library_options(), "engine": engine}
    if is_all:
        options |= {"seed": seed, "full": full}
        return run_all(
            training.out or RUNS, settings, options, training=training, shows_claims=claims
        )
    folder, title = name, f"{name}, seed {seed}"
    make: Callable[..., Result] = partial(run_experiment, name, seed=seed, full=full)
    if seeds is not None:
        folder, title = f"{name}-{seeds}-seeds", f"{name}, {seeds:,} seeds"
        options["stop_when_solved"] = stop_when_solved
        options |= {"workers": blocks.workers, "address": blocks.address}
        make = partial(train_population, name, _seed_range(seeds, seed))
    if blocks.estimate:
        return _show_estimate(name, _seed_range(not_none(seeds), seed), settings, blocks)
    with _suggesting_a_sweep(name, training.set_ or ()):
        return _train_and_show(partial(make, settings=settings, **options), folder, title, training)


@contextmanager
def _suggesting_a_sweep(name: str, settings: Sequence[str]) -> Iterator[None]:
    """Name the command that takes several values of a setting, where they are refused."""
    try:
        yield
    except WrongUsage as error:
        values = [setting for setting in settings if ".." in setting or "," in setting]
        if not values:
            raise
        raise WrongUsage(
            f"{error} Several values make a sweep: attnlab sweep {name} --set {' '.join(values)}"
        ) from None


def _check_run(
    is_all: bool, seeds: int | None, stop_when_solved: bool, training: TrainingOptions
) -> None:
    """Raise `WrongUsage` for options of `run` that do not go together."""
    if training.set_ == []:
        raise WrongUsage(
            "--set needs at least one key=value; `attnlab settings` lists the settings."
        )
    if stop_when_solved and seeds is None:
        raise WrongUsage("--stop-when-solved needs --seeds, the number of models to train.")
    if is_all and seeds is not None:
        raise WrongUsage(
            "--seeds is for one experiment at a time, such as: attnlab run sorting --seeds 64"
        )
    _check_resume(replace(training, out=None) if is_all else training)


def _check_blocks(seeds: int | None, engine: str, blocks: BlockOptions) -> None:
    """Raise `WrongUsage` for options of blocks without more than 1,000 seeds."""
    names = blocks.typed_names() + [f"--engine {engine}"] * (engine in ("ray", "slurm"))
    if names and (seeds is None or seeds <= 1_000):
        raise WrongUsage(
            f"{names[0]} is for more than 1,000 seeds, which are trained in blocks of 1,024, such "
            "as: attnlab run sorting --seeds 10240"
        )
    if blocks.price is not None and not blocks.estimate:
        raise WrongUsage("--price needs --estimate.")


def _show_estimate(
    name: str, seeds: range, settings: Mapping[str, str], blocks: BlockOptions
) -> int:
    """Print how fast a block is trained, and what all seeds and a million would take."""
    from attnlab.experiments.population.block_training import estimate_population
    from attnlab.experiments.population.fit import plan_population

    rate, cores = estimate_population(plan_population(name, seeds, settings)), blocks.workers or 1
    say(
        f"{rate.seeds:,} seeds: {duration(rate.seconds)} on one core here, {rate.per_second:.3g} a "
        f"second; {rate.num_bytes:,} bytes a seed before compression"
    )
    for number in dict.fromkeys((len(seeds), 1_000_000)):
        seconds = number / rate.per_second / cores
        costs = ""
        if blocks.price is not None:
            costs = f", {blocks.price * cores * seconds / 3600.0:,.2f} at {blocks.price:g} an hour"
        room = number * rate.num_bytes / 1e9
        say(f"{number:,} seeds: {duration(seconds)} on {cores} of them{costs}, {room:.2g} GB")
    return 0


def _check_resume(training: TrainingOptions) -> None:
    if training.resume and training.out is None:
        raise WrongUsage(
            "--resume needs --out with the folder of one run; `attnlab list` shows the unfinished "
            "runs."
        )


def _seed_range(number: int, first: int) -> range:
    if number < 1:
        raise WrongUsage(f"--seeds must be at least 1; got {number}.")
    return range(first, first + number)


def _train_and_show(
    make: "Callable[..., Result]", name: str, title: str, training: TrainingOptions
) -> int:
    """Train, show the result, and return the exit status."""
    from attnlab.experiments.folder import AlreadyFinished

    try:
        is_quiet = training.quiet or training.as_json
        result = in_run_folder(make, training.out, name, title, is_quiet=is_quiet)
    except AlreadyFinished:
        return show_finished(not_none(training.out), as_json=training.as_json)
    return show_result(result, as_json=training.as_json)


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
        For a sweep, a search or more than 1,000 seeds: how many processes on this machine share
        the remaining work; by default as many as at its start.
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

    training = TrainingOptions(out=folder, as_json=as_json, quiet=quiet)
    return _train_and_show(make, "", str(folder), training)


def sweep(
    name: str,
    /,
    *,
    seeds: OptionalWholeNumber = None,
    seed: OptionalWholeNumber = None,
    stop_when_solved: Switch = False,
    training: GridOptions = _GRID_DEFAULTS,
) -> int:
    """Train every combination of some settings with many seeds, and draw where the task is learned.

    Settings with several values form the grid: --set rank=1..6 d_model=8..64..8
    temperature=0.3,1,3.

    Parameters
    ----------
    name
        The experiment, such as sorting.
    seeds
        How many models to train in each cell; by default 64.
    seed
        The first seed; by default 0.
    stop_when_solved
        Stop training each model as soon as it solves the task.
    """
    from attnlab.experiments import sweeps

    chosen = None
    if seeds is not None or seed is not None:
        chosen = _seed_range(64 if seeds is None else seeds, seed or 0)
    options = {"seeds": chosen, "stop_when_solved": stop_when_solved}
    return _train_many("sweep", sweeps.sweep, name, training, options)


def tune(
    name: str,
    /,
    *,
    trials: WholeNumber = 30,
    seeds: WholeNumber = 8,
    seed: WholeNumber = 0,
    training: GridOptions = _GRID_DEFAULTS,
) -> int:
    """Tune settings: find those with which most seeds learn the task; Optuna proposes the trials.

    Settings with a range or several values are searched: --set learning_rate=1e-4..1e-1 rank=1..6
    norm=layer,rms. A range over decades is searched on a logarithmic scale.

    Parameters
    ----------
    name
        The experiment, such as sorting.
    trials
        How many settings to try.
    seeds
        How many models to train in each trial.
    seed
        The first seed; the proposals depend on it too.
    """
    from attnlab.experiments.tune import tune as search_settings

    options = {"seeds": _seed_range(seeds, seed), "trials": trials}
    return _train_many("tune", search_settings, name, training, options)


def _train_many(
    command: str,
    train_all: "Callable[..., Result]",
    name: str,
    training: GridOptions,
    options: Mapping[str, Any],
) -> int:
    """Train a sweep's cells or a search's trials, and show them."""
    if training.set_ == [] or (training.set_ is None and not training.resume):
        raise WrongUsage(
            f"attnlab {command} needs --set key=value with several values; `attnlab settings "
            f"{name}` lists the keys."
        )
    _check_resume(training)
    make = partial(
        train_all, name, settings=training.settings(), **training.library_options(), **options
    )
    return _train_and_show(make, f"{name}-{command}", f"{name} {command}", training)
