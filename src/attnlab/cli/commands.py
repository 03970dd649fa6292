"""The commands: each parses its options, calls the library and shows the result.

Modules that take long to import are imported inside the functions.
"""

import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from cyclopts import App

from attnlab import __version__
from attnlab.cli import terminal
from attnlab.cli.answers import show_trace
from attnlab.cli.edit import edit, edits_
from attnlab.cli.failures import Interrupts, explain, writing_to
from attnlab.cli.find import find
from attnlab.cli.look import look
from attnlab.cli.options import (
    AsJson,
    Layout,
    OptionalWholeNumber,
    Quiet,
    Settings,
    Strings,
    Switch,
    WholeNumber,
)
from attnlab.cli.pages import open_
from attnlab.cli.progress import progress
from attnlab.cli.prompts import (
    NO_OPTIONS,
    PretrainedOptions,
    is_pretrained,
    only_heads,
    open_model,
    prompt_model,
    refuse_pretrained_options,
)
from attnlab.cli.resolve_run import RUNS, find_run
from attnlab.cli.runs import print_json, run_all, run_one, show_finished, show_run
from attnlab.cli.sweep import search, show_search, show_sweep, sweep
from attnlab.configs import parse_settings
from attnlab.errors import WrongUsage

if TYPE_CHECKING:
    from attnlab.look.questions import Question

__all__ = ["app", "main"]


app = App(
    name="attnlab",
    help="The attention workbench: build, train, inspect and edit small transformers.",
    version=__version__,
    result_action="return_value",
    console=terminal.Writer(),
    suppress_keyboard_interrupt=False,
)


