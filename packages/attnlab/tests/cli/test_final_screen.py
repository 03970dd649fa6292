"""The end of `attnlab run all`, and how far it is."""

import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from attnlab.cli import progress as progress_module
from attnlab.cli.estimate import TimeEstimate
from attnlab.cli.final_screen import show_final_screen
from attnlab.cli.progress import progress, progress_of_many
from attnlab.cli.terminal import table_words
from attnlab.draw.sections import ReportContent
from attnlab.experiments import registry
from attnlab.experiments.claims import Claim
from attnlab.experiments.open_program.targets import SOURCES
from attnlab.experiments.report import Report
from attnlab.experiments.sentiment.baseline import BASELINES

SYSTEMS = ("lookup", "anatomy", "handmade", "open_program", "sentiment", "sorting")


def report_of(name, passed, *, claims=30):
    """A run of a system with many long claims, all of one verdict."""
    words = "a long measurement " * 12
    all_ = (Claim("all_inputs_right", "statement", words, words, passed),) * claims
    subtitle = "what this run found in the end, " * 9
    content = ReportContent(title=name, subtitle=subtitle, facts=[], sections=[])
    return Report(name, {}, all_, [], content, Path("runs") / name)


def screen(capsys, monkeypatch, reports, width, broken=()):
    monkeypatch.setenv("COLUMNS", str(width))
    reasons = dict.fromkeys(broken, "a reason\nand more " * 20)
    show_final_screen(reports, reasons, Path("runs"), Path("runs/index.html"))
    return capsys.readouterr().out


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("passed", [True, False, None])
def test_the_closing_screen_never_has_more_than_forty_lines(capsys, monkeypatch, width, passed):
    reports = [report_of(name, passed) for name in SYSTEMS]
    out = screen(capsys, monkeypatch, reports[:3], width, SYSTEMS[3:])
    assert out.count("\n") <= 40
    assert max(map(len, out.splitlines()[:-4])) <= width
    assert screen(capsys, monkeypatch, reports, width).count("\n") <= 40


def test_the_closing_screen_names_what_failed_first_and_where_to_look(capsys, monkeypatch):
    mixed = [report_of("lookup", None, claims=2), report_of("anatomy", False, claims=1)]
    out = screen(capsys, monkeypatch, [*mixed, report_of("sorting", True)], 100)
    undecided = out.index("? undecided  lookup, all inputs right")
    assert out.index("✗ failed  anatomy, all inputs right") < undecided
    assert "0 of 2 claims hold, 2 undecided" in out
    assert "A small decoder answers every input there is right: a long measurement" in out
    assert "attnlab open runs · attnlab trace runs/sorting cab" in out
    assert "attnlab show runs/lookup" in out
    failed = screen(capsys, monkeypatch, [report_of("sorting", False)], 100)
    assert "A small decoder answers" not in failed


def test_a_finding_is_shortened_at_a_word(capsys, monkeypatch):
    reports = [report_of("anatomy", True), report_of("sorting", True)]
    for width in (60, 73, 80):
        out = screen(capsys, monkeypatch, reports, width)
        (cut, *_) = [line.split() for line in out.splitlines() if line.rstrip().endswith("…")]
        assert cut[-1] == "…"
        words = "what this run found in the end, a long measurement"
        assert cut[-2] in words.split()


def test_the_claim_that_tells_most_is_one_that_its_system_makes():
    composed = {
        "sentiment": [f"best_beats_{each.key}" for each in BASELINES.values()],
        "open_program": [f"{each}_beats_decoy" for each in SOURCES],
    }
    for name, (claim, _) in table_words("findings").items():
        folder = Path(registry.find(name).experiment.__file__).parent
        sources = "".join(path.read_text() for path in folder.glob("*.py"))
        assert f'"{claim}"' in sources or claim in composed[name]


class Terminal(io.StringIO):
    def isatty(self):
        return True


