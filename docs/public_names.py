"""The list of public names, made by the program: `make public-names` writes tests/public_names.txt.

Public are the names of the face (`__init__.pyi`) and those that the reference of the site has, with
their parameters; the commands with their options; the settings of experiments; the groups of entry
points; the files of a run folder.
`breaks` compares two such lists by the promise of docs/compatibility.md.
"""

import importlib
import inspect
import itertools
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from cyclopts import App

import attnlab
from attnlab.cli.commands import app
from attnlab.experiments import registry

ROOT = Path(__file__).parents[1]
LIST = ROOT / "tests" / "public_names.txt"
PROMISE = ROOT / "docs" / "compatibility.md"
CHANGES = ROOT / "CHANGELOG.md"
ENTRY = re.compile(r"^\.\. auto(function|class|module):: (\S+)(\n +:members:.*)?", re.M)


def public_names() -> list[str]:
    """Return every public name, one line each; functions and classes with their parameters."""
    face = [called(f"attnlab.{name}", getattr(attnlab, name)) for name in attnlab.__all__]
    names = [line for kind, name, members in entries() for line in lines_of(kind, name, members)]
    others = (commands(app), settings(), entry_point_groups(), run_files())
    return sorted({*face, *names, *itertools.chain.from_iterable(others)})


def entries() -> list[tuple[str, str, str]]:
    """Return the entries of the reference: kind, name, and which of its members are public too."""
    pages = sorted((ROOT / "docs" / "reference").glob("*.md"))
    return [entry for page in pages for entry in ENTRY.findall(page.read_text())]


def lines_of(kind: str, name: str, members: str) -> Iterator[str]:
    """Yield the line of a name, then those of its members."""
    if kind == "module":
        module = importlib.import_module(name)
        for part in module.__all__:
            yield called(f"{name}.{part}", getattr(module, part))
        return
    module_name, _, last = name.rpartition(".")
    value = getattr(importlib.import_module(module_name), last)
    yield called(name, value)
    if kind == "class" and members:  # methods and properties of its own, as the page shows them
        named = members.partition(":members:")[2].replace(",", " ").split()
        for part, member in vars(value).items():
            is_shown = isinstance(member, property) or callable(getattr(value, part))
            if is_shown and (part in named if named else not part.startswith("_")):
                yield called(f"{name}.{part}", getattr(member, "__func__", member))


def called(name: str, value: object) -> str:
    """Return a name with its parameters; a default is shown as `...`."""
    if not callable(value) or (isinstance(value, type) and issubclass(value, Exception | dict)):
        return name
    bare = [
        parameter.replace(
            annotation=parameter.empty,
            default=parameter.empty if parameter.default is parameter.empty else ...,
        )
        for parameter in inspect.signature(value).parameters.values()
        if parameter.name not in ("self", "cls")
    ]
    return f"{name}{inspect.Signature(bare)}".replace("=Ellipsis", "=...")


def commands(of: App, chain: str = "attnlab") -> Iterator[str]:
    """Yield each command with its arguments and options; those in brackets may be left out."""
    if of.default_command:
        parts = (
            name if argument.required else f"[{name}]"
            for argument in of.assemble_argument_collection()
            for name in argument.names
            if name != "*"  # a group of options, which follow it
        )
        yield f"$ {chain} {' '.join(parts)}".strip()
    for name in of:
        if not name.startswith("-"):
            yield from commands(of[name], f"{chain} {name}")


def settings() -> Iterator[str]:
    """Yield the settings of each experiment."""
    for name in registry.experiments():
        options = sorted(option.name for option in registry.find(name).config_class.options())
        yield f"$ attnlab run {name} --set {' '.join(f'[{option}]' for option in options)}"


def entry_point_groups() -> set[str]:
    """Return the groups of entry points that attnlab reads."""
    sources = (ROOT / "packages").glob("*/src/**/*.py")
    groups = re.findall(r'entry_points\(group="(\S+?)"', "".join(map(Path.read_text, sources)))
    return {f"entry points: {group}" for group in groups}


def run_files() -> list[str]:
    """Return the files of a run folder, as a short run leaves them."""
    with tempfile.TemporaryDirectory() as folder:
        attnlab.run("sorting", steps=2, most_judged=3, out=Path(folder, "run"))
        files = sorted(path.name for path in Path(folder, "run").iterdir())
    return [f"run folder: {name}" for name in files if not name.startswith(".")]


