"""The folder of a proof: it says that it is unfinished until all that it shall hold stands in it.

Whatever ends the process, the same command finds either no folder, or one that it goes on with, or
a finished one that it leaves alone.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from attnlab.core.store import explained, locked, make_folder, remove_remains, write_text
from attnlab.errors import CouldNotRun

STATE = "proof.json"
"""The file that keeps how far a proof is."""

_UNFINISHED = "unfinished"
_WORDS = "This folder is unfinished: the same command resumes it, or starts again.\n"


def check_proof_folder(path: Path, *, must_be_there: bool = False) -> None:
    """Refuse a folder that holds anything but an unfinished proof.

    must_be_there: refuse, too, where nothing was begun.
    """
    content = _content(path)
    if path.is_file() or (content and not content & {_UNFINISHED, STATE}):
        raise CouldNotRun(
            f"{path} exists already and is not an unfinished proof; choose another folder."
        )
    if must_be_there and not path.exists():
        raise CouldNotRun(f"there is no interrupted proof in {path}; leave --resume out.")


@contextmanager
def proof_folder(path: Path) -> Iterator[Path]:
    """Write into a folder that is marked as unfinished until the `with` is over.

    Yields the file that keeps how far the proof is. A folder into which nothing was written is
    removed again.

    Raises:
        CouldNotRun: another process writes into it, or the disk does not take it.
    """
    check_proof_folder(path)
    make_folder(path)
    try:
        with locked(path):
            remove_remains(path)
            write_text(path / _UNFINISHED, _WORDS)
            for stale in path.rglob("certificate.json"):
                stale.unlink()
            try:
                yield path / STATE
            except BaseException:
                if _content(path) == {_UNFINISHED}:
                    (path / _UNFINISHED).unlink()
                raise
            for name in (STATE, _UNFINISHED):
                (path / name).unlink(missing_ok=True)
    finally:
        if path.is_dir() and not any(path.iterdir()):
            with explained(path):
                path.rmdir()


def _content(path: Path) -> set[str]:
    """Return the names in a folder, without locks and half-written files."""
    if not path.is_dir():
        return set()
    return {file.name for file in path.iterdir() if not file.name.startswith(".")}
