"""The commands. Each parses, calls the library, shows; what takes long to import is imported inside."""

import importlib.util
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Parameter

from attnlab import __version__
from attnlab.cli import terminal
from attnlab.cli.answers import show_trace
from attnlab.cli.asking import AS_IT_IS, ForPretrained, is_foreign, of_heads, open_model, put, refuse_options
from attnlab.cli.edit import edit, edits_
from attnlab.cli.failures import Interrupts, explain, leaving
from attnlab.cli.find import find
from attnlab.cli.finding import RUNS, find_run
from attnlab.cli.look import look
from attnlab.cli.pages import open_
from attnlab.cli.parsing import whole_number
from attnlab.cli.progress import progress
from attnlab.cli.running import print_json, run_all, run_one, show_run, tell_finished
from attnlab.cli.sweep import search, show_search, show_sweep, sweep
from attnlab.configs import parse_settings
from attnlab.errors import WrongUsage

if TYPE_CHECKING:
    from attnlab.look.questions import Question

__all__ = ["app", "main"]


app = App(
    name="attnlab",
    help="The attention workbench: build, train, look at and take apart small transformers.",
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
    """Run one command and return its exit status; nothing a user can cause ends in a traceback."""
    terminal.prepare_streams()
    with Interrupts() as interrupts:
        try:
            status = app(arguments, exit_on_error=False, print_error=False)
            sys.stdout.flush()
            return status if isinstance(status, int) else 0
        except BaseException as error:
            # An import that the interrupt broke may raise anything at all.
            if interrupts.came is not None and not isinstance(error, KeyboardInterrupt):
                error = interrupts.came
            status = explain(error)
            if status is None:
                raise
            return status
        finally:
            terminal.let_go_of_streams()


@app.command
def run(
    name: str,
    /,
    *,
    seed: Annotated[int, Parameter(converter=whole_number)] = 0,
    seeds: Annotated[int | None, Parameter(converter=whole_number)] = None,
    stop_when_solved: Annotated[bool, Parameter(negative="")] = False,
    layout: Literal["auto", "lanes", "batched", "vmap", "solo"] = "auto",
    engine: Literal["auto", "eager", "compiled"] = "auto",
    set_: Annotated[list[str] | None, Parameter(name="--set", consume_multiple=True, negative="")] = None,
    out: Path | None = None,
    quick: Annotated[bool, Parameter(negative="")] = False,
    resume: Annotated[bool, Parameter(negative="")] = False,
    log: Annotated[list[str] | None, Parameter(consume_multiple=True, negative="")] = None,
    claims: Annotated[bool, Parameter(negative="")] = False,
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
    seeds
        Train so many at once, the first of them with --seed, and show what only many of them can.
    stop_when_solved
        Of many: let each end as soon as it can do the task.
    layout
        Of many: how they lie side by side; auto takes what is quickest.
    engine
        Whether steps are compiled; auto compiles where that pays.
    set_
        Settings, key=value, as many as you like; for all of them, experiment.key=value.
    out
        The run folder to make; by default the first free one of runs/NAME, runs/NAME-2, …, and with --seeds 100 of
        runs/NAME-100-seeds, runs/NAME-100-seeds-2, … For all, the folder to make them in.
    quick
        Smaller settings that show the same in seconds.
    resume
        Go on with the run in --out that was stopped, if it is this one; `attnlab resume RUN` needs no more than that.
    log
        Who gets the metrics of a run of one seed too, in files inside its folder: tensorboard, mlflow, or both.
    claims
        For all: print every claim with what was measured, too. One experiment always does.
    as_json
        Print the claims as JSON.
    quiet
        Show no progress.
    """
    from attnlab.experiments import registry
    from attnlab.experiments.folder import Finished
    from attnlab.train.distributed import is_launched, is_writer
    from attnlab.train.loggers import check_loggers

    if is_launched() and (name == "all" or seeds is not None):
        raise WrongUsage("torchrun shares out one training: name one experiment, and no --seeds.")
    if log == []:
        raise WrongUsage("--log needs the name of a logger: tensorboard, mlflow, or both.")
    check_loggers(log or ())
    if log is not None and (name == "all" or seeds is not None):
        raise WrongUsage("--log is for a run of one seed: name one experiment, and no --seeds.")
    if set_ == []:
        raise WrongUsage("--set needs at least one key=value; `attnlab settings` lists what can be set.")
    wanted = parse_settings(set_ or [])
    if resume and (out is None or name == "all"):
        raise WrongUsage("--resume needs --out and the folder of one run; `attnlab list` shows which are unfinished.")
    if stop_when_solved and seeds is None:
        raise WrongUsage("--stop-when-solved is for many at once; say how many with --seeds.")
    options: dict[str, Any] = {"seed": seed, "quick": quick, "layout": layout, "engine": engine}
    try:
        if seeds is not None:
            from attnlab.cli.population import run_population

            options |= {"resume": resume, "stop_when_solved": stop_when_solved, "as_json": as_json, "quiet": quiet}
            return run_population(name, out, wanted, seeds=seeds, parent=RUNS, **options)
        if name == "all":
            return run_all(out or RUNS, wanted, as_json=as_json, quiet=quiet, claims=claims, **options)
        registry.find(name)
        is_shown = is_writer()
        options |= {"resume": resume, "loggers": log or ()}
        report = run_one(name, out, wanted, parent=RUNS, quiet=quiet or as_json or not is_shown, **options)
        return show_run(report, as_json=as_json) if is_shown else 0
    except Finished:
        assert out is not None
        return tell_finished(out, as_json=as_json)
    except WrongUsage as error:
        several = [f"{key}={value}" for key, value in wanted.items() if ".." in value or "," in value]
        if not several or name == "all":
            raise
        raise WrongUsage(
            f"{error} Several values make a sweep: attnlab sweep {name} --set {' '.join(several)}"
        ) from None


@app.command(name="resume")
def resume_(
    run: str,
    /,
    *,
    workers: Annotated[int | None, Parameter(converter=whole_number)] = None,
    as_json: Annotated[bool, Parameter(name="--json", negative="")] = False,
    quiet: Annotated[bool, Parameter(name=["--quiet", "-q"], negative="")] = False,
) -> int:
    """Go on with a run that was stopped, whatever stopped it; it ends in the bytes it would have ended in.

    Parameters
    ----------
    run
        A run folder, or the name of one in runs/.
    workers
        Of a sweep or a search: processes on this machine that share the rest; whoever began it, if nothing is said.
    as_json
        Print the claims as JSON.
    quiet
        Show no progress.
    """
    from attnlab.experiments.folder import is_finished
    from attnlab.experiments.report import Report
    from attnlab.experiments.resuming import resume
    from attnlab.experiments.search import Search
    from attnlab.experiments.sweeps import Sweep
    from attnlab.train.distributed import is_writer

    folder = find_run(run)
    if is_finished(folder):
        return tell_finished(folder, as_json=as_json)
    is_shown = is_writer()
    with leaving(folder), progress(str(folder), is_quiet=quiet or as_json or not is_shown) as observer:
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
def list_(parent: Path = RUNS, /, *, as_json: Annotated[bool, Parameter(name="--json", negative="")] = False) -> int:
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
        print_json(runs)
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
            print_json(summaries)
        else:
            terminal.show_experiments(summaries)
        return 0
    found = registry.find(name)
    options = found.config_class.options()
    if as_json:
        shown = [{"name": o.name, "default": o.default, "expected": o.expected, "comment": o.comment} for o in options]
        print_json(shown)
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
    from attnlab.experiments.folder import kind_of
    from attnlab.experiments.population import open_run
    from attnlab.experiments.search import open_search
    from attnlab.experiments.sweeps import open_sweep

    folder = find_run(run)
    report = open_run(folder)
    kind = kind_of(report.config)
    if as_json:
        print_json({**report.config, "claims": [claim.to_mapping() for claim in report.claims]})
    elif kind == "sweep":
        show_sweep(open_sweep(folder), as_json=False)
    elif kind == "search" and importlib.util.find_spec("optuna") is not None:  # which reads the trials
        show_search(open_search(folder), as_json=False)
    else:
        terminal.show_report(report, folder)
    return report.exit_status


@app.command
def trace(
    run: str,
    /,
    *words: str,
    head: Annotated[list[str] | None, Parameter(consume_multiple=True, negative="")] = None,
    how: ForPretrained = AS_IT_IS,
    as_json: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> int:
    """Watch a model answer, step by step: probabilities, choice, and where each head looks.

    Parameters
    ----------
    run
        A run folder, or the name of one in runs/; or a pretrained model: a folder, a GGUF file or a hub id.
    words
        The input, such as cab, or a text in quotes; without one you are asked, until the input ends (Ctrl-D).
    head
        Show these heads alone: LAYER.HEAD, such as 3.5, or PART.HEAD.
    as_json
        Print each trace as a line of JSON.
    """
    answer, expected = _answerer(run, how, as_json=as_json)

    def show_one(text: str) -> None:
        question = answer(text)
        found = question.trace()
        if head is not None:
            found = of_heads(found, question.model, head)
        if as_json:
            print_json(found.to_mapping(), indent=None)
        else:
            show_trace(found)

    if words:
        show_one(" ".join(words))
        return 0
    status, text = 0, None
    for text in terminal.ask(f"{expected} (an empty line ends): "):
        try:
            show_one(text)
        except WrongUsage as error:
            status = terminal.complain(str(error), 2)
    if text is None and not sys.stdin.isatty():
        terminal.complain(f"no input came, so there is nothing to trace; after the run, type {expected}.", status)
    return 0 if sys.stdin.isatty() else status  # a person was asked again, a script was not


def _answerer(run: str, how: ForPretrained, *, as_json: bool) -> "tuple[Callable[[str], Question], str]":
    """Open whom a person asks: return what puts a text to it, and what it expects, in words."""
    if is_foreign(run):
        model = open_model(run, head=how.ends_in)
        return lambda text: put(model, [text], how), "a text"
    from attnlab.experiments import registry
    from attnlab.experiments.population import open_run

    refuse_options(run, how)
    folder = find_run(run)
    report = open_run(folder)
    expected = registry.askable(report).prompt_words(registry.config_of(report))
    typical = dict(report.document["facts"]).get("most typical")
    if typical is not None and not as_json:  # a population, of which one member answers
        note = f"{typical} answers, the most typical member; another one: attnlab trace {folder / 'SEED'} …"
        terminal.say(note, is_quiet=True)
    return lambda text: registry.ask_run(report, text), expected


@app.command
def doctor(
    model: str | None = None,
    /,
    *,
    ends_in: str | None = None,
    as_json: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> int:
    """Check this machine: versions, optional packages, processor, disk; or a pretrained model: what of it can be seen.

    Parameters
    ----------
    model
        A pretrained model: a folder, a GGUF file or a hub id. Without one, the machine is checked.
    ends_in
        What the model shall end in: none, causal-lm, masked-lm, …; without it, what its files say.
    as_json
        Print the findings as JSON.
    """
    if model is not None:
        return _examine_model(model, ends_in, as_json=as_json)
    if ends_in is not None:
        raise WrongUsage("--ends-in is of a model; name one.")
    from attnlab.cli.doctor import examine

    findings = examine()
    if as_json:
        print_json([finding._asdict() for finding in findings])
    else:
        terminal.show_findings(findings)
    return 3 if any(finding.state == "missing" for finding in findings) else 0


def _examine_model(name: str, ends_in: str | None, *, as_json: bool) -> int:
    from attnlab.cli.seams import examine_model, show_model

    if not is_foreign(name):
        raise WrongUsage(f"{find_run(name)} is a run of attnlab's own, all of which can be seen: attnlab show {name}")
    found = examine_model(name, ends_in)
    if as_json:
        print_json(found)
    else:
        show_model(found)
    return 0
