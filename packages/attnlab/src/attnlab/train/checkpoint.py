"""Checkpoints: all state of a training, in one safetensors file whose name holds its digest.

A checkpoint is `STEP-DIGEST.safetensors`, the digest being the first 16 hexadecimal digits of the
SHA-256 of all its bytes. It is written under another name, synced, and renamed, so it is there
whole or not at all; and a file that was damaged since no longer fits its name. The one before is
kept until the next is written. `loop.py` writes them, and goes on from the latest.

`model.*` are the weights, `first.*` and `second.*` the optimizer's moments, `best.*` the best
weights so far, each (member, …); `history.*` is the history so far; plain values are in the file's
metadata as JSON.
"""

import json
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from attnlab.core.store import (
    digest_of,
    explained,
    pack,
    read_header,
    read_tensors,
    remove_remains,
    write_bytes,
)
from attnlab.errors import CouldNotRun, WrongUsage

MOST_THREADS = 4_096

_KEPT = 2
_NAME = re.compile(r"(\d{9})-([0-9a-f]{16})\.safetensors")
_SECONDS = 5.0
_MOST_SHARE = 0.02  # of the time may go into checkpoints


@dataclass(frozen=True)
class Checkpoint:
    """The contents of a checkpoint file."""

    tensors: dict[str, Tensor]
    facts: dict[str, Any]

    @property
    def threads(self) -> int | None:
        """The number of torch's threads that computed it; None if unknown."""
        number = self.facts.get("threads")
        return number if isinstance(number, int) and 1 <= number <= MOST_THREADS else None


class Pace:
    """When the next checkpoint is due: every so many seconds, and less often where one costs 2 % of
    them.

    The seconds are ATTNLAB_CHECKPOINT_SECONDS, or 5; with 0 one is always due.
    """

    def __init__(self) -> None:
        text = os.environ.get("ATTNLAB_CHECKPOINT_SECONDS", str(_SECONDS))
        try:
            self._seconds = float(text)
        except ValueError:
            self._seconds = -1.0
        if not 0.0 <= self._seconds < float("inf"):
            raise WrongUsage(
                f"ATTNLAB_CHECKPOINT_SECONDS must be a number of at least 0; got {text[:40]!r}."
            )
        self._due = time.monotonic() + self._seconds

    def is_due(self) -> bool:
        """Is a checkpoint due?"""
        return time.monotonic() >= self._due

    def saved(self, cost: float) -> None:
        """Note a checkpoint and the seconds that it took."""
        pause = self._seconds and max(self._seconds, cost / _MOST_SHARE)
        self._due = time.monotonic() + pause


def write_checkpoint(
    folder: Path, step: int, tensors: Mapping[str, Tensor], facts: Mapping[str, object]
) -> Path:
    """Write a checkpoint, then remove all but the one before.

    Raises:
        CouldNotWrite: the disk is full, or the folder may not be written; the checkpoints before
            are untouched.
    """
    content = pack(tensors, {"facts": json.dumps(dict(facts))})
    path = folder / f"{step:09d}-{digest_of(content)[:16]}.safetensors"
    write_bytes(path, content)
    files = _files(folder)
    # One of a later step is from a training that went on from an earlier one, because the later was
    # damaged.
    start = files.index(path)
    _remove(files[:start] + files[start + _KEPT :])
    return path


def read_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint back.

    Raises:
        CouldNotRun: it cannot be read, or is not what was written.
    """
    match = _NAME.fullmatch(path.name)
    if match is None or digest_of(path)[:16] != match[2]:
        raise CouldNotRun(
            f"the checkpoint {path} is damaged: its content does not fit the digest in its name."
        )
    _, metadata = read_header(path)
    try:
        facts = json.loads(metadata["facts"])
        if not isinstance(facts, dict):
            raise ValueError("its facts are no object")
    except (ValueError, KeyError, RecursionError) as error:
        raise CouldNotRun(f"{path} is no checkpoint of a training: {str(error)[:200]}.") from None
    return Checkpoint(read_tensors(path), facts)


def latest_checkpoint(
    folder: Path, tell: Callable[[str], None] = lambda sentence: None
) -> Checkpoint | None:
    """Return the newest intact checkpoint; None if there is none at all.

    Args:
        folder: where they are.
        tell: is told of a newer one that could not be used.

    Raises:
        CouldNotRun: there are some, and none of them is whole.
    """
    damaged: CouldNotRun | None = None
    for path in _files(folder):
        try:
            checkpoint = read_checkpoint(path)
        except CouldNotRun as error:
            damaged = damaged or error
            continue
        if damaged is not None:
            tell(f"{damaged} Going on from the one before, {path.name}.")
        return checkpoint
    if damaged is not None:
        raise CouldNotRun(
            f"{damaged} There is no other to go on from: remove {folder} to begin anew."
        )
    return None


def tidy(folder: Path) -> None:
    """Remove what a killed writer left: temporary files, and superfluous checkpoints; only for the
    writing process."""
    remove_remains(folder)
    _remove(_files(folder)[_KEPT:])


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        with explained(path):
            path.unlink(missing_ok=True)


def _files(folder: Path) -> list[Path]:
    """List a folder's checkpoints, the newest first."""
    if not folder.is_dir():
        return []
    paths = (path for path in folder.iterdir() if _NAME.fullmatch(path.name))
    return sorted(paths, reverse=True)
