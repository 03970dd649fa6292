"""The final screen of `attnlab run all`: one finding of each experiment, then failed claims."""

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.padding import Padding
from rich.text import Text

from attnlab.cli import terminal
from attnlab.cli.terminal import marked_line, say_short
from attnlab.errors import typed

if TYPE_CHECKING:
    from attnlab.experiments.report import Report

_MAX_CLAIMS = 8  # failed or undecided claims that are listed
_FINDING_LINES = 2
_UNDECIDED = "Undecided: so few seeds or texts cannot tell, one way or the other; more may."


def show_final_screen(
    reports: "Sequence[Report]",
    broken: Mapping[str, object],
    parent: Path,
    gallery: Path,
    *,
    short: str = "",
) -> None:
    """Print at most forty lines: findings, experiments that could not run, open claims.

    short: how the run is shorter than a full one, in words.
    """
    console = terminal.output()
    for report in reports:
        console.print(
            Text.assemble(
                (report.experiment.ljust(13), "bold"), terminal.claim_counts(report.claims)
            )
        )
        finding = textwrap.wrap(
            marked_line(_finding(report)),
            console.width - 4,
            max_lines=_FINDING_LINES,
            placeholder=" …",
        )
        console.print(Padding(Text("\n".join(finding)), (0, 2, 0, 2)))
    for name, why in broken.items():
        say_short(Text.assemble((f"✗ {name} could not run: ", "bold red"), marked_line(str(why))))
    _show_open_claims(reports, parent)
    terminal.say("")
    if short:
        terminal.output().print(Text(short))
    terminal.say(f"gallery  {gallery}")
    folders = {report.experiment: report.folder for report in reports}
    trace = ""
    if "sorting" in folders:
        trace = f" · attnlab trace {typed(folders['sorting'])} cab"
    terminal.say(f"look at  attnlab open {typed(parent)}{trace}", is_quiet=True)
    terminal.say(
        f"claims   attnlab show {typed(reports[0].folder)} · all of them: in the gallery",
        is_quiet=True,
    )


def _show_open_claims(reports: "Sequence[Report]", parent: Path) -> None:
    """Print the claims that failed, then those that are undecided."""
    open_claims = []
    for report in reports:
        open_claims += [(report, claim) for claim in report.claims if not claim.passed]
    open_claims.sort(key=lambda pair: pair[1].passed is None)  # failed before undecided
    for report, claim in open_claims[:_MAX_CLAIMS]:
        name = claim.name.replace("_", " ")
        words = f"  {report.experiment}, {name}: {claim.measured}; bound: {claim.bound}"
        say_short(Text.assemble(terminal.mark(claim), marked_line(words)))
    if len(open_claims) > _MAX_CLAIMS:
        terminal.say(f"… and {len(open_claims) - _MAX_CLAIMS} more: attnlab open {typed(parent)}")
    if any(claim.passed is None for _, claim in open_claims):
        terminal.output().print(Text(_UNDECIDED, style="dim"))


def _finding(report: "Report") -> str:
    """Return a run's finding, if its claim holds; else the subtitle of its report."""
    name, sentence = terminal.table_words("findings").get(report.experiment, ("", ""))
    for claim in report.claims:
        if claim.name == name and claim.passed:
            return f"{sentence}: {claim.measured}"
    return str(report.content.subtitle)
