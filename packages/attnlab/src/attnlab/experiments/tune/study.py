"""Optuna's side of a search: it proposes settings, and learns how they went.

Each proposal depends on the finished trials and on its own number alone, so that a search that was
stopped resumes to the same trials. A range whose last number is ten times its first or more is
searched on a logarithmic scale. Optuna is optional (`pip install 'attnlab[optuna]'`).
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from attnlab.configs import Fields
from attnlab.errors import CouldNotRun
from attnlab.experiments.sweeps.axes import Axis, typed_value
from attnlab.experiments.sweeps.outcome import CellOutcome
from attnlab.seeds import stream_seed

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

RANDOM = 10
"""The number of random trials before the first one that learns from the others."""

_DECADE = 10


class Study:
    """The finished trials of a search, and proposals of the next ones."""

    def __init__(self, axes: Sequence[Axis], seed: int) -> None:
        self._seed, self._axes = seed, axes
        self.num_trials = 0
        with _optuna() as optuna:
            self._distributions = {axis.name: distribution(axis) for axis in axes}
            self._study = optuna.create_study(direction="maximize")

    def ask(self, until: int) -> list[Fields]:
        """Propose the trials from the first that is not finished to the one before `until`."""
        proposals: list[Fields] = []
        with _optuna() as optuna:
            for number in range(self.num_trials, until):
                seed = stream_seed(self._seed, "search", number) % 2**32
                self._study.sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=RANDOM)
                params = self._study.ask(self._distributions).params
                proposals.append(
                    {axis.name: readable(axis, params[axis.name]) for axis in self._axes}
                )
        return proposals

    def tell(self, trials: Sequence[CellOutcome]) -> None:
        """Note the results of trials, in order."""
        self.num_trials += len(trials)
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


def distribution(axis: Axis) -> "BaseDistribution":
    """Return the range or the choices as a distribution of Optuna."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if axis.ends is None:
        return CategoricalDistribution(axis.values)
    low, high = axis.ends
    if isinstance(low, int) and isinstance(high, int):
        return IntDistribution(low, high, log=is_log(axis))
    return FloatDistribution(low, high, log=is_log(axis))


def is_log(axis: Axis) -> bool:
    """Does a range span decades?"""
    return axis.ends is not None and 0 < _DECADE * axis.ends[0] <= axis.ends[1]


def range_words(axis: Axis) -> str:
    """Return the range or the choices, in words."""
    if axis.ends is None:
        return " or ".join(axis.labels())
    words = f"{typed_value(axis.ends[0])} to {typed_value(axis.ends[1])}"
    if is_log(axis):
        words += ", on a logarithmic scale"
    return words


def readable(axis: Axis, value: Any) -> Any:
    """Return a proposed value, rounded to digits that a person would type."""
    if axis.ends is None or not isinstance(value, float):
        return value
    return min(max(float(f"{value:.4g}"), axis.ends[0]), axis.ends[1])
