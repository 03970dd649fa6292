"""The output of a command for a finished run, population, sweep or hyper-parameter search."""

from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlab.cli import terminal
from attnlab.cli.terminal import print_json, say, show_table
from attnlab.errors import not_none, typed

if TYPE_CHECKING:
    from attnlab.experiments.population import Population
    from attnlab.experiments.report import Report
    from attnlab.experiments.sweeps import Sweep
    from attnlab.experiments.tune import Search

    Result = Report | Population | Sweep | Search

_MAX_FAULTS = 20  # that are printed
_MAX_ROWS = {"Sweep": 60, "Search": 10}  # of the table of cells or trials


def show_result(result: "Result", *, as_json: bool, in_full: bool = False) -> int:
    """Print which claims of a result hold and where to look, and return its exit status."""
    report = _report_of(result)
    if as_json:
        print_json(result_to_json(result))
        return report.exit_status
    folder = not_none(report.folder)
    kind = type(result).__name__
    if kind in _MAX_ROWS:
        _show_rows(result, report, _MAX_ROWS[kind])
    terminal.show_claims(report.claims, in_full=in_full)
    faults = getattr(result, "faults", {})
    for name, fault in islice(faults.items(), _MAX_FAULTS):
        say(f"seed {name} diverged {fault}")
    if len(faults) > _MAX_FAULTS:
        say(f"… and {len(faults) - _MAX_FAULTS:,} more diverged", is_quiet=True)
    say(f"report   {folder / 'report.html'}")
    say(f"look at  attnlab open {typed(folder)}{_commands(result, folder)}", is_quiet=True)
    return report.exit_status


def _commands(result: "Result", folder: Path) -> str:
    """Return commands that show more of a result."""
    from attnlab.experiments.population import Population
    from attnlab.experiments.report import Report

    if isinstance(result, Population):
        member = folder / result.name(0)
        return f" · attnlab show {typed(member)} · attnlab open {typed(member)}"
    if not isinstance(result, Report):
        return f" · attnlab show {typed(folder)} · {folder / 'table.csv'}"
    trace = ""
    if result.reader.is_askable:
        trace = f" · attnlab trace {typed(folder)}"
    return f"{trace} · attnlab show {typed(folder)}"


def result_to_json(result: "Result") -> dict[str, object]:
    """Return the output of --json: the folder, whether all claims hold, each of them, and more."""
    report = _report_of(result)
    claims = [claim.to_mapping() for claim in report.claims]
    form = {"run": str(report.folder), "passed": result.passed, "claims": claims}
    return form | getattr(result, "to_mapping", dict)()


def _report_of(result: "Result") -> "Report":
    from attnlab.experiments.report import Report

    if isinstance(result, Report):
        return result
    return result.report


def _show_rows(result: Any, report: "Report", most: int) -> None:
    """Print the task, the table of cells or trials, and the result's notes."""
    for section in report.content.sections:
        if section.kind == "text" and section.title == "The task":
            for line in section.told.split("\n"):
                say(line, is_quiet=True)
    card = result._card()
    show_table(card.columns, [list(map(str, row)) for row in card.rows[:most]])
    if len(card.rows) > most:
        say(f"… and {len(card.rows) - most:,} more in table.csv", is_quiet=True)
    for line in card.lines:
        say(line)


def show_finished(folder: Path, *, as_json: bool = False) -> int:
    """Print that there is nothing left to run, and return the exit status of the run."""
    from attnlab.experiments.claims import count_claims
    from attnlab.experiments.folder import AlreadyFinished
    from attnlab.experiments.report import open_run

    report = open_run(folder)
    if as_json:
        print_json(result_to_json(report))
    sentence = str(AlreadyFinished(folder))
    if report.exit_status:
        sentence += f" The exit status is 1: {count_claims(report.claims)}."
    return terminal.complain(sentence, report.exit_status)
