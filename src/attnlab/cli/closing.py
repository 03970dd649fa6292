"""How `attnlab run all` ends: each system with one finding, what failed or is undecided, and where to look next."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.padding import Padding
from rich.text import Text

from attnlab.cli import terminal
from attnlab.cli.terminal import one_line

if TYPE_CHECKING:
    from attnlab.experiments.claims import Claim
    from attnlab.experiments.report import Report

__all__ = ["show_closing"]

_FINDINGS = {
    "lookup": ("loose_at_chance", "New facts written as loose words cannot be looked up: to guess is all there is"),
    "anatomy": ("minus_100_gives_way", "A mask of −100 hides nothing any more where scores are about −150"),
    "handmade": ("agree_where_it_can_be_known", "A designed head and learned ones agree in scores, not in matrices"),
    "sentiment": ("best_beats_tfidf_500", "A model that starts from counts beats the usual TF-IDF on unseen texts"),
    "sorting": ("all_inputs_right", "A small decoder answers every input there is right"),
}
"""Of each system the claim that tells most, and what is found where it holds."""

_MOST_NOTED = 8  # claims that failed or are undecided
_LINES = 2  # of a finding, about


def show_closing(reports: "Sequence[Report]", broken: Mapping[str, str], parent: Path, gallery: Path) -> None:
    """Print at most forty lines, whatever was found."""
    console = terminal.output()
    for report in reports:
        console.print(Text.assemble((report.experiment.ljust(11), "bold"), terminal.counted(report.claims)))
        finding = Text(one_line(_finding(report)))
        finding.truncate(_LINES * (console.width - 4), overflow="ellipsis")
        console.print(Padding(finding, (0, 2, 0, 2)))
    for name, why in broken.items():
        _print_short(Text.assemble((f"✗ {name} could not run: ", "bold red"), one_line(why)))
    noted = [(report, claim) for report in reports for claim in report.claims if not claim.passed]
    noted.sort(key=lambda each: each[1].passed is None)  # what failed comes before what is undecided
    for report, claim in noted[:_MOST_NOTED]:
        _print_short(Text.assemble(terminal.mark(claim), one_line(f"  {report.experiment}, {_words(claim)}")))
    if len(noted) > _MOST_NOTED:
        terminal.say(f"… and {len(noted) - _MOST_NOTED} more: attnlab open {parent}")
    terminal.say("")
    terminal.say(f"gallery  {gallery}")
    folders = {report.experiment: report.folder for report in reports}
    asked = f" · attnlab trace {folders['sorting']} cab" if "sorting" in folders else ""
    terminal.say(f"look at  attnlab open {parent}{asked}", is_quiet=True)
    terminal.say(f"claims   attnlab show {reports[0].folder} · all at once: attnlab run all --claims", is_quiet=True)


def _finding(report: "Report") -> str:
    """Say what a run found: its telling claim where that holds, else what its report is about."""
    name, sentence = _FINDINGS.get(report.experiment, ("", ""))
    claim = next((claim for claim in report.claims if claim.name == name and claim.passed), None)
    return str(report.document["subtitle"]) if claim is None else f"{sentence}: {claim.measured}"


def _words(claim: "Claim") -> str:
    return f"{claim.name.replace('_', ' ')}: {claim.measured}; bound: {claim.bound}"


def _print_short(line: Text) -> None:
    """Print a line, cut where the terminal ends."""
    terminal.output().print(line, no_wrap=True, overflow="ellipsis")
