"""The commands: each parses its options, calls the library and shows the result.

Modules that take long to import are imported inside the functions.
"""

import sys
from collections.abc import Callable, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from cyclopts import App, Group, MissingArgumentError
from rich.text import Text

from attnlab import __version__
from attnlab.cli import terminal
from attnlab.cli.answers import show_trace
from attnlab.cli.census import census
from attnlab.cli.compile import compile_
from attnlab.cli.doctor import doctor
from attnlab.cli.edit import edit, edits_
from attnlab.cli.failures import Interrupts, explain
from attnlab.cli.look import look
from attnlab.cli.options import NO_OPTIONS, AsJson, PretrainedOptions, Strings
from attnlab.cli.pages import open_
from attnlab.cli.patch import patch
from attnlab.cli.prompts import only_heads, open_prompts
from attnlab.cli.prove import prove
from attnlab.cli.resolve_run import EXPERIMENTS, RUNS, find_folder, find_run, is_run, runs_there
from attnlab.cli.results import show_result
from attnlab.cli.runs import resume_, run, sweep, tune
from attnlab.cli.search import search
from attnlab.cli.truth import truth
from attnlab.cli.why import why
from attnlab.errors import CouldNotRun, WrongUsage, did_you_mean, not_none, typed

app = App(
    name="attnlab",
    help="The attention workbench: build, train, inspect and edit small transformers.",
    version=__version__,
    result_action="return_value",
    console=terminal.SafeConsole(),
    suppress_keyboard_interrupt=False,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status; no mistake of a user ends in a traceback."""
    terminal.prepare_streams()
    with Interrupts() as interrupts:
        try:
            words = sys.argv[1:] if arguments is None else arguments
            status = app(words, exit_on_error=False, print_error=False)
            sys.stdout.flush()
            return status if isinstance(status, int) else 0
        except BaseException as error:
            if isinstance(error, MissingArgumentError):
                error = _what_to_type(error)
            # An import that an interrupt breaks off may raise any exception.
            if interrupts.received is not None and not isinstance(error, KeyboardInterrupt):
                error = interrupts.received
            status = explain(error)
            if status is None:
                raise
            return status
        finally:
            terminal.release_streams()


def _what_to_type(error: MissingArgumentError) -> Exception:
    """Explain a missing name or required option, and list the possible names."""
    argument = error.argument
    missing = argument.name if argument else ""
    example = f"as in: attnlab {' '.join(error.command_chain or ())} sorting"
    if (error.command_chain or ())[:1] == ("course",) and missing == "NAME":
        return WrongUsage(
            f"name an exercise, {example.replace('sorting', 'attention')}; attnlab course list has "
            "them"
        )
    if missing == "RUN":
        return WrongUsage(f"name a run, {example}; {runs_there()}")
    if missing == "NAME":
        return WrongUsage(f"name an experiment, {example}; {did_you_mean('', EXPERIMENTS)}")
    command = " ".join(error.command_chain or ())
    meaning = _help_of(error, missing)
    return WrongUsage(f"{command} needs a value for {missing}{meaning}; see attnlab {command} -h")


def _help_of(error: MissingArgumentError, name: str) -> str:
    """Return the help text of one argument of a command, after a colon."""
    for argument in not_none(error.app).assemble_argument_collection(parse_docstring=True):
        if argument.name == name and argument.parameter.help:
            sentence, *_ = " ".join(argument.parameter.help.split()).rstrip(".").split(". ")
            return f": {sentence[:1].lower()}{sentence[1:]}"
    return ""


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

    parent = find_folder(str(parent))
    runs = list_runs(parent)
    if as_json:
        terminal.print_json(runs)
        return 0
    terminal.show_runs(runs, parent)
    for folder in sorted(parent.iterdir()):
        if folder.is_dir() and not is_run(folder) and (inside := list_runs(folder)):
            terminal.say(f"{len(inside)} more   attnlab list {typed(folder)}", is_quiet=True)
    return 0


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
    from attnlab.experiments.sweeps.axes import typed_value

    if name in ("", "all"):
        summaries = {key: entry.summary for key, entry in registry.experiments().items()}
        if as_json:
            terminal.print_json(summaries)
            return 0
        terminal.show_table(["experiment", "what it shows"], summaries.items())
        first = next(iter(summaries))
        terminal.say(f"attnlab settings {first} lists the settings of one", is_quiet=True)
        return 0
    config_class = registry.find(name).config_class
    options = config_class.options()
    parts = ("name", "default", "expected", "comment")
    rows = [[getattr(option, part) for part in parts] for option in options]
    if as_json:
        terminal.print_rows(parts, rows)
        return 0
    title = Text(f"{name}: {registry.experiments()[name].summary}", style="bold")
    terminal.output().print(title)
    cells = [[key, typed_value(default), *more] for key, default, *more in rows]
    terminal.show_table(["setting", "default", "allowed", "meaning"], cells)
    first = f"{rows[0][0]}={rows[0][1]}"
    terminal.say(f"attnlab run {name} --set {first} …", is_quiet=True)
    if config_class.FULL:
        full = " ".join(f"{key}={typed_value(value)}" for key, value in config_class.FULL.items())
        terminal.say(f"attnlab run {name} --full starts from {full}", is_quiet=True)
    return 0


def show(run: str, /, *, as_json: AsJson = False) -> int:
    """Show a run: its claims, facts and parameters.

    Parameters
    ----------
    run
        A run folder, or the name of one in runs/.
    as_json
        Print the run as JSON.
    """
    from attnlab.experiments.folder import run_kind
    from attnlab.experiments.opener import open
    from attnlab.experiments.population import open_run_or_member
    from attnlab.experiments.report import Report

    folder = find_run(run)
    report = open_run_or_member(folder)
    if as_json:
        claims = [claim.to_mapping() for claim in report.claims]
        terminal.print_json({**report.config, "claims": claims})
        return report.exit_status
    result: Any = report
    if run_kind(report.config) in ("sweep", "search"):
        result = open(folder)
    if isinstance(result, Report):
        terminal.show_report(report, folder)
    else:
        show_result(result, as_json=False, in_full=True)
    return report.exit_status


def trace(
    run: str,
    /,
    *words: str,
    head: Strings = None,
    model_options: PretrainedOptions = NO_OPTIONS,
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
    prompts = open_prompts(run, model_options)
    if prompts.note and not as_json:
        terminal.say(prompts.note, is_quiet=True)

    def show_one(text: str) -> None:
        question = prompts.ask(text)
        trace = question.trace()
        if head is not None:
            trace = only_heads(trace, question.model, head)
        if as_json:
            terminal.print_json(trace.to_mapping(), indent=None)
        else:
            show_trace(trace)

    if not words:
        return _trace_each_line(show_one, prompts.expected)
    show_one(" ".join(words))
    return 0


def _trace_each_line(show_one: Callable[[str], None], expected: str) -> int:
    """Trace every line of standard input, also after a wrong one, and return the exit status."""
    status, text = 0, None
    for text in terminal.read_inputs(f"{expected} (an empty line ends): "):
        try:
            show_one(text)
        except WrongUsage as error:
            status = terminal.complain(str(error), 2)
    is_person = sys.stdin.isatty()
    if text is None and not is_person:
        raise WrongUsage(
            f"type an input after the run, or write inputs to standard input: {expected}."
        )
    return 0 if is_person else status  # a person could correct the input, a script could not


_ADDED = {entry.name: entry for entry in entry_points(group="attnlab.commands")}
"""The commands of other packages, looked up once."""


def _load_command(name: str, package: str) -> Callable[..., Any] | App:
    """Return a command that another package adds, or one that says how to install it."""
    if name in _ADDED:
        command: Callable[..., Any] | App = _ADDED[name].load()
        return command

    def missing(*_: str) -> int:
        raise CouldNotRun(f"attnlab {name} needs the package {package}: pip install {package}")

    missing.__name__ = name
    missing.__doc__ = f"Not installed here: pip install {package}."
    return missing


GROUPS = {
    "Train": (run, resume_, sweep, tune, settings),
    "Read results": (list_, show, open_),
    "Look inside a model, and edit it": (trace, look, why, patch, search, census, edit, edits_),
    "Write a program, and prove": (compile_, prove, truth),
    "Learn and teach": (
        _load_command("course", "attnlab-course"),
        _load_command("grade", "attnlab-course"),
        _load_command("grade-one", "attnlab-course"),
        _load_command("grade-send", "attnlab-course"),
    ),
    "The browser and this machine": (_load_command("lab", "attnlab-lab"), doctor),
}
for _number, (_title, _commands) in enumerate(GROUPS.items()):
    _group = Group(_title, sort_key=_number)
    for _command in _commands:
        if isinstance(_command, App):
            _command.group = _group
            app.command(_command)
        else:
            _name = _command.__name__.rstrip("_").replace("_", "-")
            app.command(_command, name=_name, group=_group)
