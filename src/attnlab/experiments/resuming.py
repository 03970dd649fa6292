"""A run that was stopped, gone on with: everything it needs is in its folder."""

from pathlib import Path

from attnlab.errors import CouldNotRun, WrongUsage
from attnlab.experiments.folder import read_unfinished
from attnlab.experiments.population import Population, train_population
from attnlab.experiments.registry import run
from attnlab.experiments.report import Report
from attnlab.experiments.search import Search, search
from attnlab.experiments.sweeps import Sweep, sweep
from attnlab.train.observer import Observer

__all__ = ["resume"]


def resume(folder: Path | str, *, observer: Observer | None = None) -> Report | Population | Sweep | Search:
    """Go on with a run that was stopped, whatever stopped it, and end in the bytes that it would have ended in.

    Raises:
        CouldNotRun: no unfinished run is there, another process writes it, this attnlab or torch is not the one it was
            begun with (the differences are shown), or its config is damaged.

    >>> resume("runs/nothing")
    Traceback (most recent call last):
        ...
    attnlab.errors.CouldNotRun: there is no run in runs/nothing to go on with; begin it without --resume.
    """
    folder = Path(folder)
    begun = read_unfinished(folder)
    for kind, make in (("sweep", sweep), ("search", search)):
        if kind in begun:
            return make(begun["experiment"], out=folder, resume=True, observer=observer)
    try:
        how = {name: begun[name] for name in ("layout", "engine")} | {"out": folder, "resume": True}
        if "population" not in begun:
            return run(begun["experiment"], seed=begun["seed"], observer=observer, **how, **begun["settings"])
        members = begun["population"]
        return train_population(
            begun["experiment"],
            members["seeds"],
            vary=members["variants"],
            stop_when_solved=members["stop_when_solved"],
            observer=observer,
            # As texts, for a setting may have the name of an argument, as lookup's `seeds` has.
            settings={name: str(value) for name, value in begun["settings"].items()},
            **how,
        )
    except (WrongUsage, KeyError, TypeError) as error:
        raise CouldNotRun(f"{folder / 'config.json'} is not usable: {error}") from None
