"""Terminal output: tables, lines, errors. Results go to standard output, the rest to error."""

import io
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from attnlab.display import harmless

if TYPE_CHECKING:
    from attnlab.cli.doctor import Finding
    from attnlab.configs import Option
    from attnlab.experiments.claims import Claim
    from attnlab.experiments.report import Report

__all__ = [
    "Writer",
    "complain",
    "counted",
    "errors",
    "mark",
    "note",
    "one_line",
    "output",
    "prepare_streams",
    "read_inputs",
    "release_streams",
    "say",
    "show_all_claims",
    "show_claims",
    "show_experiments",
    "show_findings",
    "show_report",
    "show_runs",
    "show_settings",
    "show_table",
]

_MIN_WIDTHS = {1: 14, 2: 4, 5: 10}  # columns of the list of runs that may wrap
_GAPS = 17  # blanks between the columns of that list
_STYLES = {True: "green", False: "bold red", None: "yellow"}  # of a claim, by its `passed`
_LINE_FEED = "␊"


class Writer(Console):
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
        self.quiet = True
        if self.file is not sys.stderr:
            raise BrokenPipeError


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


def one_line(text: str) -> str:
    """Mark the line ends of a text from a file, so that it cannot look like a line of ours."""
    return text.replace("\n", _LINE_FEED)


def output() -> Console:
    """Return the console for results: standard output."""
    return _console(sys.stdout)


def errors() -> Console:
    """Return the console for everything else: standard error."""
    return _console(sys.stderr)


def _console(stream: TextIO) -> Console:
    # In names of folders and settings, [brackets] and :colons: are no markup.
    return Writer(file=stream, highlight=False, markup=False, emoji=False)


def say(text: str, *, is_quiet: bool = False) -> None:
    """Print one line, never wrapped, so that paths can be copied."""
    output().print(Text(one_line(text), style="dim" if is_quiet else ""), soft_wrap=True)


def note(text: str) -> None:
    """Print one line to standard error."""
    errors().print(Text(one_line(text), style="dim"), soft_wrap=True)


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
            errors().print(Text(one_line(prompt)), soft_wrap=True, end="")
            sys.stderr.flush()
        line = sys.stdin.readline()
        if not line:
            if is_person:
                sys.stderr.write("\n")
            return
        if is_person and not line.strip():
            return
        yield line.strip()


def show_claims(claims: "Sequence[Claim]") -> None:
    """Print the claims with their measurements, and how many hold."""
    console = output()
    table = _table("", "claim", "measured", "bound")
    table.columns[1].ratio, table.columns[2].ratio, table.columns[3].ratio = 4, 2, 2
    table.expand = True
    for claim in claims:
        name = Text(one_line(claim.name).replace("_", " "), style="bold")
        statement = Text(f"\n{one_line(claim.statement)}", style="dim")
        table.add_row(mark(claim), Text.assemble(name, statement), claim.measured, claim.bound)
    console.print(table)
    console.print(counted(claims))


def show_all_claims(runs: "Sequence[tuple[str, Sequence[Claim]]]") -> None:
    """Print the claims of several runs in one table, and how many hold."""
    console = output()
    table = _table("", "experiment", "claim", "measured", "bound")
    for experiment, claims in runs:
        for index, claim in enumerate(claims):
            name = experiment if index == 0 else ""
            table.add_row(
                mark(claim), name, claim.name.replace("_", " "), claim.measured, claim.bound
            )
        table.add_section()
    console.print(table)
    every = [claim for _, claims in runs for claim in claims]
    if every:
        console.print(counted(every))


def mark(claim: "Claim") -> Text:
    """Return a sign and a word for whether a claim holds."""
    from attnlab.draw.claims import claim_state

    state = claim_state(claim.passed)
    return Text(f"{state.mark} {state.word}", style=_STYLES[claim.passed])


def counted(claims: "Sequence[Claim]") -> Text:
    """Return how many claims hold, in words."""
    from attnlab.draw.claims import judge_all, say_all

    passed = [claim.passed for claim in claims]
    return Text(say_all(passed), style=f"bold {_STYLES[judge_all(passed)]}")


