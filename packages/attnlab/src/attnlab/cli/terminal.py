"""Terminal output: tables, lines, errors. Results go to standard output, the rest to error."""

import io
import json
import os
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.measure import Measurement
from rich.padding import Padding
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from attnlab.display import folded, harmless
from attnlab.errors import typed

if TYPE_CHECKING:
    from attnlab.experiments.claims import Claim
    from attnlab.experiments.report import Report

_STYLES = {True: "green", False: "bold red", None: "yellow"}  # of a claim, by its `passed`
_LINE_FEED = "␊"
_BELOW_A_CLAIM = (0, 0, 0, 9)


class SafeConsole(Console):
    """Rich's console, but no text can control the terminal, and a closed pipe is no error.

    Labels, words, claims and paths come from files that others wrote, so `render` makes their
    control characters visible.
    """

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Render as rich does, with control characters made visible; rich's own codes stay."""
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else harmless(text), style, control)

    def on_broken_pipe(self) -> None:
        """End the command if the reader of its results is gone; silence unread progress."""
        if self.file is not sys.stderr:
            raise BrokenPipeError
        self.quiet = True


def prepare_streams() -> None:
    """Make the three streams safe: open a closed one as empty, write unknown characters as `?`."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # closed by the caller, as in `attnlab list >&-`
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115  open until the end
        elif isinstance(stream := getattr(sys, name), io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def release_streams() -> None:
    """Drop output that a stream refuses, so that Python does not fail over it again at exit."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            with suppress(OSError):  # in tests and notebooks a stream has no number
                null = os.open(os.devnull, os.O_WRONLY)
                os.dup2(null, stream.fileno())
                os.close(null)


def marked_line(text: str) -> str:
    """Mark the line ends of a text from a file, so that it cannot look like a line of ours."""
    return text.replace("\n", _LINE_FEED)


def table_words(table: str) -> Any:
    """Read a table of `words.toml`."""
    text = resources.files("attnlab.cli").joinpath("words.toml").read_text("utf-8")
    return tomllib.loads(text)[table]


def tell(text: str, numbers: Mapping[str, object]) -> None:
    """Fill a text of `words.toml`, and print its lines."""
    from jinja2 import Environment, StrictUndefined

    templates = Environment(
        undefined=StrictUndefined,
        finalize=lambda value: marked_line(str(value)),
        line_statement_prefix="%%",
    )
    templates.filters["as"] = format
    say_lines(templates.from_string(table_words("texts")[text].strip()).render(numbers))


def output() -> Console:
    """Return the console for results: standard output."""
    return _console(sys.stdout)


def errors() -> Console:
    """Return the console for everything else: standard error."""
    return _console(sys.stderr)


def _console(stream: TextIO) -> Console:
    # In names of folders and settings, [brackets] and :colons: are no markup.
    return SafeConsole(file=stream, highlight=False, markup=False, emoji=False)


def say(text: str, *, is_quiet: bool = False) -> None:
    """Print one line, never wrapped, so that paths can be copied."""
    output().print(Text(marked_line(text), style="dim" if is_quiet else ""), soft_wrap=True)


def say_lines(text: str) -> None:
    """Print each line of a text."""
    for line in text.split("\n"):
        say(line)


def say_indented(text: str) -> None:
    """Print lines, quietly; a line that is too long goes on below, further in."""
    console = output()
    for line in text.split("\n"):
        console.print(Text("\n".join(folded(line, console.width)), style="dim"))


def say_short(line: Text) -> None:
    """Print a line, cut at the width of the terminal."""
    output().print(line, no_wrap=True, overflow="ellipsis")


def note(text: str) -> None:
    """Print one line to standard error."""
    errors().print(Text(marked_line(text), style="dim"), soft_wrap=True)


def complain(sentence: str, status: int) -> int:
    """Print the sentence of an error, and return the exit status; further lines are indented."""
    sentence = re.sub(r"\n(?!  )", _LINE_FEED, sentence)
    with suppress(OSError):  # if standard error is closed, the status must do
        errors().print(Text("attnlab: ", style="bold red") + Text(sentence), soft_wrap=True)
    return status


