"""All benchmarks one after another, then the pages: what `make bench` runs.

    python benchmarks/run.py [--full]

The quick set takes about 20 minutes on two quiet cores, `--full` hours. A program whose peer is not
installed says so, and its last result stays. Run by hand, as they need files or hours of yours, and
print what they find: `corpus.py`, `sentiment.py`, `server.py`, `long_document.py`, `playground.py`,
`grading.py`.
"""

import argparse
import subprocess
import sys
import time
from pathlib import Path

from results import NOT_MEASURED

HERE = Path(__file__).parent
QUICK = (
    "processor.py --rounds 9",
    "recording.py --parts weights --lengths 128 512 --rounds 7",
    "summaries.py --parts head model --rounds 3",
    "ablate.py --vocabulary 50257 --rounds 3",
    "pretrained.py --parts weights --lengths 128 2048",
    "pretrained.py --parts head --lengths 128 --rounds 5",
    "pretrained.py --parts ablations --rounds 2",
    "pretrained.py --parts load",
    "models.py --threads 1 --sizes small middle --rounds 9",
    "populations.py --parts sorting --rounds 7",
    "compilers.py --parts errors",
    "programs.py",
    "view.py --parts size --rounds 3",
)
FULL = (
    "processor.py",
    "matrix_path.py",
    "recording.py",
    "summaries.py --long",
    "ablate.py",
    "pretrained.py",
    "models.py",
    "populations.py",
    "compilers.py",
    "programs.py",
    "view.py --long",
)
AFTER = ("benchmarks/page.py", "docs/evidence.py")


def main() -> None:
    """Run the set, and write the pages from the results; fail where a program failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--full", action="store_true", help="everything, in hours")
    began, failed = time.monotonic(), []
    for line in FULL if parser.parse_args().full else QUICK:
        program, *arguments = line.split()
        start = time.monotonic()
        done = subprocess.run([sys.executable, HERE / program, *arguments], check=False)
        if done.returncode not in (0, NOT_MEASURED):
            failed.append(line)
        print(f"{line}: {time.monotonic() - start:.0f} s\n", flush=True)
    for program in AFTER:
        subprocess.run([sys.executable, HERE.parent / program], check=True)
    print(f"{(time.monotonic() - began) / 60:.1f} minutes")
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}; their last results stay")


if __name__ == "__main__":
    main()
