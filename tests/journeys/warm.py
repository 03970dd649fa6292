"""A Python that has loaded PyTorch and attnlab, and copies itself for each command it reads.

Loading takes seconds of each process. A copy (a fork) goes on where a new process is when it
has loaded: with the folder, the environment and the files of the command, it runs the program
as `__main__`, and ends as a process ends, but for the half second in which Python would take apart
all that it has loaded. Commands are lines of JSON; the answers are statuses.
"""

import atexit
import contextlib
import gc
import importlib
import json
import os
import runpy
import sys
import threading
import traceback
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # which opening a model loads

import attnlab.cli.commands
import attnlab.experiments.runner  # noqa: F401
from attnlab.draw import figures
from attnlab.draw.attention import figure_files

OTHERS = (  # what commands load, where it is installed
    "matplotlib.backends.backend_agg",
    "matplotlib.backends.backend_svg",
    "sklearn.feature_extraction.text",
    "sklearn.linear_model",
    "torch.fx.experimental.proxy_tensor",
    "transformers.models.auto.modeling_auto",
    "transformers.models.auto.tokenization_auto",
    "transformers.models.gpt2.modeling_gpt2",
)
UNPAINTED = b"\0\0\0\0IEND"  # the end of a PNG


def next_command() -> dict[str, Any]:
    """Fork for each command; each copy returns with its command."""
    for line in sys.stdin:
        copy = os.fork()
        if copy == 0:
            return dict(json.loads(line))
        status = os.waitpid(copy, 0)[1]
        print(os.waitstatus_to_exitcode(status), flush=True)  # noqa: T201
    sys.exit()


def become(command: dict[str, Any]) -> None:
    """Take on the folder, the environment, the files and the words of a command."""
    os.chdir(command["folder"])
    os.environ.clear()
    os.environ.update(command["environment"])
    for descriptor, path in enumerate(command["files"]):
        os.dup2(os.open(path, os.O_RDWR), descriptor)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    sys.argv = command["words"]
    sys.path[0] = str(Path(sys.argv[0]).resolve().parent)
    figure_files.to_bytes = lambda *_, **__: UNPAINTED
    figures.to_files = lambda name, _: {f"{name}.{kind}": UNPAINTED for kind in ("png", "svg")}


def status_of(program: str) -> int:
    """Run a program, and return the status that Python would end with."""
    try:
        runpy.run_path(program, run_name="__main__")
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)  # noqa: T201
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


for name in OTHERS:
    with contextlib.suppress(ImportError):
        importlib.import_module(name)
gc.freeze()
torch.set_num_threads(1)
become(next_command())
status = status_of(sys.argv[0])
threading._shutdown()
atexit._run_exitfuncs()
sys.stdout.flush()
sys.stderr.flush()
os._exit(status)
