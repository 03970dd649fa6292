"""Optuna's side of a search: it proposes settings and keeps the trials in an SQLite file.

Each proposal depends on the trials before it and on its own number alone, so that a search that was
stopped resumes to the same trials. Optuna is optional (`pip install 'attnlab[optuna]'`).
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from attnlab.errors import CouldNotRun
from attnlab.experiments.search.space import Dimension
from attnlab.experiments.search.trial import RANDOM, Trial
from attnlab.seeds import stream_seed


class Study:
    """The trials of a search, in an SQLite `file` or, if that is None, in memory."""

    def __init__(self, dimensions: Sequence[Dimension], seed: int, file: Path | None) -> None:
        self._seed, self._file, self._dimensions = seed, file, dimensions
        with self._optuna() as optuna:
            self._distributions = {each.name: each.distribution() for each in dimensions}
            self._study = optuna.create_study(
                storage=None if file is None else _address(file),
                study_name="search",
                direction="maximize",
                load_if_exists=True,
            )

    def trials(self) -> list[Trial]:
        """Return the finished trials, in order."""
        with self._optuna():
            found = self._study.user_attrs
            every = self._study.get_trials(deepcopy=False)
            return [
                Trial(each.number, self._fields(each.params), **found[str(each.number)])
                for each in every
                if each.state.is_finished()
            ]

    def ask(self, until: int) -> list[tuple[int, dict[str, Any]]]:
        """Return the trials with numbers below `until` that are not finished, old and new ones."""
        with self._optuna() as optuna:
            while (number := len(self._study.get_trials(deepcopy=False))) < until:
                seed = stream_seed(self._seed, "search", number) % 2**32
                self._study.sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=RANDOM)
                self._study.ask(self._distributions)
            every = self._study.get_trials(deepcopy=False)
            return [
                (each.number, self._fields(each.params))
                for each in every
                if not each.state.is_finished()
            ]

    def tell(self, trial: Trial) -> None:
        """Save the results of a trial."""
        with self._optuna() as optuna:
            self._study.set_user_attr(str(trial.number), trial.to_json())
            if trial.refusal:
                self._study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
            else:
                self._study.tell(trial.number, trial.score)

    def _fields(self, proposed: Mapping[str, Any]) -> dict[str, Any]:
        return {each.name: each.readable(proposed[each.name]) for each in self._dimensions}

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
