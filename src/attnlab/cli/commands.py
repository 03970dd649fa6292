"""The commands. Each parses, calls the library, shows; what takes long to import is imported inside."""

import json
import os
import re
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import cyclopts
from cyclopts import App, Parameter

from attnlab import __version__
from attnlab.cli import terminal
from attnlab.configs import parse_settings
from attnlab.errors import AttnlabError, CouldNotRun, WrongUsage, did_you_mean

if TYPE_CHECKING:
    from attnlab.experiments.report import Report

__all__ = ["app", "main"]

_RUNS = Path("runs")
_NO_MEMORY = re.compile(r"out of memory|not enough memory|(can't|cannot|unable to) (al|re|m)\w+ memory", re.IGNORECASE)
"""How torch words it; on a CPU it has no error class of its own."""

app = App(
    name="attnlab",
    help="The attention workbench: build, train, look at and take apart small transformers.",
    version=__version__,
    result_action="return_value",
    suppress_keyboard_interrupt=False,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status; nothing a user can cause ends in a traceback."""
    terminal.prepare_streams()
    with _Interrupts() as interrupts:
        try:
            status = app(arguments, exit_on_error=False, print_error=False)
            sys.stdout.flush()
            return status if isinstance(status, int) else 0
        except BaseException as error:
            # An import that the interrupt broke may raise anything at all.
            if interrupts.came and not isinstance(error, KeyboardInterrupt):
                error = KeyboardInterrupt()
            status = _explain(error)
            if status is None:
                raise
            return status
        finally:
            terminal.let_go_of_streams()


class _Interrupts:
    """Remembers whether Ctrl-C came; where it is ignored, or heard by somebody else, that stays so."""

    came = False

    def __enter__(self) -> "_Interrupts":
        is_main = threading.current_thread() is threading.main_thread()  # no other thread may set a handler
        self._is_ours = is_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if self._is_ours:
            signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.came = True
        signal.default_int_handler(number, frame)


def _explain(error: BaseException) -> int | None:
    """Say in one sentence what went wrong, and return the exit status; None when it is a fault of ours."""
    if isinstance(error, KeyboardInterrupt):
        kept = f"; what it has so far is in {error}, marked unfinished" if str(error) else ""
        return terminal.complain(f"stopped by you{kept}.", 130)
    if isinstance(error, cyclopts.CycloptsError):
        sentence = " ".join(str(error).split())
        if isinstance(error, cyclopts.UnusedCliTokensError):
            sentence += " Settings are written --set key=value, and an input of several words is one argument."
        return terminal.complain(sentence if sentence.endswith((".", "?")) else sentence + ".", 2)
    if isinstance(error, AttnlabError):
        return terminal.complain(str(error), error.exit_status)
    if isinstance(error, BrokenPipeError):
        return 0  # whoever read our output has heard enough (`attnlab list | head`)
    if isinstance(error, OSError) and error.strerror:
        what = error.filename or "standard input or output"
        return terminal.complain(f"could not use {what}: {error.strerror}.", 3)
    if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and _NO_MEMORY.search(str(error))):
        return terminal.complain("there is not enough memory for this; try a smaller model, domain or batch.", 3)
    return None


def _whole_number(_: Any, tokens: Sequence[cyclopts.Token]) -> int:
    """Read an integer strictly; left alone, cyclopts would round 1.5 to 2."""
    text = tokens[0].value
    if not re.fullmatch(r"[+-]?\d{1,50}", text, re.ASCII):
        raise ValueError(f"expected a whole number; got {text[:50]!r}.")
    return int(text)


@app.command
def run(
    name: str,
    /,
    *,
    seed: Annotated[int, Parameter(converter=_whole_number)] = 0,
    set_: Annotated[list[str] | None, Parameter(name="--set", consume_multiple=True, negative="")] = None,
    out: Path | None = None,
    quick: Annotated[bool, Parameter(negative="")] = False,
    as_json: Annotated[bool, Parameter(name="--json", negative="")] = False,
    quiet: Annotated[bool, Parameter(name=["--quiet", "-q"], negative="")] = False,
) -> int:
    """Run an experiment from start to finish, or all of them, and say which claims hold.

    Parameters
    ----------
    name
        The experiment, such as sorting, or all; `attnlab settings` lists them, `attnlab settings sorting` what can be
        set.
    seed
        Of all randomness; the same seed gives the same weights, byte for byte.
    set_
        Settings, key=value, as many as you like; for all of them, experiment.key=value.
    out
        The run folder to make; by default the first free one of runs/NAME, runs/NAME-2, … For all, the folder to make
        them in.
    quick
        Smaller settings that show the same in seconds.
    as_json
        Print the claims as JSON.
    quiet
        Show no progress.
    """
    from attnlab.experiments import registry

    if set_ == []:
        raise WrongUsage("--set needs at least one key=value; `attnlab settings` lists what can be set.")
    wanted = parse_settings(set_ or [])
    if name == "all":
        return _run_all(out or _RUNS, wanted, seed=seed, quick=quick, as_json=as_json, quiet=quiet)
    registry.find(name)
    report = _run_one(name, out, wanted, seed=seed, quick=quick, quiet=quiet or as_json)
    if as_json:
        _print_json(_as_mapping(report))
    else:
        folder = report.folder
        assert folder is not None
        trace = f" · attnlab trace {folder}" if registry.is_traceable(name) else ""
        terminal.show_claims(report.claims)
        terminal.say(f"report   {folder / 'report.html'}")
        terminal.say(f"look at  attnlab open {folder}{trace} · attnlab show {folder}", is_quiet=True)
    return 0 if report.passed else 1


def _run_one(
    name: str, out: Path | None, wanted: Mapping[str, str], *, seed: int, quick: bool, quiet: bool, parent: Path = _RUNS
) -> "Report":
    """Run an experiment in the folder named, or in the first free one of the parent."""
    from attnlab.experiments import registry
    from attnlab.experiments.folder import FolderTaken, free_name

    while True:
        folder = out if out is not None else free_name(parent, name)
        try:
            with terminal.progress(f"{name}, seed {seed}", is_quiet=quiet) as observer:
                return registry.run(name, seed=seed, out=folder, settings=wanted, quick=quick, observer=observer)
        except FolderTaken:
            if out is not None:
                raise
            # Another run took this name a moment ago; nothing was trained yet, so the next one is as good.
        except KeyboardInterrupt:
            raise KeyboardInterrupt(str(folder) if folder.exists() else "") from None


def _run_all(parent: Path, wanted: Mapping[str, str], *, seed: int, quick: bool, as_json: bool, quiet: bool) -> int:
    """Run every experiment; one that cannot run is told at the end, and keeps the others from nothing."""
    from attnlab.experiments import registry
    from attnlab.experiments.claims import verdict
    from attnlab.experiments.gallery import write_gallery
    from attnlab.files import explained

    settings = _settings_of_each(wanted, list(registry.EXPERIMENTS))
    for name in registry.EXPERIMENTS:  # a wrong setting is told before the first of them begins
        registry.config(name, settings[name], quick=quick)
    with explained(parent):  # a place that cannot be written is told once, not by each of them
        parent.mkdir(parents=True, exist_ok=True)
    reports: list[Report] = []
    broken: dict[str, AttnlabError] = {}
    for name in registry.EXPERIMENTS:
        try:
            report = _run_one(name, None, settings[name], seed=seed, quick=quick, quiet=quiet or as_json, parent=parent)
        except AttnlabError as error:
            broken[name] = error
            terminal.complain(f"{name}: {error}", error.exit_status)
            continue
        reports.append(report)
        if not as_json:
            terminal.say(f"{name}: {verdict(report.claims)}   {report.folder}")
    gallery = write_gallery(parent) if reports else None
    if as_json:
        failures = [{"experiment": name, "error": str(error)} for name, error in broken.items()]
        _print_json({"gallery": str(gallery or ""), "runs": [*map(_as_mapping, reports)], "not_run": failures})
    elif gallery is not None:
        terminal.show_all_claims([(report.experiment, report.claims) for report in reports])
        terminal.say(f"gallery  {gallery}")
        terminal.say(f"look at  attnlab open {parent} · attnlab list {parent}", is_quiet=True)
    if broken:
        return max(error.exit_status for error in broken.values())
    return 0 if all(report.passed for report in reports) else 1


def _settings_of_each(wanted: Mapping[str, str], names: Sequence[str]) -> dict[str, dict[str, str]]:
    """Sort `experiment.key=value` settings by experiment."""
    from attnlab.experiments import registry

    sorted_: dict[str, dict[str, str]] = {name: {} for name in names}
    for key, value in wanted.items():
        name, dot, setting = key.partition(".")
        if not dot or not setting:
            owners = [each for each in names if key in {o.name for o in registry.find(each).config_class.options()}]
            example = f"{owners[0]}.{key}={value}" if owners else "sorting.task=reverse"
            raise WrongUsage(
                f"for all experiments a setting is written experiment.key=value, such as {example}; got {key!r}."
            )
        if name not in sorted_:
            raise WrongUsage(f"there is no experiment {name!r}; {did_you_mean(name, names)}")
        sorted_[name][setting] = value
    return sorted_


def _as_mapping(report: "Report") -> dict[str, Any]:
    claims = [claim.to_mapping() for claim in report.claims]
    return {"run": str(report.folder), "passed": report.passed, "claims": claims}


@app.command(name="list")
def list_(parent: Path = _RUNS, /, *, as_json: Annotated[bool, Parameter(name="--json", negative="")] = False) -> int:
    """List the runs in a folder.

    Parameters
    ----------
    parent
        The folder that holds the run folders.
    as_json
        Print them as JSON.
    """
    from attnlab.experiments.folder import list_runs

    runs = list_runs(parent)
    if as_json:
        _print_json(runs)
    else:
        terminal.show_runs(runs, parent)
    return 0


@app.command
def settings(name: str = "", /, *, as_json: Annotated[bool, Parameter(name="--json", negative="")] = False) -> int:
    """List the settings of an experiment: default, what is allowed, what it means; or the experiments.

    Parameters
    ----------
    name
        The experiment; without one, the experiments are listed.
    as_json
        Print it as JSON.
    """
    from attnlab.experiments import registry

    if name in ("", "all"):
        summaries = {each: registry.find(each).experiment.SUMMARY for each in registry.EXPERIMENTS}
        if as_json:
            _print_json(summaries)
        else:
            terminal.show_experiments(summaries)
        return 0
    found = registry.find(name)
    options = found.config_class.options()
    if as_json:
        shown = [{"name": o.name, "default": o.default, "expected": o.expected, "comment": o.comment} for o in options]
        _print_json(shown)
    else:
        terminal.show_settings(name, found.experiment.SUMMARY, options)
    return 0


@app.command
def show(run: str, /, *, as_json: Annotated[bool, Parameter(name="--json", negative="")] = False) -> int:
    """Show a run: its claims, facts and parameters.

    Parameters
    ----------
    run
        A run folder, or the name of one in runs/.
    as_json
        Print it as JSON.
    """
    from attnlab.experiments.report import open_run

    folder = _find_run(run)
    report = open_run(folder)
    if as_json:
        _print_json({**report.config, "claims": [claim.to_mapping() for claim in report.claims]})
    else:
        terminal.show_report(report, folder)
    return 0 if report.passed else 1


@app.command(name="open")
def open_(run: str, /) -> int:
    """Open a run's report in the browser, or the gallery over all runs of a folder.

    Parameters
    ----------
    run
        A run folder, the name of one in runs/, or a folder that holds runs, such as runs/ itself.
    """
    import webbrowser

    if not _is_run(Path(run)) and _runs_in(Path(run)):
        from attnlab.experiments.gallery import write_gallery

        page = write_gallery(Path(run)).resolve()
    else:
        from attnlab.experiments.report import open_run

        folder = _find_run(run)
        open_run(folder)
        page = (folder / "report.html").resolve()
        if not page.is_file():
            raise CouldNotRun(f"{folder} has no report.html; was it moved away?")
    if webbrowser.open(page.as_uri()):
        terminal.say(f"opened {page}")
    else:
        terminal.say(f"no browser was found here; open this file in one: {page}")
    return 0


@app.command
def trace(run: str, /, *words: str, as_json: Annotated[bool, Parameter(name="--json", negative="")] = False) -> int:
    """Watch a run's model answer, step by step: probabilities, choice, and where each head looks.

    Parameters
    ----------
    run
        A run folder, or the name of one in runs/.
    words
        The input, such as cab; without one you are asked, until the input ends (Ctrl-D).
    as_json
        Print each trace as a line of JSON.
    """
    from attnlab.experiments import registry
    from attnlab.experiments.report import open_run

    report = open_run(_find_run(run))
    config = registry.config_of(report)
    expected = registry.traceable(report).prompt_words(config)

    def show_one(text: str) -> None:
        found = registry.trace_run(report, text)
        if as_json:
            _print_json(found.to_mapping(), indent=None)
        else:
            terminal.show_trace(found)

    if words:
        show_one(" ".join(words))
        return 0
    status = 0
    for text in terminal.ask(f"{expected} (an empty line ends): "):
        try:
            show_one(text)
        except WrongUsage as error:
            status = terminal.complain(str(error), 2)
    return 0 if sys.stdin.isatty() else status  # a person was asked again, a script was not


@app.command
def doctor(*, as_json: Annotated[bool, Parameter(name="--json", negative="")] = False) -> int:
    """Check this machine: versions, optional packages, processor, disk.

    Parameters
    ----------
    as_json
        Print the findings as JSON.
    """
    from attnlab.cli.doctor import examine

    findings = examine()
    if as_json:
        _print_json([finding._asdict() for finding in findings])
    else:
        terminal.show_findings(findings)
    return 3 if any(finding.state == "missing" for finding in findings) else 0


def _find_run(name: str) -> Path:
    """Take a path, or the name of a folder in runs/."""
    for path in (Path(name), _RUNS / name):
        if _is_run(path):
            return path
    here = Path(name)
    inside = _runs_in(here)
    if inside:
        raise WrongUsage(f"{name} is no run but holds some; name one of them: {', '.join(sorted(inside))}.")
    known = _runs_in(_RUNS)
    hint = did_you_mean(here.name, known) if known else "make one with: attnlab run sorting"
    raise CouldNotRun(f"there is no run in {name}; {hint}")


def _is_run(path: Path) -> bool:
    return os.path.isfile(path / "config.json")  # unlike Path, it answers False for a name too long


def _runs_in(parent: Path) -> list[str]:
    return [each.name for each in parent.iterdir() if _is_run(each)] if os.path.isdir(parent) else []


def _print_json(value: Any, *, indent: int | None = 2) -> None:
    sys.stdout.write(json.dumps(value, indent=indent) + "\n")  # in ASCII, which every encoding can say
