"""`python -m attnlab_lab.server.job_process RUN JOB`: the process of one job.

It begins a run, or resumes it if it was begun. The first SIGINT waits for the end of a step and its
checkpoint, the next or SIGTERM does not.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from attnlab.core.store import locked
from attnlab.errors import AttnlabError
from attnlab_lab.server.events import EventLog
from attnlab_lab.server.jobs import read_request

__all__: list[str] = []

_NICE = 5
_PATIENCE = 5.0  # seconds for a checkpoint after the server has gone


def _carry_out(run_folder: Path, folder: Path) -> int:
    """Run the job, and return its exit status."""
    with locked(folder):
        log = EventLog(folder / "events.jsonl")
        log.write("began", process=os.getpid())
        try:
            _train(run_folder, folder, log)
        except AttnlabError as error:
            log.write("failed", sentence=str(error))
            return error.exit_status
        except MemoryError:
            log.write(
                "failed", sentence="there is not enough memory for this; try a smaller model."
            )
            return 3
    return 0


def _train(run_folder: Path, folder: Path, log: EventLog) -> None:
    import torch

    from attnlab.experiments.folder import is_unfinished
    from attnlab.experiments.population import train_population
    from attnlab.experiments.resumption import resume
    from attnlab.experiments.runner import run
    from attnlab.experiments.sweeps import sweep

    torch.set_num_threads(1)
    if is_unfinished(run_folder):
        resume(run_folder, observer=log)
        return
    request = read_request(folder)
    seeds = range(request.seed, request.seed + request.seeds)
    make: Callable[..., object] = partial(run, seed=request.seed)
    if request.sweep:
        make = partial(sweep, seeds=seeds)
    elif request.seeds > 1:
        make = partial(train_population, seeds=seeds)
    make(request.experiment, settings=request.settings, out=run_folder, observer=log)


def _end_with_parent() -> None:
    sys.stdin.buffer.read()
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(_PATIENCE)
    os.killpg(os.getpid(), signal.SIGKILL)


def _main() -> int:
    for number in (signal.SIGINT, signal.SIGTERM):  # a job in the background may ignore them
        signal.signal(number, signal.default_int_handler)
    try:
        os.nice(_NICE)
        threading.Thread(target=_end_with_parent, daemon=True).start()
        return _carry_out(Path(sys.argv[1]), Path(sys.argv[2]))
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    status = _main()
    sys.stderr.flush()
    os._exit(status)  # Python would need a second to shut torch down
