"""The page of all commands: docs/commands.md, written from the program and docs/commands.toml.

    python docs/commands.py           writes the page, and names what has no example

Sentences, arguments, options and choices are the program's own; the examples alone are kept in the
TOML file, and `tests/journeys/test_docs.py` types them.
"""

import inspect
import re
import shlex
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

from cyclopts import App
from cyclopts.argument import Argument

from attnlab.cli.commands import GROUPS, app

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "docs" / "commands.toml"
PAGE = ROOT / "docs" / "commands.md"
INTRODUCTION = """\
# Commands

<!-- search: command, commands, command line, cli, option, options, terminal -->

Every command, with its options and an example. `attnlab COMMAND -h` prints the same in the
terminal. `--json` is there wherever a program may read the answer; the
[exit status](systems.md#exit-statuses) says how it ended.

{overview}

`docs/commands.py` writes this page from the program.
"""


def commands(of: App, chain: str = "attnlab") -> Iterator[tuple[str, App]]:
    """Yield each command that can be typed, with its words, in the order of the program."""
    if of.default_command:
        yield chain, of
    for name in of:
        if not name.startswith("-"):
            yield from commands(of[name], f"{chain} {name}")


def first_sentence(text: str) -> str:
    """Return the first sentence of a docstring, on one line."""
    paragraph = " ".join(text.strip().partition("\n\n")[0].split())
    return re.split(r"(?<=[.!?]) (?=[A-Z`])", paragraph)[0]


def summary(command: App) -> str:
    """Return what a command does, in one sentence."""
    return first_sentence(inspect.getdoc(command.default_command) or command.help)


def names_of(argument: Argument) -> list[str]:
    """Return the ways to write an argument, `--out` and `-o`; a group of options has none."""
    return [name for name in argument.names if name != "*"]


def arguments(command: App) -> Iterator[Argument]:
    """Yield the arguments of a command, then its options, those that must be given first."""
    found = [a for a in command.assemble_argument_collection(parse_docstring=True) if names_of(a)]
    yield from sorted(found, key=lambda one: (is_option(one), not one.required))


def is_option(argument: Argument) -> bool:
    """Is it an option, `--out DIR`, and no argument that stands by its place?"""
    return argument.index is None


def synopsis(chain: str, command: App) -> str:
    """Return a command in one line: its arguments, the options it needs, and [options]."""
    words, can_more = [chain], False
    for argument in arguments(command):
        name = argument.name
        if argument.field_info.kind is argument.field_info.VAR_POSITIONAL:
            name += " …"
        if not is_option(argument):
            words.append(name if argument.required else f"[{name}]")
        elif argument.required:
            words.append(f"{name} {getattr(argument.hint, '__name__', 'value').upper()}")
        else:
            can_more = True
    return " ".join(words + ["[options]"] * can_more)


def meaning(argument: Argument) -> str:
    """Return what an argument is: its help, its choices, and its default or that it is required.

    Of a default that is off, nothing, or in the help already, nothing is added.
    """
    words = " ".join((argument.parameter.help or "").split())
    if choices := argument.get_choices():
        words += f" One of {', '.join(f'`{choice}`' for choice in choices)}."
    if argument.required:
        words += " Required."
    default = argument.field_info.default
    is_told = default is None or default is False or default == "" or "by default" in words
    if argument.show_default and not is_told:
        words += f" By default `{default}`."
    return words.replace("|", "\\|").strip()


def examples() -> dict[str, dict[str, str]]:
    """Return the example of each command, and why it is not typed by the tests, if it is not."""
    return tomllib.loads(EXAMPLES.read_text())


def faults() -> Iterator[str]:
    """Yield what is wrong: a command without an example of it, an example without a command, a
    command or an argument without words."""
    given = examples()
    known = dict(commands(app))
    for chain, command in known.items():
        example = given.get(chain, {}).get("example", "")
        if shlex.split(example)[: len(chain.split())] != chain.split():
            yield f"{chain}: no example of it in {EXAMPLES.name}"
        if not summary(command).endswith("."):
            yield f"{chain}: no sentence of what it does"
        for argument in arguments(command):
            if not argument.parameter.help:
                yield f"{chain}: no meaning of {argument.name}"
    yield from (f"{chain}: there is no such command" for chain in given if chain not in known)


def page() -> str:
    """Return the page."""
    known, given = dict(commands(app)), examples()
    lines = ["| to | commands |", "| --- | --- |"]
    sections = []
    for title, members in GROUPS.items():
        chains = [f"attnlab {_name(member)}" for member in members]
        ours = [one for one in known if any(f"{one} ".startswith(f"{chain} ") for chain in chains)]
        links = [f"[{one.removeprefix('attnlab ')}](#{_anchor(one)})" for one in ours]
        lines.append(f"| {title} | {', '.join(links)} |")
        sections += ["", f"## {title}"]
        for one in ours:
            sections += _section(one, known[one], given.get(one, {}))
    return INTRODUCTION.format(overview="\n".join(lines)) + "\n".join(sections) + "\n"


def _name(member: object) -> str:
    """Return the word of a command, a function or an app of its own."""
    if isinstance(member, App):
        return member.name[0]
    return member.__name__.rstrip("_").replace("_", "-")  # type: ignore[attr-defined]


def _anchor(chain: str) -> str:
    return chain.replace(" ", "-")


def _section(chain: str, command: App, given: dict[str, str]) -> list[str]:
    lines = ["", f"### {chain}", "", summary(command), "", f"`{synopsis(chain, command)}`", ""]
    if note := given.get("note"):
        lines.append(f"<!-- {note} -->")
    lines += ["```sh", given.get("example", "").strip(), "```", ""]
    lines += ["| argument or option | meaning |", "| --- | --- |"]
    for argument in arguments(command):
        names = ", ".join(f"`{name}`" for name in names_of(argument))
        lines.append(f"| {names} | {meaning(argument)} |")
    return lines


if __name__ == "__main__":
    PAGE.write_text(page())
    wrong = list(faults())
    print("\n".join(wrong) or f"wrote {PAGE.relative_to(ROOT)}")
    sys.exit(min(len(wrong), 1))