app.command(look)
app.command(edit)
app.command(edits_, name="edits")
app.command(find)
app.command(sweep)
app.command(search)
app.command(open_, name="open")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status; no mistake of a user ends in a traceback."""
    terminal.prepare_streams()
    with Interrupts() as interrupts:
        try:
            status = app(arguments, exit_on_error=False, print_error=False)
            sys.stdout.flush()
            return status if isinstance(status, int) else 0
        except BaseException as error:
            # An import that an interrupt breaks off may raise any exception.
            if interrupts.received is not None and not isinstance(error, KeyboardInterrupt):
                error = interrupts.received
            status = explain(error)
            if status is None:
                raise
            return status
        finally:
            terminal.release_streams()


@app.command
def run(
    name: str,
    /,
    *,
    seed: WholeNumber = 0,
    seeds: OptionalWholeNumber = None,
    stop_when_solved: Switch = False,
    layout: Layout = "auto",
    engine: Literal["auto", "eager", "compiled"] = "auto",
    set_: Settings = None,
    out: Path | None = None,
    quick: Switch = False,
    resume: Switch = False,
    log: Strings = None,
    claims: Switch = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> int:
    """Run one experiment, or all of them, and report which claims hold.

    Parameters
    ----------
    name
        The experiment, such as sorting, or all. `attnlab settings` lists the experiments, `attnlab
        settings sorting` the settings of one.
    seed
        The seed of all randomness; the same seed gives the same weights, byte for byte.
    seeds
        How many models to train at once, the first with --seed; the report then also shows what
        only many seeds can show.
    stop_when_solved
        With --seeds: stop training each model as soon as it solves the task.
    layout
        With --seeds: how the population is laid out in memory; auto chooses the fastest.
    engine
        Whether training steps are compiled; auto compiles where that pays.
    set_
        Settings as key=value, any number of them; for all, experiment.key=value.
    out
        The run folder to create; by default the first free one of runs/NAME, runs/NAME-2, …, and
        with --seeds 100 of runs/NAME-100-seeds, runs/NAME-100-seeds-2, … For all, the folder to
        create the run folders in.
    quick
        Smaller settings that show the same in seconds.
    resume
        Resume the unfinished run in --out, which must have the same settings; `attnlab resume RUN`
        needs only its folder.
    log
        Loggers that also receive the metrics of a run with one seed, in files inside its folder:
        tensorboard, mlflow, or both.
    claims
        For all: also print every claim with its measurement, as a single experiment always does.
    as_json
        Print the claims as JSON.
    quiet
        Hide the progress.
    """
    from attnlab.experiments import registry
    from attnlab.experiments.folder import Finished
    from attnlab.train.distributed import is_writer

    _check_run_options(name, seeds, stop_when_solved, set_, out, resume, log)
    settings = parse_settings(set_ or [])
    options: dict[str, Any] = {"seed": seed, "quick": quick, "layout": layout, "engine": engine}
    try:
        if seeds is not None:
            from attnlab.cli.population import run_population

            options |= {"resume": resume, "stop_when_solved": stop_when_solved}
            options |= {"as_json": as_json, "quiet": quiet}
            return run_population(name, out, settings, seeds=seeds, parent=RUNS, **options)
        if name == "all":
            options |= {"as_json": as_json, "quiet": quiet, "claims": claims}
            return run_all(out or RUNS, settings, **options)
        registry.find(name)
        is_shown = is_writer()
        options |= {"resume": resume, "loggers": log or ()}
        is_quiet = quiet or as_json or not is_shown
        report = run_one(name, out, settings, parent=RUNS, quiet=is_quiet, **options)
        return show_run(report, as_json=as_json) if is_shown else 0
    except Finished:
        assert out is not None
        return show_finished(out, as_json=as_json)
    except WrongUsage as error:
        raise _with_sweep_hint(error, name, settings) from None


def _check_run_options(
    name: str,
    seeds: int | None,
    stop_when_solved: bool,
    set_: list[str] | None,
    out: Path | None,
    resume: bool,
    log: list[str] | None,
) -> None:
    """Raise `WrongUsage` for options of `run` that do not go together."""
    from attnlab.train.distributed import is_launched
    from attnlab.train.loggers import check_loggers

    is_many = name == "all" or seeds is not None
    if is_launched() and is_many:
        raise WrongUsage("torchrun distributes one training: name one experiment, without --seeds.")
    if log == []:
        raise WrongUsage("--log needs the name of a logger: tensorboard, mlflow, or both.")
    check_loggers(log or ())
    if log is not None and is_many:
        raise WrongUsage("--log is for a run of one seed: name one experiment, without --seeds.")
    if set_ == []:
        raise WrongUsage(
            "--set needs at least one key=value; `attnlab settings` lists the settings."
        )
    if resume and (out is None or name == "all"):
        raise WrongUsage(
            "--resume needs --out with the folder of one run; `attnlab list` shows the unfinished "
            "runs."
        )
    if stop_when_solved and seeds is None:
        raise WrongUsage("--stop-when-solved needs --seeds, the number of models to train.")


def _with_sweep_hint(error: WrongUsage, name: str, settings: Mapping[str, str]) -> WrongUsage:
    """Return the error, with the command for a sweep where a setting has several values."""
    several = [f"{key}={value}" for key, value in settings.items() if ".." in value or "," in value]
    if not several or name == "all":
        return error
    return WrongUsage(
        f"{error} Several values make a sweep: attnlab sweep {name} --set {' '.join(several)}"
    )


@app.command(name="resume")
def resume_(
    run: str,
    /,
    *,
    workers: OptionalWholeNumber = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> int:
    """Resume an interrupted run; it ends with the same bytes as an uninterrupted one.

    Parameters
    ----------
    run
        A run folder, or the name of one in runs/.
    workers
        For a sweep or a search: how many processes on this machine share the remaining work; by
        default as many as at its start.
    as_json
        Print the claims as JSON.
    quiet
        Hide the progress.
    """
    from attnlab.experiments.folder import is_finished
    from attnlab.experiments.report import Report
    from attnlab.experiments.resumption import resume
    from attnlab.experiments.search import Search
    from attnlab.experiments.sweeps import Sweep
    from attnlab.train.distributed import is_writer

    folder = find_run(run)
    if is_finished(folder):
        return show_finished(folder, as_json=as_json)
    is_shown = is_writer()
    is_quiet = quiet or as_json or not is_shown
    with writing_to(folder), progress(str(folder), is_quiet=is_quiet) as observer:
        found = resume(folder, workers=workers, observer=observer)
    if not is_shown:
        return 0
    if isinstance(found, Report):
        return show_run(found, as_json=as_json)
    if isinstance(found, Sweep):
        return show_sweep(found, as_json=as_json)
    if isinstance(found, Search):
        return show_search(found, as_json=as_json)
    from attnlab.cli.population import show_population

    return show_population(found, as_json=as_json)


@app.command(name="list")
def list_(parent: Path = RUNS, /, *, as_json: AsJson = False) -> int:
    """List the runs in a folder.

    Parameters
    ----------
    parent
        The folder that holds the run folders.
    as_json
        Print the list as JSON.
    """
    from attnlab.experiments.folder import list_runs

    runs = list_runs(parent)
    if as_json:
        print_json(runs)
    else:
        terminal.show_runs(runs, parent)
    return 0


@app.command
def settings(name: str = "", /, *, as_json: AsJson = False) -> int:
    """List the experiments, or the settings of one: default, allowed values, meaning.

    Parameters
    ----------
    name
        The experiment; without it, the experiments are listed.
    as_json
        Print the list as JSON.
    """
    from attnlab.experiments import registry

    if name in ("", "all"):
        summaries = {each: registry.find(each).experiment.SUMMARY for each in registry.EXPERIMENTS}
        if as_json:
            print_json(summaries)
        else:
            terminal.show_experiments(summaries)
        return 0
    found = registry.find(name)
    options = found.config_class.options()
    if as_json:
        shown = [
            {"name": o.name, "default": o.default, "expected": o.expected, "comment": o.comment}
            for o in options
        ]
        print_json(shown)
    else:
        terminal.show_settings(name, found.experiment.SUMMARY, options)
    return 0


@app.command
def show(run: str, /, *, as_json: AsJson = False) -> int:
    """Show a run: its claims, facts and parameters.

    Parameters
    ----------
    run
        A run folder, or the name of one in runs/.
    as_json
        Print the run as JSON.
    """
    from attnlab.experiments.folder import kind_of
    from attnlab.experiments.population import open_run
    from attnlab.experiments.search import open_search
    from attnlab.experiments.sweeps import open_sweep

    folder = find_run(run)
    report = open_run(folder)
    kind = kind_of(report.config)
    can_read_trials = importlib.util.find_spec("optuna") is not None
    if as_json:
        print_json({**report.config, "claims": [claim.to_mapping() for claim in report.claims]})
    elif kind == "sweep":
        show_sweep(open_sweep(folder), as_json=False)
    elif kind == "search" and can_read_trials:
        show_search(open_search(folder), as_json=False)
    else:
        terminal.show_report(report, folder)
    return report.exit_status


@app.command
def trace(
    run: str,
    /,
    *words: str,
    head: Strings = None,
    how: PretrainedOptions = NO_OPTIONS,
    as_json: AsJson = False,
) -> int:
    """Trace an answer step by step: probabilities, the choice, and where each head attends.

    Parameters
    ----------
    run
        A run folder, or the name of one in runs/; or a pretrained model: a folder, a GGUF file or a
        hub id.
    words
        The input, such as cab, or a text in quotes. Without it, inputs are read line by line until
        the end of input (Ctrl-D).
    head
        Heads to show, no others: LAYER.HEAD, such as 3.5, or PART.HEAD.
    as_json
        Print each trace as one line of JSON.
    """
    ask, expected = _open_for_questions(run, how, as_json=as_json)

    def show_one(text: str) -> None:
        question = ask(text)
        found = question.trace()
        if head is not None:
            found = only_heads(found, question.model, head)
        if as_json:
            print_json(found.to_mapping(), indent=None)
        else:
            show_trace(found)

    if words:
        show_one(" ".join(words))
        return 0
    status, text = 0, None
    for text in terminal.read_inputs(f"{expected} (an empty line ends): "):
        try:
            show_one(text)
        except WrongUsage as error:
            status = terminal.complain(str(error), 2)
    is_person = sys.stdin.isatty()
    if text is None and not is_person:
        terminal.complain(
            f"no input came, so there is nothing to trace; after the run, type {expected}.", status
        )
    return 0 if is_person else status  # a person could correct the input, a script could not


def _open_for_questions(
    run: str, how: PretrainedOptions, *, as_json: bool
) -> "tuple[Callable[[str], Question], str]":
    """Open a run or a model: return a function that asks it a text, and words for what it reads."""
    if is_pretrained(run):
        model = open_model(run, head=how.ends_in)
        return lambda text: prompt_model(model, [text], how), "a text"
    from attnlab.experiments import registry
    from attnlab.experiments.population import open_run

    refuse_pretrained_options(run, how)
    folder = find_run(run)
    report = open_run(folder)
    expected = registry.askable(report).prompt_words(registry.config_of(report))
    typical = dict(report.document["facts"]).get("most typical")
    if typical is not None and not as_json:
        terminal.say(
            f"{typical} answers, the most typical model of the population; for another: attnlab "
            f"trace {folder / 'SEED'} …",
            is_quiet=True,
        )
    return lambda text: registry.ask_run(report, text), expected


@app.command
def doctor(
    model: str | None = None, /, *, ends_in: str | None = None, as_json: AsJson = False
) -> int:
    """Check this machine, or how much of a pretrained model can be recorded and edited.

    Parameters
    ----------
    model
        A pretrained model: a folder, a GGUF file or a hub id. Without it, this machine is checked:
        versions, optional packages, processor, disk.
    ends_in
        The model's output layer: none, causal-lm, masked-lm, …; by default the one its files name.
    as_json
        Print the findings as JSON.
    """
    if model is not None:
        return _examine_model(model, ends_in, as_json=as_json)
    if ends_in is not None:
        raise WrongUsage("--ends-in is for a model; name one.")
    from attnlab.cli.doctor import examine

    findings = examine()
    if as_json:
        print_json([finding._asdict() for finding in findings])
    else:
        terminal.show_findings(findings)
    return 3 if any(finding.state == "missing" for finding in findings) else 0


def _examine_model(name: str, ends_in: str | None, *, as_json: bool) -> int:
    from attnlab.cli.model_doctor import examine_model, show_model

    if not is_pretrained(name):
        raise WrongUsage(
            f"{find_run(name)} is a run of attnlab, which has every site: attnlab show {name}"
        )
    found = examine_model(name, ends_in)
    if as_json:
        print_json(found)
    else:
        show_model(found)
    return 0