def breaks(old: list[str], new: list[str]) -> dict[str, str]:
    """Return the names of the old list that a program can no longer use as before, and why."""
    now = {key(line): line for line in new}
    found = {}
    for line in old:
        if key(line) not in now:
            found[key(line)] = "is gone"
        elif line != now[key(line)]:
            compare = usage_breaks if line.startswith("$") else signature_breaks
            if reason := compare(line, now[key(line)]):
                found[key(line)] = reason
    return found


def key(line: str) -> str:
    """Return the name on a line, without parameters, arguments and options."""
    return re.split(r"\(| [\[A-Z-]", line)[0] if line.startswith("$") else line.split("(")[0]


def usage_breaks(old: str, new: str) -> str:
    """Return what of an old usage no longer works: an argument's place, an option, or a need."""
    before, after = (line.removeprefix(key(line)).split() for line in (old, new))
    bare = [part.strip("[]") for part in after]
    for part in before:
        if part.strip("[]") not in bare:
            return f"has no {part.strip('[]')}"
    places = [[part for part in parts if part.strip("[]")[0] != "-"] for parts in (before, after)]
    for one, other in zip(*places, strict=False):
        if one.strip("[]") != other.strip("[]"):
            return f"takes {other.strip('[]')} where {one.strip('[]')} was"
    needed = [part for part in after if part[0] != "[" and part not in before]
    return f"needs {needed[0]}" if needed else ""


def signature_breaks(old: str, new: str) -> str:
    """Return what call of an old signature no longer works with the new one."""
    if "(" not in old or "(" not in new:
        return "is a value and no function" if "(" in old else "is a function and no value"
    before, after = parameters_of(old), parameters_of(new)
    by_name = {parameter.name: parameter for parameter in after}
    for place, parameter in enumerate(before):
        other = by_name.get(parameter.name)
        if other is None:
            return f"has no parameter {parameter.name}"
        if parameter.kind != parameter.KEYWORD_ONLY and (
            place >= len(after) or after[place].name != parameter.name
        ):
            return f"has its parameter {parameter.name} in another place"
        if other.kind not in (parameter.kind, parameter.POSITIONAL_OR_KEYWORD):
            return f"takes its parameter {parameter.name} in another way"
        if parameter.default is ... and other.default is not ...:
            return f"needs its parameter {parameter.name}"
    old_names = {parameter.name for parameter in before}
    needed = [
        parameter.name
        for parameter in after
        if parameter.name not in old_names
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        and parameter.default is not ...
    ]
    return f"needs a parameter {needed[0]}" if needed else ""


def parameters_of(line: str) -> list[inspect.Parameter]:
    """Read the parameters of a line of the list."""
    source = line[line.index("(") + 1 : -1]
    return list(inspect.signature(eval(f"lambda {source}: None")).parameters.values())


def warned(promise: str) -> dict[str, tuple[int, int]]:
    """Return the names that the promise's table announces as going, with the minor version since
    which they warn."""
    rows = re.findall(r"^\| `([^`]+)` \| (\d+)\.(\d+)\.\d+ \|", promise, re.M)
    return {name: (int(major), int(minor)) for name, major, minor in rows}


def may_go(name: str, promise: str, version: str) -> bool:
    """Has this name been warned about in two minor versions before this one?"""
    major, minor = map(int, version.split(".")[:2])
    since = warned(promise).get(name)
    return since is not None and (major, minor) >= (since[0], since[1] + 2)


def has_releases(changes: str) -> bool:
    """Is any version released? The promise begins with the first."""
    return re.search(r"^## \d", changes, re.M) is not None


def broken_promises(old: list[str], new: list[str]) -> list[str]:
    """Return a sentence for each name that breaks without two minor versions of warning."""
    if not has_releases(CHANGES.read_text()):
        return []
    promise = PROMISE.read_text()
    return [
        f"{name} {reason}; give it two minor versions of warning: a row in {PROMISE.name}"
        for name, reason in breaks(old, new).items()
        if not may_go(name, promise, attnlab.__version__)
    ]


def rewrite() -> int:
    """Write the list anew, unless that would break the promise."""
    new = public_names()
    broken = broken_promises(LIST.read_text().splitlines() if LIST.exists() else [], new)
    if broken:
        sys.stderr.write("\n".join([*broken, "nothing was written."]) + "\n")
        return 1
    LIST.write_text("\n".join(new) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(rewrite())
