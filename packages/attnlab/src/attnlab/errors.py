"""One family of errors: what was expected, what came, what to do.

Everything a user can cause raises `AttnlabError` or a child of it, and the command line turns it
into one sentence and an exit status. Failed assertions are our own mistakes and stay assertions.
"""

import difflib
import re
import shlex
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import TypeGuard, TypeVar

T = TypeVar("T")

_MAX_NAMES = 30  # that a message lists in full
_LONG_WORD = re.compile(r"\S{301,}")  # such as what a user typed
_LONG_QUOTE = re.compile(r"(['\"])[^'\"]{1001,}\1")


class AttnlabError(Exception):
    """Base of all errors raised on purpose; `exit_status` is what the command line returns."""

    exit_status = 3

    def __str__(self) -> str:
        return shorten(super().__str__())


class WrongUsage(AttnlabError, ValueError):
    """The request makes no sense: a wrong shape, an unknown name, a value out of range."""

    exit_status = 2


class CouldNotRun(AttnlabError, RuntimeError):
    """The request is valid but cannot be met: a full disk, a missing file, a locked folder."""

    exit_status = 3


def not_none(value: T | None) -> T:
    """Return a value that is never None, for the type checker."""
    assert value is not None
    return value


def in_order(name: str) -> list[tuple[int, int, str]]:
    """Return a sort key that orders the numbers within names as numbers.

    >>> sorted(["layers.10", "layers.9"], key=in_order)
    ['layers.9', 'layers.10']
    """
    pieces = re.findall(r"\d+|\D+", name)
    return [(0, int(piece), "") if piece.isdecimal() else (1, 0, piece) for piece in pieces]


def one_line(words: object, most: int) -> str:
    """Write the message of another library on one line, in at most so many letters."""
    return " ".join(str(words).split())[:most]


def type_words(value: object) -> str:
    """Name the type of a value, ready for an error message.

    >>> type_words(3), type_words("3")
    ('an int', 'a str')
    """
    name = type(value).__name__
    return f"an {name}" if name[0] in "AEIOaeio" else f"a {name}"


def model_words(value: object) -> str:
    """Say what was given in the place of a model, and how to get a model from it.

    >>> model_words("runs/sorting")
    "a str; attnlab.load('runs/sorting') opens a model"
    >>> model_words("The capital of France is")
    "a text; attnlab.load('runs/sorting') opens a model"
    """
    words = type_words(value)
    if isinstance(value, str) and len(value.split()) > 1 and not Path(value).exists():
        return "a text; attnlab.load('runs/sorting') opens a model"
    if isinstance(value, str | Path):
        return f"{words}; attnlab.load({str(value)!r}) opens a model"
    return f"{words}, whose model is its .model" if hasattr(type(value), "model") else words


def is_integer(value: object) -> TypeGuard[int]:
    """Is this an integer? True and False are none."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: object) -> TypeGuard[int | float]:
    """Is this an integer or a float? True and False are none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def shorten(message: str) -> str:
    """Shorten very long quotes and words in a message.

    >>> shorten(f"expected 3 letters; got {'z' * 100_000}")[:60]
    'expected 3 letters; got zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz'
    >>> len(shorten(f"expected 3 letters; got {'z' * 100_000}"))
    107
    """
    for long in (_LONG_WORD, _LONG_QUOTE):
        message = long.sub(lambda words: _cut(words[0], 60), message)
    return message


def _cut(text: str, kept: int) -> str:
    return f"{text[:kept]} … ({len(text):,} characters)"


def typed(path: object) -> str:
    """Write a path as it is typed in a shell.

    >>> typed("runs/my first")
    "'runs/my first'"
    """
    return shlex.quote(str(path))


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Name the closest known word and list the others, ready to end an error message.

    >>> did_you_mean("postions", ["positions", "rank"])
    "did you mean 'positions'? Known: positions, rank"
    >>> did_you_mean("weights", ["layers.0.weights", "logits"])
    "did you mean 'layers.0.weights'? Known: layers.0.weights, logits"
    """
    names = sorted(known, key=in_order)
    close = _close_names(word, names)
    guess = f"did you mean {close[0]!r}? Known" if close else "known"
    if len(names) <= _MAX_NAMES:
        return f"{guess}: {', '.join(names)}"
    listed = ", ".join(names[: _MAX_NAMES // 2])
    return f"{guess}: {listed}, … ({len(names)} in all)"


def _close_names(word: str, names: Sequence[str]) -> list[str]:
    """Return the names that a word may stand for, the closest first."""
    begun = [name for name in names if len(word) > 2 and name.startswith(word)]
    ended = [name for name in names if name.endswith(f".{word.lstrip('*.')}")]
    alike = [name for name in names if name[:1].lower() == word[:1].lower()]
    return (
        sorted(begun, key=len)
        or ended
        or difflib.get_close_matches(word, alike, 1)
        or difflib.get_close_matches(word, names, 1, 0.8)
    )


def no_attribute(module: str, name: str, known: Iterable[str]) -> AttributeError:
    """Return the error for a name that a module of attnlab lacks."""
    hint = did_you_mean(name, known)
    return AttributeError(f"module {module!r} has no attribute {name!r}; {hint}")


def require_known(what: str, name: object, known: Collection[str]) -> None:
    """Raise unless this is one of the known names, which the message lists."""
    if name not in list(known):
        raise WrongUsage(f"there is no {what} {name!r}; {did_you_mean(str(name), known)}")