def read_inputs(prompt: str) -> Iterator[str]:
    """Yield typed lines up to an empty one, or all lines if a script writes them."""
    is_person = sys.stdin.isatty()
    while True:
        if is_person:
            errors().print(Text(marked_line(prompt)), soft_wrap=True, end="")
            sys.stderr.flush()
        line = sys.stdin.readline()
        if not line and is_person:
            sys.stderr.write("\n")
        if not line or (is_person and not line.strip()):
            return
        yield line.strip()


class _Table(Table):
    def add_row(self, *cells: RenderableType | None, **options: Any) -> None:
        shown = [marked_line(cell) if isinstance(cell, str) else cell for cell in cells]
        super().add_row(*shown, **options)


def make_table(*columns: str, is_plain: bool = False, show_header: bool = True) -> Table:
    """Make a table with these columns; a plain one has no rule below its header."""
    table = _Table(
        box=None if is_plain else box.SIMPLE_HEAD,
        padding=(0, 1),
        pad_edge=False,
        show_header=show_header,
        header_style="dim",
    )
    for column in columns:
        table.add_column(marked_line(column), overflow="fold")
    return table


def show_table(
    columns: Sequence[str], rows: Iterable[Sequence[str | Text]], *, unbroken: Sequence[int] = ()
) -> None:
    """Print a table.

    Args:
        columns: their names; without any, no header is printed.
        rows: a cell for each column.
        unbroken: numbers of columns that are never wrapped, so that a name in them can be copied;
            a narrow terminal then wraps whole lines instead.
    """
    rows = list(rows)
    names = columns or [""] * max(map(len, rows), default=0)
    table, console = make_table(*names, show_header=bool(columns)), output()
    for row in rows:
        table.add_row(*row)
    if unbroken:
        for number in unbroken:
            table.columns[number].no_wrap = True
            table.columns[number].min_width = max(cell_len(str(row[number])) for row in rows)
        unbounded = console.options.update_width(10_000)  # rich never prints wider than its console
        console.width = max(console.width, Measurement.get(console, unbounded, table).minimum)
    console.print(table)


def show_matrix(
    corner: str, columns: Sequence[str], labels: Sequence[str], cells: Sequence[Sequence[Text]]
) -> None:
    """Print a row of cells for each label, in several tables if the columns need more room."""
    columns, labels = list(map(marked_line, columns)), list(map(marked_line, labels))
    first_width, *widths = matrix_widths(corner, columns, labels, cells)
    for part in _parts(widths, output().width - first_width):
        table = make_table(corner, is_plain=True)
        for column in columns[part]:
            table.add_column(column, justify="right", no_wrap=True)
        for label, row in zip(labels, cells, strict=True):
            table.add_row(Text(f"  {label}"), *row[part])
        output().print(table)


def matrix_widths(
    corner: str, columns: Sequence[str], labels: Sequence[str], cells: Sequence[Sequence[Text]]
) -> list[int]:
    """Return the width of each column of a matrix, the labels' first."""
    widths = [max(map(cell_len, [corner, *labels])) + 2]
    for number, column in enumerate(columns):
        widths.append(2 + max(cell_len(column), *(row[number].cell_len for row in cells)))
    return widths


def _parts(widths: Sequence[int], room: int) -> Iterator[slice]:
    """Split columns into parts that fit, each with at least one column."""
    first = used = 0
    for number, width in enumerate(widths):
        if used + width > room and number > first:
            yield slice(first, number)
            first, used = number, 0
        used += width
    yield slice(first, len(widths))


def print_json(value: Any, *, indent: int | None = 2) -> None:
    """Print a value as JSON."""
    sys.stdout.write(json.dumps(value, indent=indent) + "\n")  # ASCII, which every encoding has


