"""How long a start takes, and how large an installation is.

    python benchmarks/start.py [--rounds 15]

Each start is a process of its own; all take turns. Times are processor time of the process, which
other programs disturb least. `import attnlab` alone loads nothing; what counts is the first use of
a public name, which loads PyTorch. The size is that of the files of each distribution that attnlab
needs and PyTorch does not.
"""

import argparse
import importlib.metadata
import os
import re
import subprocess
import sys
from pathlib import Path

from results import measured

STARTS = {
    "import torch": "import torch",
    "import attnlab": "import attnlab",
    "attnlab.attend": "import attnlab; attnlab.attend",
    "attnlab.record": "import attnlab; attnlab.record",
    "attnlab.load": "import attnlab; attnlab.load",
}
HELP = {
    "python": "pass",
    "attnlab --help": "from attnlab.cli import main; main(['--help'])",
}


def seconds(code: str) -> float:
    """Run a program in a process of its own, and return its processor time."""
    before = os.times()
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
    after = os.times()
    return sum(after[2:4]) - sum(before[2:4])


def in_turns(programs: dict[str, str], rounds: int) -> dict[str, list[float]]:
    """Time each program once a round; the first round, which reads the disk, does not count."""
    times: dict[str, list[float]] = {name: [] for name in programs}
    for number in range(rounds + 1):
        order = list(programs) if number % 2 else list(reversed(programs))
        for name in order:
            taken = seconds(programs[name])
            times[name] += [taken] if number else []
    return times


def needs(name: str) -> set[str]:
    """Return a distribution and all that it needs, directly or not, without extras."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        one = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        if one in found:
            continue
        try:
            requirements = importlib.metadata.requires(one) or []
        except importlib.metadata.PackageNotFoundError:  # of another system
            continue
        found.add(one)
        waiting += [
            match[0]
            for line in requirements
            if "extra ==" not in line and (match := re.match(r"[\w.-]+", line))
        ]
    return found


def megabytes(name: str) -> float:
    """Return the size of the files of a distribution."""
    files = importlib.metadata.files(name) or []
    paths = [Path(str(file.locate())) for file in files]
    return sum(path.stat().st_size for path in paths if path.is_file()) / 1e6


def main() -> None:
    """Measure both, and print and keep the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--quick", action="store_true", help="three rounds; keeps no result")
    options = parser.parse_args()
    rounds, keep = (3, False) if options.quick else (options.rounds, True)
    what = "starts: processor time over that of `import torch`"
    ours = [name for name in STARTS if name != "import torch"]
    with measured(
        "start", "imports", what, ours=ours, reference="import torch", rounds=rounds, keep=keep
    ) as table:
        table.add("a new process", in_turns(STARTS, rounds))
    what = "`attnlab --help`: processor time, of which Python's own start is a part"
    with measured(
        "start", "help", what, ours=["attnlab --help"], rounds=rounds, keep=keep
    ) as table:
        table.add("a new process", in_turns(HELP, rounds))
    with measured(
        "start", "size", "size of what attnlab needs beside PyTorch", ours=["attnlab"], keep=keep
    ) as table:
        sizes = {name: megabytes(name) for name in needs("attnlab") - needs("torch")}
        table.add("all", {"attnlab": [sum(sizes.values())]}, unit="MB")
        for name in sorted(sizes, key=sizes.__getitem__, reverse=True)[:6]:
            table.add(name, {"attnlab": [sizes[name]]}, unit="MB")


if __name__ == "__main__":
    main()
