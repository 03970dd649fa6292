"""The picture of patching an indirect-object prompt of SmolLM2, from the file to the page.

    python benchmarks/patch.py [MODEL] [--rounds 3] [--threads 2] [--try]

MODEL is a GGUF file, by default that of runs/models/smollm2, which `python
examples/small_models.py smollm2` fetches. Both texts have 14 tokens. Seconds on the clock, and of
the processor: with several threads these add up, and other programs on the machine slow the first.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

import attnlab
from results import measured

SMOLLM2 = Path(__file__).parents[1] / "runs/models/smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
CLEAN = "When John and Mary went to the store, John gave a drink to"
CORRUPTED = "When John and Mary went to the store, Mary gave a drink to"


def picture(model: Path | torch.nn.Module, what: str, page: Path) -> None:
    """Patch both texts of a model, opened here if it is a file, and write the page."""
    if isinstance(model, Path):
        model = attnlab.load(model)
    attnlab.show(attnlab.patch_all(model, CLEAN, CORRUPTED, what), out=page)


def contestants(file: Path, page: Path) -> dict[str, Callable[[], object]]:
    """Return the calls that are timed."""
    model = attnlab.load(file)
    return {
        "open, stream, page": partial(picture, file, "stream", page),
        "stream, page": partial(picture, model, "stream", page),
        "heads, page": partial(picture, model, "heads", page),
    }


def seconds(call: Callable[[], object]) -> tuple[float, float]:
    """Call once; return the seconds on the clock, and of the processor."""
    wall, processor = time.perf_counter(), time.process_time()
    call()
    return time.perf_counter() - wall, time.process_time() - processor


def main() -> None:
    """Measure, and write the result."""
    parser = argparse.ArgumentParser(description="The picture of patching a prompt of SmolLM2.")
    parser.add_argument("model", nargs="?", type=Path, default=SMOLLM2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--try", dest="is_trial", action="store_true", help="write no result")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    with (
        tempfile.TemporaryDirectory() as folder,
        measured(
            "patch",
            "pictures",
            "patching SmolLM2 (135 M), 14 tokens: the stream (420 places) and 270 heads",
            packages=["transformers", "gguf"],
            keep=not options.is_trial,
            ours=["open, stream, page", "stream, page", "heads, page"],
            rounds=options.rounds,
        ) as table,
    ):
        calls = contestants(options.model, Path(folder) / "page.html")
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in calls}
        for _ in range(options.rounds):
            for name, call in calls.items():
                times[name].append(seconds(call))
        for number, title in enumerate(("on the clock", "processor")):
            table.add(title, {name: [each[number] for each in times[name]] for name in calls})


if __name__ == "__main__":
    main()
