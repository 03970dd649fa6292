"""Optuna's side of a search: it proposes settings; finished trials are kept in a JSON file.

Each proposal depends on the finished trials and on its own number alone, so that a search that was
stopped resumes to the same trials. Optuna is optional (`pip install 'attnlab[optuna]'`).
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from attnlab.configs import Fields
from attnlab.core.stats import Interval
from attnlab.core.store import read_json, refusing_damage, write_json
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
    """The trials of a search, kept in a JSON `file` or, if that is None, in memory alone.

    trials: the finished ones, in order.
    """

    def __init__(self, axes: Sequence[Axis], seed: int, file: Path | None) -> None:
        self._seed, self._file, self._axes = seed, file, axes
        self.trials: list[Trial] = []
        with _optuna() as optuna:
            self._distributions = {axis.name: distribution(axis) for axis in axes}
            self._study = optuna.create_study(direction="maximize")
        if file is not None and file.exists():
            with refusing_damage(str(file)):
                self._add([Trial(**trial) for trial in read_json(file)])

    def ask(self, until: int) -> list[tuple[int, Fields]]:
        """Propose the trials from the first that is not finished to the one before `until`."""
        proposals: list[tuple[int, Fields]] = []
        with _optuna() as optuna:
            for number in range(len(self.trials), until):
                seed = stream_seed(self._seed, "search", number) % 2**32
                self._study.sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=RANDOM)
                params = self._study.ask(self._distributions).params
                fields = {axis.name: readable(axis, params[axis.name]) for axis in self._axes}
                proposals.append((number, fields))
        return proposals

    def tell(self, trials: Sequence[Trial]) -> None:
        """Save the results of all trials that were proposed together."""
        self._add(trials)
        if self._file is not None:
            write_json(self._file, [asdict(trial) for trial in self.trials])

    def _add(self, trials: Sequence[Trial]) -> None:
        self.trials += trials
        with _optuna() as optuna:
            states = optuna.trial.TrialState
            for trial in trials:
                self._study.add_trial(
                    optuna.trial.create_trial(
                        state=states.FAIL if trial.refusal else states.COMPLETE,
                        value=None if trial.refusal else trial.score,
                        params=dict(trial.fields),
                        distributions=self._distributions,
                    )
                )


@contextmanager
def _optuna() -> Iterator[Any]:
    """Import Optuna, and silence it."""
    try:
        import optuna
    except ImportError:
        raise CouldNotRun(
            "a search needs Optuna, which is not installed here: pip install 'attnlab[optuna]'."
        ) from None
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        yield optuna
    finally:
        optuna.logging.set_verbosity(before)
