"""Optuna's side of a search: it proposes settings and keeps the trials in an SQLite file.

Each proposal depends on the trials before it and on its own number alone, so that a search that was
stopped resumes to the same trials. Optuna is optional (`pip install 'attnlab[optuna]'`).
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from attnlab.configs import Fields
from attnlab.core.stats import Interval
from attnlab.display import displayed
from attnlab.errors import CouldNotRun
from attnlab.experiments.sweeps.axes import Axis
from attnlab.experiments.sweeps.outcome import Tally
from attnlab.experiments.tune.space import distribution, readable
from attnlab.seeds import stream_seed

RANDOM = 10
"""The number of random trials before the first one that learns from the others."""


@displayed
@dataclass(frozen=True, kw_only=True)
class Trial(Tally):
    """One setting with its results.

    refusal: why nothing could be trained, most often because the values cannot be combined.
    computed: where, in words.
    """

    number: int
    refusal: str = ""
    computed: str = ""

    @property
    def success(self) -> Interval | None:
        """The share of seeds that solved the problem, with its 95 % interval (Wilson)."""
        return self.share if self.seeds else None

    @property
    def score(self) -> float:
        """The share of seeds that solved the problem; ties are broken by the loss.

        The loss counts for less than one seed: (solved + 1 / (2 + loss)) / seeds.
        """
        if not self.seeds:
            return float("-inf")
        tie_break = 0.0 if self.loss is None else 1 / (2 + max(0.0, self.loss))
        return (self.solved + tie_break) / self.seeds


class Study:
    """The trials of a search, in an SQLite `file` or, if that is None, in memory."""

    def __init__(self, axes: Sequence[Axis], seed: int, file: Path | None) -> None:
        self._seed, self._file, self._axes = seed, file, axes
        storage = None
        with self._optuna() as optuna:
            self._distributions = {axis.name: distribution(axis) for axis in axes}
            if file is not None:
                storage = _address(file)
            self._study = optuna.create_study(
                storage=storage,
                study_name="search",
                direction="maximize",
                load_if_exists=True,
            )

    def trials(self) -> list[Trial]:
        """Return the finished trials, in order."""
        with self._optuna():
            results, found = self._study.user_attrs, []
            for each in self._study.get_trials(deepcopy=False):
                if each.state.is_finished():
                    fields, own = self._fields(each.params), results[str(each.number)]
                    found.append(Trial(fields, number=each.number, **own))
            return found

    def ask(self, until: int) -> list[tuple[int, Fields]]:
        """Return the trials with numbers below `until` that are not finished, old and new ones."""
        with self._optuna() as optuna:
            while (number := len(self._study.get_trials(deepcopy=False))) < until:
                seed = stream_seed(self._seed, "search", number) % 2**32
                self._study.sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=RANDOM)
                self._study.ask(self._distributions)
            asked = []
            for each in self._study.get_trials(deepcopy=False):
                if not each.state.is_finished():
                    asked.append((each.number, self._fields(each.params)))
            return asked

    def tell(self, trial: Trial) -> None:
        """Save the results of a trial."""
        with self._optuna() as optuna:
            results = asdict(trial)
            del results["number"], results["fields"]
            self._study.set_user_attr(str(trial.number), results)
            if trial.refusal:
                self._study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
            else:
                self._study.tell(trial.number, trial.score)

    def _fields(self, proposed: Fields) -> Fields:
        return {axis.name: readable(axis, proposed[axis.name]) for axis in self._axes}

    @contextmanager
    def _optuna(self) -> Iterator[Any]:
        """Import Optuna, silence it, and turn its errors into ours."""
        try:
            import optuna
            from sqlalchemy.exc import SQLAlchemyError
        except ImportError:
            raise CouldNotRun(
                "a search needs Optuna, which is not installed here: pip install 'attnlab[optuna]'."
            ) from None
        before = optuna.logging.get_verbosity()
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        try:
            yield optuna
        except (optuna.exceptions.OptunaError, SQLAlchemyError, KeyError) as error:
            last = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise CouldNotRun(
                f"the trials in {self._file or 'memory'} could not be read or written: {last}."
            ) from None
        finally:
            optuna.logging.set_verbosity(before)


def _address(file: Path) -> str:
    from sqlalchemy import URL

    return URL.create("sqlite", database=str(file.resolve())).render_as_string()
