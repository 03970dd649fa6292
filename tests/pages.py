"""The Python of a page in a process of its own, which has what takes long to import already."""

import multiprocessing
import os
import sys
import traceback
import webbrowser
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HEAVY = ["torch", "transformers", "matplotlib.figure", "attnlab.cli.commands", __name__]


def run_blocks(blocks: Sequence[str]) -> list[str]:
    """Run blocks of code one after the other, as one program, and return what each printed."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(HEAVY)
    outputs = [Path(f"output-{number}.txt").resolve() for number in range(len(blocks))]
    process = context.Process(
        target=_run, args=(blocks, outputs, os.getcwd(), dict(os.environ)), daemon=False
    )
    process.start()
    process.join()
    found = [output.read_text() for output in outputs if output.exists()]
    for output in outputs:
        output.unlink(missing_ok=True)
    assert process.exitcode == 0, found[-1]
    return found


def _run(
    blocks: Sequence[str], outputs: Sequence[Path], folder: str, environment: dict[str, str]
) -> None:
    os.chdir(folder)
    os.environ.update(environment)
    sys.path.insert(0, "")
    webbrowser.open = lambda page: True  # type: ignore[assignment]
    names: dict[str, Any] = {"__name__": "__main__"}
    for block, output in zip(blocks, outputs, strict=True):
        with output.open("w") as stream:
            sys.stdout = stream
            try:
                exec(block, names)
            except BaseException:
                traceback.print_exc(file=stream)
                raise SystemExit(1) from None
