"""`resume`: continue a run that was stopped, from what its folder holds."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, get_args

from attnlab.core.store import refusing_damage
from attnlab.errors import CouldNotRun, WrongUsage, did_you_mean
from attnlab.experiments.folder import read_unfinished
from attnlab.experiments.population import Population, train_population
from attnlab.experiments.registry import run
from attnlab.experiments.report import Report
from attnlab.experiments.sweeps import Sweep, sweep
from attnlab.experiments.sweeps.axes import shown
from attnlab.experiments.tune import Search, tune
from attnlab.train.config import EngineName, LayoutName
from attnlab.train.distributed import refuse_launched
from attnlab.train.observer import Observer


def resume(
    folder: Path | str, *, workers: int | None = None, observer: Observer | None = None
) -> Report | Population | Sweep | Search:
    """Continue a run that was stopped; it ends in the same bytes as if it had never stopped.

    Args:
        folder: the run's.
        workers: processes on this machine that share a sweep or a search; None for the engine that
            computed it before.
        observer: is told of progress.

    Raises:
        WrongUsage: `workers` for a run of another kind.
        CouldNotRun: no unfinished run is there, another process writes it, this attnlab or torch is
            not the one it was begun with (the differences are shown), or its config is damaged.

    >>> resume("runs/no")
    Traceback (most recent call last):
        ...
    attnlab.errors.CouldNotRun: there is no run to resume in runs/no; begin it without --resume.
    """
    folder = Path(folder)
    begun = read_unfinished(folder)
    for kind, make in (("sweep", sweep), ("search", tune)):
        if kind in begun:
            return make(
                begun["experiment"], out=folder, resume=True, workers=workers, observer=observer
            )
    if workers is not None:
        raise WrongUsage(
            "workers share the cells of a sweep or the trials of a search; a run is computed "
            "in one process."
        )
    if "population" in begun:
        # Refused here, since the handler below would blame the config for it.
        refuse_launched("a population")
    file = folder / "config.json"
    with refusing_damage(str(file)):
        how: dict[str, Any] = {name: begun[name] for name in ("layout", "engine")}
        for name, known in (("layout", get_args(LayoutName)), ("engine", get_args(EngineName))):
            if how[name] not in known:
                raise ValueError(f"{name} is {how[name]!r}; {did_you_mean(str(how[name]), known)}")
        # As texts, since a setting may have the name of an argument, as handmade's `seeds` has.
        how["settings"] = {name: shown(value) for name, value in begun["settings"].items()}
        rerun: Callable[..., Report | Population] = partial(
            run, begun["experiment"], seed=begun["seed"], **how
        )
        if "population" in begun:
            members = begun["population"]
            rerun = partial(
                train_population,
                begun["experiment"],
                list(members["seeds"]),
                vary=[dict(each) for each in members["variants"]],
                stop_when_solved=bool(members["stop_when_solved"]),
                **how,
            )
    try:
        return rerun(observer=observer, out=folder, resume=True)
    except WrongUsage as error:
        raise CouldNotRun(f"{file} is damaged: {error}") from None
