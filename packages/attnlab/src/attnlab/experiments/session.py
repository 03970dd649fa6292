"""The session of a run of any kind: its folder, its observer, and how it computes if resumed."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import cast, get_args

from attnlab.errors import CouldNotRun, WrongUsage, not_none
from attnlab.experiments.folder import RunConfig, RunFolder, RunKind, read_to_go_on
from attnlab.experiments.report import Report, begins_at, open_run
from attnlab.parts.fused import use_attention_path
from attnlab.parts.linear import MatrixPath, use_matrix_path
from attnlab.progress import notebook_bar
from attnlab.train.checkpoint import MOST_THREADS
from attnlab.train.loop import using_threads
from attnlab.train.observer import Observer, SilentObserver


class Session(ExitStack):
    """A run, population, sweep or search while it is computed; a context manager.

    Attributes:
        path: of the folder; None while it only lives in memory.
        is_resumed: whether it was begun before.
        observer: is told of progress.
        started: the time at which it begins, as `config.json` has it.
        folder: the folder, once it is open.
    """

    def __init__(
        self,
        kind: RunKind,
        experiment: str,
        out: Path | str | None,
        *,
        resume: bool,
        observer: Observer | None,
    ) -> None:
        super().__init__()
        if resume and out is None:
            raise WrongUsage(f"to resume a {kind}, name its folder: --out DIR --resume.")
        title = experiment if kind in ("run", "population") else f"{kind} of {experiment}"
        self._kind = kind
        self.path = None if out is None else Path(out)
        self.is_resumed = resume
        self.observer = observer or notebook_bar(title) or SilentObserver()
        self.started = begins_at()
        self.folder: RunFolder | None = None

    def begun_as(self, config: RunConfig) -> RunConfig | None:
        """Return the config of the run that is resumed, if it is the one asked for."""
        if not self.is_resumed:
            return None
        return read_to_go_on(not_none(self.path), self._kind, config)

    def compute_as_begun(self, config: RunConfig) -> None:
        """Compute as the run that is resumed, bit for bit, or with torch's own attention."""
        begun = self.begun_as(config)
        # The numbers of a run must not depend on whether a C++ compiler is there.
        computing = use_attention_path("default") if begun is None else computing_as(begun)
        self.enter_context(computing)

    def open(self, config: RunConfig) -> RunConfig:
        """Make the folder, or open the one of the run that is resumed; return its config."""
        if self.path is None:
            return config
        opened = RunFolder.create(self.path, config)
        if self.is_resumed:
            opened = RunFolder.resume(self.path, config, self.observer.tell)
        self.folder = self.enter_context(opened)
        return self.folder.config

    @property
    def checkpoints(self) -> Path | None:
        """The folder for the checkpoints of trainings."""
        return None if self.path is None else self.path / "checkpoints"

    def write(self, report: Report) -> Report:
        """Write a report into the folder, if there is one, and return it as it is opened again."""
        if self.folder is None:
            return report
        self.observer.stage("writing the report")
        report.write(self.folder)
        return open_run(self.folder.path)


@contextmanager
def computing_as(described: Mapping[str, object]) -> Iterator[None]:
    """Compute with the threads and matrix path of a run's config, so that it resumes bit for bit.

    Attention is always computed by torch's own kernel: runs must not depend on whether a C++
    compiler is installed.
    """
    threads, path = described.get("threads"), described.get("matrix_path")
    known = get_args(MatrixPath)
    if not isinstance(threads, int) or not 1 <= threads <= MOST_THREADS or path not in known:
        raise CouldNotRun(
            f"its config names no threads and matrix path to resume with; got {threads!r} and "
            f"{path!r}."
        )
    products = use_matrix_path(cast(MatrixPath, path))
    with using_threads(threads), products, use_attention_path("default"):
        yield
