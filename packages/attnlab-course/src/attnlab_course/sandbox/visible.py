"""What a process sees of the machine in the sandbox: the system's libraries, Python, torch.

Everything is read-only but one small folder in memory. attnlab itself is hidden, since the
exercises hold the solutions; the repository, the homes, /etc and /sys are not there at all.
"""

import importlib.util
import os
import site
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import attnlab
from attnlab.errors import not_none

_SYSTEM = ("/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/bin")
_SYSTEM_LINKS = ("/bin", "/lib", "/lib32", "/lib64")
_SETTINGS = ("/etc/ld.so.cache", "/etc/alternatives")
_DEVICES = ("null", "zero", "full", "random", "urandom")
_OF_PREFIX = ("bin", "lib", "lib64", "pyvenv.cfg")  # a venv may be in a home or a project

WRITABLE_BYTES = 64 * 2**20
"""How much the one folder that can be written, /box, holds."""

_PACKAGES = (Path(attnlab.__file__).resolve().parent, Path(__file__).resolve().parents[1])


def view_options(programs: Iterable[Path]) -> list[str]:
    """Return bubblewrap's options that lay out the sandbox's files; programs: at its top."""
    shown = sorted(set(_shown_paths()), key=lambda path: len(path.parts))
    made: set[Path] = {Path("/")}
    options: list[str] = []
    bound: list[Path] = []
    for path in shown:
        if any(map(path.is_relative_to, bound)):
            continue
        options += _make_parents(path, made)
        if path.is_symlink() and str(path) in (*_SYSTEM, *_SYSTEM_LINKS):
            options += ["--symlink", os.readlink(path), str(path)]
            continue
        options += ["--ro-bind", str(path), str(path)]
        bound.append(path)
    for path in _hidden_paths(bound):
        options += ["--size", "4096", "--tmpfs", str(path), "--remount-ro", str(path)]
    size = str(WRITABLE_BYTES)
    options += ["--proc", "/proc", "--perms", "0755", "--size", "4096", "--tmpfs", "/dev"]
    for name in _DEVICES:
        options += ["--dev-bind", f"/dev/{name}", f"/dev/{name}"]
    options += ["--perms", "1777", "--size", size, "--tmpfs", "/dev/shm", "--remount-ro", "/dev"]
    options += ["--perms", "1777", "--size", size, "--tmpfs", "/box"]
    if Path("/tmp") not in made:
        options += ["--symlink", "box", "/tmp"]
    for program in programs:
        options += ["--ro-bind", str(program), f"/{program.name}"]
    return [*options, "--remount-ro", "/"]


def extra_folders() -> list[str]:
    """Return the folders of torch and NumPy that Python does not look into by itself."""
    searched = site.getsitepackages()
    return [str(folder) for folder in _package_folders() if str(folder) not in searched]


def _package_folders() -> list[Path]:
    folders = set()
    for name in ("torch", "numpy"):
        spec = not_none(importlib.util.find_spec(name))
        folders.add(Path(not_none(spec.origin)).parents[1])
    return sorted(folders)


def _shown_paths() -> Iterator[Path]:
    for name in (*_SYSTEM, *_SYSTEM_LINKS, *_SETTINGS, *site.getsitepackages()):
        if Path(name).exists():
            yield Path(name)
    for prefix in _prefixes():
        for name in _OF_PREFIX:
            if (prefix / name).exists():
                yield prefix / name
    yield from _package_folders()


def _prefixes() -> Iterator[Path]:
    """Return every folder that Python is found through, link by link."""
    yield Path(sys.prefix)
    yield Path(sys.base_prefix)
    yield Path(sys.base_prefix).resolve()
    link = Path(sys.executable)
    while True:
        if link.parent.name == "bin":
            yield link.parents[1]
            yield link.parents[1].resolve()
        if not link.is_symlink():
            return
        link = Path(os.path.normpath(link.parent / os.readlink(link)))


def _hidden_paths(bound: Iterable[Path]) -> list[Path]:
    """Return the folders of attnlab within what is shown."""
    folders = set(_PACKAGES)
    for path in bound:
        for pattern in ("", "python*/*-packages/", "*/python*/*-packages/"):
            folders |= set(path.glob(f"{pattern}attnlab*"))
    for package in _PACKAGES:
        # a project, and the workspace that holds its packages
        for folder in (package.parents[1], package.parents[3]):
            if (folder / "pyproject.toml").exists():
                folders.add(folder)
    return sorted(folder for folder in folders if _is_to_hide(folder, bound))


def _is_to_hide(folder: Path, bound: Iterable[Path]) -> bool:
    """Is a folder shown, and not one in which Python itself is?"""
    if not folder.is_dir() or not any(map(folder.is_relative_to, bound)):
        return False
    return not any(Path(prefix).is_relative_to(folder) for prefix in (sys.prefix, sys.base_prefix))


def _make_parents(path: Path, made: set[Path]) -> list[str]:
    """Return the options that make a path's parents, open to every user."""
    options = []
    for parent in reversed(path.parents):
        if parent not in made:
            made.add(parent)
            options += ["--perms", "0755", "--dir", str(parent)]
    return options
