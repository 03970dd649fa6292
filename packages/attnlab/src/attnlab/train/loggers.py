"""Loggers of metrics besides `metrics.jsonl`: TensorBoard's event files, an MLflow store; both in
the run folder.

A line of metrics is `{"step": 50, "loss": 0.7, "model": "mini", …}`: its numbers with a point are
figures at that step, and what else stands there says whose they are, so this one is logged as
`mini/loss`. A line without a step, or without figures, is no measurement of a training and is
passed over.

A logger serves those who watch. When it fails it is told once and left out, and the training goes
on.
"""

import logging
import os
import shutil
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, get_args

from attnlab.errors import CouldNotRun, require_known

LoggerName = Literal["tensorboard", "mlflow"]

_PLACES: dict[LoggerName, str] = {"tensorboard": "tensorboard", "mlflow": "mlflow.db"}
_NEEDED: dict[LoggerName, tuple[str, ...]] = {
    "tensorboard": ("tensorboard",),
    "mlflow": ("mlflow", "sqlalchemy"),
}
_BATCH, _SECONDS = 500, 2.0  # figures and time of one commit of MLflow, which takes milliseconds


def measured(line: Mapping[str, object]) -> tuple[int, dict[str, float]] | None:
    """Parse a line of metrics: its step, and its figures by full name; None without any.

    >>> measured({"step": 50, "loss": 0.5, "model": "mini", "member": 0})
    (50, {'mini/0/loss': 0.5})
    """
    step = line.get("step")
    whose, figures = "", {}
    for name, value in line.items():
        if name != "step" and isinstance(value, str | int):
            whose += f"{value}/"
    for name, value in line.items():
        if isinstance(value, float):
            figures[whose + name] = value
    if isinstance(step, int) and figures:
        return step, figures
    return None


class TensorBoard:
    """Event files, as `tensorboard --logdir RUN` reads them."""

    def __init__(self, folder: Path, description: Mapping[str, Any]) -> None:
        from torch.utils.tensorboard import SummaryWriter

        place = folder / _PLACES["tensorboard"]
        shutil.rmtree(place, ignore_errors=True)  # a run that goes on tells all its lines again
        self._writer = SummaryWriter(str(place), flush_secs=5)

    def log(self, step: int, figures: Mapping[str, float]) -> None:
        """Log the figures of a step."""
        for name, value in figures.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        """Flush and close."""
        self._writer.close()


class MLflow:
    """A run in an SQLite store of its own, as `mlflow ui --backend-store-uri
    sqlite:///RUN/mlflow.db` shows it."""

    def __init__(self, folder: Path, description: Mapping[str, Any]) -> None:
        # It would tell its makers of each use, and look for git; nothing leaves this machine.
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")
        place = (folder / _PLACES["mlflow"]).absolute()
        name = f"attnlab {description['experiment']}"
        with _unheard():
            from mlflow.entities import Metric, Param
            from mlflow.tracking import MlflowClient

        self._metric, self._waiting, self._since = Metric, list[Any](), time.monotonic()
        with _unheard():  # once more: the import has set its own level
            self._client = MlflowClient(tracking_uri=f"sqlite:///{place}")
            known = self._client.get_experiment_by_name(name)
            if known:
                experiment = known.experiment_id
            else:
                experiment = self._client.create_experiment(name, str(place.parent))
            # A resumed run logs all its lines again.
            for before in self._client.search_runs([experiment]):
                self._client.delete_run(before.info.run_id)
            run = self._client.create_run(experiment, run_name=folder.name)
            self._run = run.info.run_id
            settings = {"seed": description["seed"], **description["settings"]}
            params = [Param(name, str(value)) for name, value in settings.items()]
            self._client.log_batch(self._run, params=params)

    def log(self, step: int, figures: Mapping[str, float]) -> None:
        """Log the figures of a step."""
        now = int(time.time() * 1000)
        for name, value in figures.items():
            self._waiting.append(self._metric(name, value, now, step))
        if len(self._waiting) >= _BATCH or time.monotonic() - self._since >= _SECONDS:
            self._write()

    def close(self) -> None:
        """Flush and close."""
        self._write()
        with _unheard():
            self._client.set_terminated(self._run)

    def _write(self) -> None:
        with _unheard():
            for start in range(0, len(self._waiting), _BATCH):
                self._client.log_batch(self._run, metrics=self._waiting[start : start + _BATCH])
        self._waiting, self._since = [], time.monotonic()


class Loggers:
    """The loggers of a run; one that fails is reported once, and left out from then on."""

    def __init__(
        self,
        names: Sequence[LoggerName],
        folder: Path,
        description: Mapping[str, Any],
        tell: Callable[[str], None],
    ) -> None:
        self._tell, self._loggers = tell, dict[LoggerName, TensorBoard | MLflow]()
        for name in names:
            with self._trying(name):
                kind = TensorBoard if name == "tensorboard" else MLflow
                self._loggers[name] = kind(folder, description)

    def log(self, line: Mapping[str, object]) -> None:
        """Log one line of metrics everywhere."""
        figures = measured(line)
        if figures is not None:
            for name, logger in list(self._loggers.items()):
                with self._trying(name):
                    logger.log(*figures)

    def close(self) -> None:
        """Flush and close all loggers."""
        for name, logger in list(self._loggers.items()):
            with self._trying(name):
                logger.close()

    @contextmanager
    def _trying(self, name: LoggerName) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # no error of a foreign package ends a training
            self._loggers.pop(name, None)
            reason = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
            self._tell(f"{name} failed and logs no more ({reason}); metrics.jsonl has every line.")


def check_loggers(names: Sequence[str]) -> list[LoggerName]:
    """Check that these loggers exist, and that their packages are installed.

    Raises:
        WrongUsage: there is no such logger.
        CouldNotRun: its package is missing.
    """
    known = {str(name): name for name in get_args(LoggerName)}
    for name in names:
        require_known("logger", name, known)
        for package in _NEEDED[known[name]]:
            if find_spec(package) is None:
                raise CouldNotRun(
                    f"{name} is not installed; install it with: pip install 'attnlab[{name}]', or "
                    "leave out --log."
                )
    return [known[name] for name in dict.fromkeys(names)]


def loggers_in(folder: Path) -> list[LoggerName]:
    """Return the names of the loggers that have written to a run's folder."""
    return [name for name, place in _PLACES.items() if (folder / place).exists()]


@contextmanager
def _unheard() -> Iterator[None]:
    """Silence MLflow and its dependencies about databases and deprecations."""
    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
