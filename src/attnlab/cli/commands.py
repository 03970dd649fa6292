"""The commands. Each parses, calls the library, shows; what takes long to import is imported inside."""

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import cyclopts
from cyclopts import App, Parameter

from attnlab import __version__
from attnlab.cli import terminal
from attnlab.configs import parse_settings
from attnlab.errors import AttnlabError, CouldNotRun, WrongUsage, did_you_mean
from attnlab.files import explained

__all__ = ["app", "main"]

_RUNS = Path("runs")

app = App(
    name="attnlab",
    help="The attention workbench: build, train, look at and take apart small transformers.",
    version=__version__,
    result_action="return_value",
    suppress_keyboard_interrupt=False,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status; nothing a user can cause ends in a traceback."""
    try:
        status = app(arguments, exit_on_error=False, print_error=False)
        sys.stdout.flush()
        return status if isinstance(status, int) else 0
    except cyclopts.CycloptsError as error:
        sentence = " ".join(str(error).split())
        return terminal.complain(sentence if sentence.endswith((".", "?")) else sentence + ".", 2)
    except AttnlabError as error:
        return terminal.complain(str(error), error.exit_status)
    except KeyboardInterrupt as interrupt:
        kept = f"; what it has so far is in {interrupt}, marked unfinished" if str(interrupt) else ""
        return terminal.complain(f"stopped by you{kept}.", 130)
    except BrokenPipeError:
        # Whoever read our output has heard enough (`attnlab list | head`).
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except MemoryError:
        return terminal.complain("there is not enough memory for this; try a smaller model, domain or batch.", 3)


@app.command
def run(
    name: str,
    /,
    *,
    seed: int = 0,
    set_: Annotated[list[str] | None, Parameter(name="--set", consume_multiple=True, negative="")] = None,
    out: Path | None = None,
    as_json: Annotated[bool, Parameter(name="--json", negative="")] = False,
    quiet: Annotated[bool, Parameter(name=["--quiet", "-q"], negative="")] = False,
) -> int:
    """Run an experiment from start to finish, and say which of its claims hold.

    Parameters
    ----------
    name
        The experiment, such as sorting; `attnlab settings sorting` lists what can be set.
    seed
        Of all randomness; the same seed gives the same weights, byte for byte.
    set_
        Settings, key=value, as many as you like.
    out
        The run folder to make; by default the first free one of runs/NAME, runs/NAME-2, …
    as_json
        Print the claims as JSON.
    quiet
        Show no progress.
    """
    from attnlab.experiments import registry
    from attnlab.experiments.folder import free_name

    wanted = parse_settings(set_ or [])
    registry.find(name)
    folder = out if out is not None else free_name(_RUNS, name)
    try:
        with terminal.progress(f"{name}, seed {seed}", is_quiet=quiet or as_json) as observer:
            report = registry.run(name, seed=seed, out=folder, settings=wanted, observer=observer)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(str(folder) if folder.exists() else "") from None
    if as_json:
        claims = [claim.to_mapping() for claim in report.claims]
        _print_json({"run": str(folder), "passed": report.passed, "claims": claims})
    else:
        terminal.show_claims(report.claims)
        terminal.say(f"report   {folder / 'report.html'}")
        terminal.say(f"look at  attnlab open {folder} · attnlab trace {folder} · attnlab show {folder}", is_quiet=True)
    return 0 if report.passed else 1


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

    if not name:
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
    """Open a run's report in the browser.

    Parameters
    ----------
    run
        A run folder, or the name of one in runs/.
    """
    import webbrowser

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
    expected = registry.find(report.experiment).experiment.prompt_words(config)

    def show_one(text: str) -> None:
        found = registry.trace_run(report, text)
        if as_json:
            _print_json(found.to_mapping(), indent=None)
        else:
            terminal.show_trace(found)

    if words:
        show_one(" ".join(words))
        return 0
    for text in terminal.ask(f"{expected} (Ctrl-D ends): "):
        try:
            show_one(text)
        except WrongUsage as error:
            terminal.complain(str(error), 2)
    return 0


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
        if (path / "config.json").exists():
            return path
    here = Path(name)
    inside = [each.name for each in here.iterdir() if (each / "config.json").exists()] if here.is_dir() else []
    if inside:
        raise WrongUsage(f"{name} is no run but holds some; name one of them: {', '.join(sorted(inside))}.")
    known = [each.name for each in _RUNS.iterdir() if (each / "config.json").exists()] if _RUNS.is_dir() else []
    hint = did_you_mean(here.name, known) if known else "make one with: attnlab run sorting"
    raise CouldNotRun(f"there is no run in {name}; {hint}")


def _print_json(value: Any, *, indent: int | None = 2) -> None:
    with explained(Path("standard output")):
        sys.stdout.write(json.dumps(value, indent=indent, ensure_ascii=False) + "\n")
