"""Progress of a command: a bar for each phase on a terminal, lines elsewhere."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, ProgressColumn, Task
from rich.table import Column
from rich.text import Text

from attnlab.cli.terminal import errors, marked_line
from attnlab.progress import figures_text

if TYPE_CHECKING:
    from attnlab.look.corpus import CorpusProgress
    from attnlab.train.observer import Observer

_LINE_SECONDS = 30.0  # between two lines on the same phase, without a terminal
_BETWEEN = 10.0  # seconds between two lines on texts read


@contextmanager
def progress(
    title: str, *, is_quiet: bool = False, left: Callable[[], float] | None = None
) -> "Iterator[Observer | None]":
    """Show the progress of each phase; `left` estimates the seconds until the end of all."""
    if is_quiet:
        yield None
        return
    with progress_of_many(left=left) as show:
        shown = show(title)
        shown.release()
        try:
            yield shown
        finally:
            shown.end()


@contextmanager
def progress_of_many(
    *, is_quiet: bool = False, left: Callable[[], float] | None = None
) -> "Iterator[Callable[[str], ProgressDisplay]]":
    """Show what runs at once: call the result with the title of each, when it begins."""
    console = errors()
    if is_quiet:
        yield lambda title: ProgressDisplay(Console(quiet=True), title)
        return
    if not console.is_terminal:
        yield partial(_Lines, console)
        return
    with _Phases(
        BarColumn(None, table_column=Column(ratio=1)),
        _Clock(left),
        console=console,
        expand=True,
        transient=True,
    ) as phases:
        yield partial(_Bar, phases)


@contextmanager
def counting(title: str, *, is_quiet: bool) -> Iterator[Callable[[int, int], None]]:
    """Show how many inputs of a proof are done, of how many."""
    with progress(title, is_quiet=is_quiet) as observer:
        yield steps_of(observer)


def steps_of(observer: "Observer | None", phase: str = "") -> Callable[[int, int], None]:
    """Return a function that shows how many steps are done, of how many, in a phase that begins
    with the first."""
    has_begun = not phase

    def tell(done: int, total: int) -> None:
        nonlocal has_begun
        if observer is None:
            return
        if not has_begun:
            observer.stage(phase)
            has_begun = True
        observer.step(done, total, {})

    return tell


@contextmanager
def waiting(what: str) -> "Iterator[Callable[[str], None]]":
    """Show a spinner with the latest message on a terminal; elsewhere print the messages."""
    console = errors()
    if not console.is_terminal:
        yield lambda sentence: console.print(Text(marked_line(sentence)), soft_wrap=True)
        return
    with console.status(Text(what)) as status:
        yield lambda sentence: status.update(Text(f"{what}: {marked_line(sentence)}"))


class _Phases(Progress):
    """Two lines each: the phase with its figures, cut at the terminal's width; its bar."""

    def get_renderables(self) -> Iterator[RenderableType]:
        for task in sorted(self.tasks, key=lambda task: task.fields["since"]):
            words = f"{task.description}  {task.fields['figures']}"
            yield Text(words, no_wrap=True, overflow="ellipsis")
            yield self.make_tasks_table([task])


class _Clock(ProgressColumn):
    """The share of the phase that is done, and the time left for the phase and for all."""

    max_refresh = 0.5

    def __init__(self, left: Callable[[], float] | None) -> None:
        super().__init__(Column(no_wrap=True))
        self._left = left

    def render(self, task: Task) -> Text:
        if task.total is None:
            words = f"{_clock(task.elapsed or 0.0)} so far"
        else:
            remaining = "-:--"
            if task.time_remaining is not None:
                remaining = _clock(task.time_remaining)
            words = f"{task.percentage:3.0f} %  {remaining} left"
        if self._left is not None:
            words += f"; all: about {_clock(self._left())} left"
        return Text(words)


class ProgressDisplay:
    """Progress under a title, an observer; its sentences wait until `release` is called."""

    def __init__(self, console: Console, title: str) -> None:
        self._console, self._title = console, marked_line(title)
        self._figures: dict[str, float] = {}
        self._waiting: list[str] | None = []

    def stage(self, name: str) -> None:
        """Show that a phase begins."""

    def step(self, step: int, steps: int, figures: Mapping[str, float]) -> None:
        """Show how far the phase is."""

    def tell(self, sentence: str) -> None:
        """Print a sentence, or let it wait."""
        if self._waiting is not None:
            self._waiting.append(sentence)
            return
        self._console.print(Text(marked_line(sentence)), soft_wrap=True)

    def release(self) -> None:
        """Print the sentences that wait, and from now on the others at once."""
        waiting, self._waiting = self._waiting or [], None
        for sentence in waiting:
            self.tell(sentence)

    def end(self) -> None:
        """Show that it has ended."""

    def _begun(self, phase: str) -> str:
        """Forget the figures of the phase before, and return the heading of this one."""
        self._figures = {}
        return f"{self._title}: {marked_line(phase)}" if phase else self._title


class _Bar(ProgressDisplay):
    def __init__(self, phases: _Phases, title: str) -> None:
        super().__init__(phases.console, title)
        self._phases, self._since = phases, time.monotonic()
        self._add("")

    def stage(self, name: str) -> None:
        self.end()  # a restarted task would keep its total
        self._add(name)

    def step(self, step: int, steps: int, figures: Mapping[str, float]) -> None:
        self._figures |= figures
        self._phases.update(
            self._task, completed=step, total=steps, figures=figures_text(self._figures)
        )

    def end(self) -> None:
        self._phases.remove_task(self._task)

    def _add(self, phase: str) -> None:
        heading = self._begun(phase)
        self._task = self._phases.add_task(heading, total=None, figures="", since=self._since)


class _Lines(ProgressDisplay):
    def __init__(self, console: Console, title: str) -> None:
        super().__init__(console, title)
        self._begin("")

    def stage(self, name: str) -> None:
        self.end()
        self._begin(name)

    def step(self, step: int, steps: int, figures: Mapping[str, float]) -> None:
        self._figures |= figures
        figures_now = figures_text(self._figures)
        self._line = f"{self._heading}: {step:,} of {steps:,}  {figures_now}".rstrip()
        if time.monotonic() - self._printed_at > _LINE_SECONDS:
            self.end()

    def end(self) -> None:
        if self._line:
            self.tell(self._line)
        self._line, self._printed_at = "", time.monotonic()

    def _begin(self, name: str) -> None:
        self._heading, self._line = self._begun(name), ""
        self._printed_at = time.monotonic()


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}:{rest:02}"
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


def corpus_lines(observer: "Observer | None") -> "Callable[[CorpusProgress], None]":
    """Return a function that prints the progress now and then."""
    printed_at = time.monotonic()

    def show(far: "CorpusProgress") -> None:
        nonlocal printed_at
        if observer is not None and time.monotonic() - printed_at > _BETWEEN:
            printed_at = time.monotonic()
            read = f"{far.texts:,} texts, {far.tokens:,} tokens"
            observer.tell(f"{read}, {far.rate:,.0f} a second")

    return show
