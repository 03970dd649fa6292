"""How long `attnlab.load` takes with all its checks: this source tree beside another one.

    git worktree add ../before COMMIT
    python benchmarks/loading.py --before ../before/src [--rounds 15]

A T5 of two layers is loaded as a live module and from a folder, by one process for each tree; they
take turns, so that what slows the machine slows both. Processor time, one thread. Below 1 this tree
is faster. The first load of a process, imports of attnlab included, is measured in processes of its
own. `calls` are Python calls of attnlab in one pass under one edit, `hooks` torch's hooks.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from timing import ratio

HERE = Path(__file__).parents[1] / "src"


def made() -> Any:
    """Return a T5 of two layers with random weights."""
    from transformers import T5Config, T5ForConditionalGeneration

    torch.manual_seed(0)
    settings = {"vocab_size": 99, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2}
    config = T5Config(num_heads=4, decoder_start_token_id=0, **settings)
    return T5ForConditionalGeneration(config).eval()


def work(folder: str) -> None:
    """Load when told to, and print the seconds of processor time."""
    live = made()
    start = time.process_time()
    import attnlab

    attnlab.load(live)  # with all that the first load imports
    print(time.process_time() - start, flush=True)
    print(json.dumps(counts(attnlab, live)), flush=True)
    for line in sys.stdin:
        given = live if line.strip() == "live" else folder
        start = time.process_time()
        attnlab.load(given)
        print(time.process_time() - start, flush=True)


def counts(attnlab: Any, live: Any) -> dict[str, int]:
    """Count the hooks for one edited head, and the calls of attnlab in one pass under it."""
    model, home = attnlab.load(live), os.path.dirname(attnlab.__file__)
    found = {"hooks": 0, "calls": 0}

    def note(frame: Any, event: str, _: object) -> None:
        found["calls"] += event == "call" and frame.f_code.co_filename.startswith(home)

    head = attnlab.ZeroHead(site="decoder.layers.1.attention", head=1)
    with attnlab.edit(model, head, certify=False), torch.no_grad():
        for module in live.modules():
            found["hooks"] += len(module._forward_pre_hooks) + len(module._forward_hooks)
        model(**model.example)
        sys.setprofile(note)
        model(**model.example)
        sys.setprofile(None)
    return found


def started(tree: Path, folder: str) -> Any:
    """Start a process that loads with the attnlab of a source tree."""
    environment = {**os.environ, "PYTHONPATH": str(tree), "HF_HUB_OFFLINE": "1"}
    command, pipe = [sys.executable, __file__, "--worker", folder], subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment)


def main() -> None:
    """Read the arguments, measure, print."""
    parser = argparse.ArgumentParser(description="attnlab.load beside that of another commit.")
    parser.add_argument("--before", type=Path, default=HERE, help="src/ of the other tree")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.worker:
        work(options.worker)
        return
    with tempfile.TemporaryDirectory() as folder:
        made().save_pretrained(folder)
        first: list[list[float]] = [[], []]
        for number in range(options.rounds // 3):
            for index in (0, 1) if number % 2 else (1, 0):
                worker = started((options.before, HERE)[index], folder)
                first[index].append(float(worker.stdout.readline()))
                worker.communicate()
        before, now = first
        print(f"first: {sorted(now)[len(now) // 2]:.3f} s, now / before {ratio(now, before)}")
        workers = [started(tree, folder) for tree in (options.before, HERE)]
        for worker in workers:
            worker.stdout.readline()
        for name, worker in zip(("before", "now"), workers, strict=True):
            print(name, worker.stdout.readline().strip())
        for what in ("live", "folder"):
            times: list[list[float]] = [[], []]
            for number in range(options.rounds + 1):
                for index in (0, 1) if number % 2 else (1, 0):
                    print(what, file=workers[index].stdin, flush=True)
                    times[index].append(float(workers[index].stdout.readline()))
            before, now = (each[1:] for each in times)  # the first of each warms up
            print(f"{what}: {sorted(now)[len(now) // 2]:.3f} s, now / before {ratio(now, before)}")
        for worker in workers:
            worker.stdin.close()
            worker.wait()


if __name__ == "__main__":
    main()
