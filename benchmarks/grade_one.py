"""What one submission costs a worker of a queue: processor seconds and memory, all processes.

    python benchmarks/grade_one.py [--times 10]

Each call of `attnlab grade-one` runs in a control group of its own, which counts its sandbox too;
making one needs root and a mounted `/sys/fs/cgroup`. Calls of all kinds take turns.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from attnlab_course.catalog import find_exercise
from attnlab_course.cells import solution_text

ROOM = Path("/sys/fs/cgroup")
KINDS = {  # exercises of a notebook
    "a notebook, 1 exercise": ["attention"],
    "a notebook, 5 exercises": ["softmax", "attention", "causal_mask", "multi_head", "layer_norm"],
    "a notebook, 1 exercise that hangs": ["attention"],
    "no zip": [],
}
HANGS = "def attention(query, key, value, mask=None):\n    while True:\n        pass\n"


def main() -> None:
    """Measure, and print a row for each kind."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--times", type=int, default=10)
    times = parser.parse_args().times
    with tempfile.TemporaryDirectory() as folder:
        room = Path(folder)
        calls = {kind: prepare(room, kind, names) for kind, names in KINDS.items()}
        figures: dict[str, list[tuple[float, float, float]]] = {kind: [] for kind in calls}
        for _ in range(times):
            for kind, call in calls.items():
                figures[kind].append(measure(call))
    print(f"{times} times each, load {os.getloadavg()[0]:.1f}: median (least to most)")
    for kind, rows in figures.items():
        words = []
        for values, unit in zip(zip(*rows, strict=True), ("CPU s", "MB", "s"), strict=True):
            middle = statistics.median(values)
            words.append(f"{middle:.3g} ({min(values):.3g} to {max(values):.3g}) {unit}")
        print(f"{kind}: {', '.join(words)}")


def prepare(room: Path, kind: str, names: list[str]) -> list[str]:
    """Write a submission of a kind, its course and its folder of grades; return the command."""
    place = room / kind.replace(" ", "-")
    (place / "grades").mkdir(parents=True)
    (place / "grades" / "grading.json").write_text('{"format": "attnlab grades 1", "seed": "0"}')
    (place / "course.toml").write_text(f"exercises = {json.dumps(names or ['attention'])}\n")
    programs = [solution_text(find_exercise(name).source) for name in names]
    if "hangs" in kind:
        programs = [HANGS]
    cells = [
        {"cell_type": "code", "metadata": {}, "outputs": [], "source": text} for text in programs
    ]
    content = json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})
    file = place / ("ada.ipynb" if names else "ada.zip")
    file.write_text(content)
    return [
        *(sys.executable, "-m", "attnlab", "grade-one", str(file)),
        *("--grades", str(place / "grades"), "--course", str(place / "course.toml")),
    ]


def measure(command: list[str]) -> tuple[float, float, float]:
    """Run a command; return its processor seconds, its highest memory in MB, and its seconds."""
    groups, read_seconds, read_memory = make_groups()

    def join() -> None:
        for group in groups:
            (group / "cgroup.procs").write_text(str(os.getpid()))

    start = time.perf_counter()
    done = subprocess.run(command, preexec_fn=join, capture_output=True, check=False)
    wall = time.perf_counter() - start
    assert done.returncode in (0, 1), done.stderr
    figures = (read_seconds(), read_memory() / 1e6, wall)
    for group in groups:
        while (group / "cgroup.procs").read_text():
            time.sleep(0.1)
        group.rmdir()
    return figures


def make_groups() -> tuple[list[Path], Callable[[], float], Callable[[], int]]:
    """Make control groups; return them, and what reads seconds and bytes."""
    name = f"attnlab-{os.getpid()}"
    if (ROOM / "cgroup.controllers").exists():
        groups = [ROOM / name]
        files = ("cpu.stat", "memory.peak")
    else:
        groups = [ROOM / "cpuacct" / name, ROOM / "memory" / name]
        files = ("cpuacct.usage", "memory.max_usage_in_bytes")
    for group in groups:
        group.mkdir()

    def seconds() -> float:
        text = (groups[0] / files[0]).read_text().split()
        return int(text[1]) / 1e6 if len(text) > 1 else int(text[0]) / 1e9

    return groups, seconds, lambda: int((groups[-1] / files[1]).read_text())


if __name__ == "__main__":
    main()