def print_rows(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print the rows of a table as JSON, each as a mapping from its columns."""
    print_json([dict(zip(columns, row, strict=True)) for row in rows])


def show_claims(claims: "Sequence[Claim]", *, in_full: bool = False) -> None:
    """Print which claims hold: one that does in one line, unless all are wanted in full.

    Self-checks that hold are counted in the last line.
    """
    listed = [claim for claim in claims if not claim.is_folded]
    names = [marked_line(claim.name.replace("_", " ")) for claim in listed]
    width = max(map(cell_len, names), default=0)
    for name, claim in zip(names, listed, strict=True):
        is_short = claim.passed and not in_full
        if is_short:
            measured = marked_line(claim.measured)
            say_short(Text.assemble(mark(claim), f"  {name:{width}}  {measured}"))
            continue
        say_short(Text.assemble(mark(claim), "  ", (name, "bold")))
        bound = f"measured {marked_line(claim.measured)}; bound: {marked_line(claim.bound)}"
        for words, style in ((marked_line(claim.statement), "dim"), (bound, "")):
            output().print(Padding(Text(words, style), _BELOW_A_CLAIM, expand=False))
    output().print(claim_counts(claims))


def show_all_claims(reports: "Sequence[Report]") -> None:
    """Print the claims of several runs, and how many hold."""
    every: list[Claim] = []
    for report in reports:
        say(report.experiment)
        show_claims(report.claims)
        every += report.claims
    output().print(claim_counts(every))


def mark(claim: "Claim") -> Text:
    """Return a sign and a word for whether a claim holds."""
    from attnlab.draw.claims import claim_state

    state = claim_state(claim.passed)
    return Text(f"{state.mark} {state.word}", style=_STYLES[claim.passed])


def claim_counts(claims: "Sequence[Claim]") -> Text:
    """Return how many claims hold, in words."""
    from attnlab.draw.claims import count_claims, judge_all

    verdict = judge_all([claim.passed for claim in claims])
    return Text(count_claims(claims), style=f"bold {_STYLES[verdict]}")


def show_runs(runs: Sequence[Mapping[str, Any]], parent: Path) -> None:
    """Print one line for each run."""
    if not runs:
        say(f"{parent} holds no runs yet; make one with: attnlab run sorting")
        return
    rows: list[list[str | Text]] = []
    for run in runs:
        what = run["what"]
        if run["kind"] == "run" and run["seed"]:
            what += f", seed {run['seed']}"
        started = str(run["started"] or "")[:16].replace("T", " ")
        rows.append([run["run"], what, _run_state(run), started])
    show_table(["run", "what", "claims", "started"], rows, unbroken=(0, 2, 3))
    for run in runs:
        if run["state"] == "unfinished":
            say(f"to go on  attnlab resume {typed(run['run'])}", is_quiet=True)


def _run_state(run: Mapping[str, Any]) -> Text:
    """Return how far a run is, and how many of its claims hold."""
    state, style = run["state"], "yellow"
    if run["passed"] + run["undecided"] < run["claims"]:
        style = "red"
    elif state == "finished" and run["passed"] == run["claims"]:
        style = "green"
    if state == "running":
        state = f"running ({run['writer']})"
    if run["claims"]:
        state = f"{run['passed']}/{run['claims']}"
    if run["undecided"]:
        state += f", {run['undecided']} undecided"
    return Text(marked_line(state), style=style)


def show_report(report: "Report", folder: Path) -> None:
    """Print a run: facts, claims, parameters, files."""
    from attnlab.draw.sections import Table

    output().print(Text(marked_line(str(report.content.subtitle)), style="bold"))
    facts = report.content.facts
    show_table([], [[Text(marked_line(str(name)), "dim"), str(value)] for name, value in facts])
    show_claims(report.claims, in_full=True)
    for section in report.content.sections:
        if isinstance(section, Table) and section.title == "Parameters":
            rows = [
                [f"{n:,}" if isinstance(n, int) else str(n) for n in row] for row in section.rows
            ]
            show_table(section.columns, rows)
    if report.folder is None:
        say(f"attnlab open {typed(folder)} writes its report", is_quiet=True)
    else:
        say(f"report   {folder / 'report.html'}")


def duration(seconds: float) -> str:
    """Write seconds in the unit that a person takes."""
    if seconds < 60.0:
        return f"{seconds:.0f} s"
    if seconds < 3600.0:
        return f"{seconds / 60.0:.0f} min"
    return f"{seconds / 3600.0:,.1f} hours"