def show_runs(runs: Sequence[Mapping[str, Any]], parent: Path) -> None:
    """Print one line for each run."""
    if not runs:
        say(f"{parent} holds no runs yet; make one with: attnlab run sorting")
        return
    table = _table("run", "what", "seed", "state", "claims", "started")
    states = [
        f"running ({run['writer']})" if run["state"] == "running" else run["state"] for run in runs
    ]
    claims = [_claims_text(run) for run in runs]
    # A wrapped name cannot be copied; a narrow terminal wraps the whole line instead.
    unwrapped = {
        0: max(len(run["run"]) for run in runs),
        3: max(map(len, states)),
        4: max(map(len, ("claims", *claims))),
    }
    for column, width in unwrapped.items():
        table.columns[column].min_width, table.columns[column].no_wrap = width, True
    for column, width in _MIN_WIDTHS.items():
        table.columns[column].min_width = width
    for run, state, counted in zip(runs, states, claims, strict=True):
        style = _state_style(run)
        started = str(run["started"] or "").replace("T", " ").removesuffix("+00:00")
        seed = "" if run["seed"] is None else str(run["seed"])
        if seed and run["seeds"] > 1:
            seed += " …"
        table.add_row(run["run"], run["what"], seed, Text(state, style=style), counted, started)
    console = output()
    # rich never prints wider than its console.
    console.width = max(console.width, sum(unwrapped.values()) + sum(_MIN_WIDTHS.values()) + _GAPS)
    console.print(table)
    for run in runs:
        if run["state"] == "unfinished":
            say(f"to go on  attnlab resume {run['run']}", is_quiet=True)


def _state_style(run: Mapping[str, Any]) -> str:
    if run["passed"] + run["undecided"] < run["claims"]:
        return "red"
    if run["state"] == "finished" and run["passed"] == run["claims"]:
        return "green"
    return "yellow"


def _claims_text(run: Mapping[str, Any]) -> str:
    if not run["claims"]:
        return ""
    undecided = f", {run['undecided']} undecided" if run["undecided"] else ""
    return f"{run['passed']}/{run['claims']}{undecided}"


def show_experiments(summaries: Mapping[str, str]) -> None:
    """Print the experiments with what each shows."""
    table = _table("experiment", "what it shows")
    for name, summary in summaries.items():
        table.add_row(name, summary)
    output().print(table)
    say(f"attnlab settings {next(iter(summaries))} lists the settings of one", is_quiet=True)


def show_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table of strings."""
    table = _table(*columns)
    for row in rows:
        table.add_row(*row)
    output().print(table)


def show_settings(name: str, summary: str, options: "Sequence[Option]") -> None:
    """Print every setting of an experiment: default, allowed values, meaning."""
    console = output()
    console.print(Text(f"{name}: {summary}", style="bold"))
    table = _table("setting", "default", "allowed", "meaning")
    for each in options:
        table.add_row(
            each.name,
            "none" if each.default is None else str(each.default),
            each.expected,
            each.comment,
        )
    console.print(table)
    say(f"attnlab run {name} --set {options[0].name}={options[0].default} …", is_quiet=True)


def show_report(report: "Report", folder: Path) -> None:
    """Print a run: facts, claims, parameters, files."""
    console = output()
    console.print(Text(one_line(str(report.document["subtitle"])), style="bold"))
    facts = _table(show_header=False)
    for name, value in report.document["facts"]:
        facts.add_row(Text(one_line(str(name)), style="dim"), str(value))
    console.print(facts)
    show_claims(report.claims)
    for section in report.document["sections"]:
        if section["kind"] == "table" and section["title"] == "Parameters":
            table = _table(*section["columns"])
            table.columns[-1].justify = "right"
            for row in section["rows"]:
                cells = [f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row]
                table.add_row(*cells)
            console.print(table)
    if report.folder is None:
        say(f"attnlab open {folder} writes its report", is_quiet=True)
    else:
        say(f"report   {folder / 'report.html'}")


def show_findings(findings: "Sequence[Finding]") -> None:
    """Print the findings of the doctor."""
    table = _table("", "what", "found", "advice")
    styles = {"good": "green", "optional": "yellow", "missing": "bold red", "note": "dim"}
    for each in findings:
        table.add_row(
            Text(each.state, style=styles[each.state]), each.what, each.found, each.advice
        )
    output().print(table)


class _Table(Table):
    def add_row(self, *cells: RenderableType | None, **options: Any) -> None:
        shown = [one_line(cell) if isinstance(cell, str) else cell for cell in cells]
        super().add_row(*shown, **options)


def _table(*columns: str, show_header: bool = True) -> Table:
    table = _Table(box=box.SIMPLE_HEAD, show_header=show_header, pad_edge=False, header_style="dim")
    for column in columns:
        table.add_column(one_line(column), overflow="fold")
    return table
