"""Small runs of `sorting` in processes of their own, to be disturbed, and their remains."""

import json
import os
import time

import pytest

import attnlab
from attnlab.cli import main
from attnlab.core.store import LOCK
from attnlab.draw import figures
from attnlab.experiments.folder import is_finished, is_unfinished, list_runs
from attnlab.train.checkpoint import latest_checkpoint

from .tiny import begin, end

SETTINGS = {"steps": 60, "evaluate_every": 20}
FAILED = 1  # the exit status: after so few steps nothing is sorted, and the claims say so


def start(folder, *, before=lambda: None, has_figures=False):
    """Begin a run, or go on with one, in a process of its own; return its number."""

    def call():
        os.environ["ATTNLAB_CHECKPOINT_SECONDS"] = "0"
        if not has_figures:
            figures.is_available = lambda: False
        before()
        if is_unfinished(folder) or is_finished(folder):
            return main(["resume", str(folder), "--json"])
        settings = [f"{name}={value}" for name, value in SETTINGS.items()]
        return main(["run", "sorting", "--out", str(folder), "--json", "--set", *settings])

    return begin(call, output_of(folder))


def output_of(folder):
    return folder.with_name(f"{folder.name}.output")


def make_whole(folder):
    """Make a run that nothing disturbs, and return the seconds that one takes."""
    assert main(["resume", str(folder)]) == 3  # from here on the children find everything imported
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "is_available", lambda: False)
        attnlab.run("sorting", **SETTINGS).html()
    begun = time.monotonic()
    assert end(start(folder)) == FAILED
    return time.monotonic() - begun


def check_readable(folder):
    """Check that whatever was killed left a state that can be read, and gone on with."""
    if (folder / "config.json").exists():
        (described,) = [run for run in list_runs(folder.parent) if run["run"] == str(folder)]
        assert described["state"] in ("finished", "unfinished")
    for checkpoint in folder.glob("checkpoints/**/*.safetensors"):
        assert latest_checkpoint(checkpoint.parent) is not None
    if (folder / "metrics.jsonl").exists():
        for line in (
            (folder / "metrics.jsonl").read_text().splitlines()[:-1]
        ):  # the last one may be half written
            json.loads(line)


def check_same(folder, whole):
    """Check that a run ended in the bytes of the undisturbed one, and left nothing behind."""
    for name in ("model.safetensors", "metrics.jsonl", "claims.json", "report.json"):
        assert (folder / name).read_bytes() == (whole / name).read_bytes(), name
    checkpoints = [
        sorted(path.name for path in (each / "checkpoints").rglob("*")) for each in (folder, whole)
    ]
    assert checkpoints[0] == checkpoints[1]
    # Of one that was killed when all was done already, a lock that nobody holds may be left.
    assert [path for path in folder.rglob(".*") if path.name != LOCK] == []