def console_of(monkeypatch, width):
    """Write to a terminal of a width; return it, and the text so far without colors."""
    stream = Terminal()
    console = Console(file=stream, force_terminal=True, width=width, _environ={"TERM": "xterm"})
    monkeypatch.setattr(progress_module, "errors", lambda: console)
    return console, lambda: re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", stream.getvalue())


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_phase_has_one_bar_that_fits_with_an_estimate_of_the_whole(monkeypatch, width):
    _, text = console_of(monkeypatch, width)
    with progress("1/5 lookup", left=lambda: 250.0) as observer:
        observer.stage("ordered facts, model 1 of 5")
        observer.step(
            3_000, 15_000, {"loss": 0.0073, "loss_low": 0.001, "loss_high": 0.1, "accuracy": 1.0}
        )
        observer.stage("looking inside")  # of which no steps are known
    drawn = re.split(r"[\r\n]+", text())
    assert max(map(len, drawn)) <= width
    last = [line for line in drawn if line.strip()][-2:]
    assert last[0].startswith("1/5 lookup: looking inside")
    assert re.search(r"━+ 0:0\d so far; all: about 4:10 left", last[1])


def test_without_a_terminal_a_phase_is_one_line_with_its_last_figures(capsys):
    with progress("1/5 lookup") as observer:
        observer.stage("loose facts")
        for step in range(1, 1_001):
            observer.step(step, 1_000, {"loss": 1.0 / step})
        observer.stage("bound facts")
        observer.step(400, 1_000, {"accuracy": 1.0})  # stopped early
        observer.stage("looking inside")
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "1/5 lookup: loose facts: 1,000 of 1,000  loss 0.0010",
        "1/5 lookup: bound facts: 400 of 1,000  right 100.0%",
    ]


def usual(monkeypatch, **seconds):
    """Let the experiments take so many seconds, usually."""
    pairs = {name: (short, 10 * short) for name, short in seconds.items()}
    monkeypatch.setattr("attnlab.cli.terminal.table_words", lambda table: pairs)


def test_the_estimate_follows_the_pace_of_this_machine(monkeypatch):
    usual(monkeypatch, lookup=38, anatomy=15, sorting=20)
    now = [0.0]
    estimate = TimeEstimate(["lookup", "anatomy", "sorting"], full=False, now=lambda: now[0])
    estimate.begin("lookup")
    assert estimate.left() == 73
    now[0] = 76.0  # twice as long
    estimate.end("lookup")
    estimate.begin("anatomy")
    assert estimate.left() == 2 * (15 + 20)
    now[0] = 76.0 + 2 * 15
    assert estimate.left() == 2 * 20
    now[0] = 76.0 + 4 * 15  # it goes on and on, and so may the next
    assert 2 * 20 < estimate.left() < 4 * 20


def test_the_estimate_of_two_at_once_is_that_of_the_last_to_end(monkeypatch):
    usual(monkeypatch, lookup=30, anatomy=10, sorting=5)
    now = [0.0]
    names = ["lookup", "anatomy", "sorting"]
    estimate = TimeEstimate(names, full=False, num_processes=2, now=lambda: now[0])
    estimate.begin("lookup")
    estimate.begin("anatomy")
    assert estimate.left() == 30  # sorting follows anatomy
    now[0] = 10.0
    estimate.end("anatomy")
    estimate.begin("sorting")
    assert estimate.left() == 20
    full = TimeEstimate(["lookup", "sorting"], full=True, num_processes=2)
    assert full.left() == 300


def test_two_bars_show_what_runs_at_once(monkeypatch):
    console, text = console_of(monkeypatch, 80)
    with progress_of_many(left=lambda: 90.0) as show:
        one, other = show("1/3 lookup"), show("2/3 anatomy")
        other.stage("heads")
        other.tell("it waits")
        one.stage("bound facts")
        one.step(5, 10, {})
        console.print("a line above")
        one.end()
        other.release()
    assert re.search(r"1/3 lookup: bound facts\s+━.*\n2/3 anatomy: heads\s+━", text())
    assert text().index("a line above") < text().index("it waits")
