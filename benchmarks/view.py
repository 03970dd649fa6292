"""The interactive page: how large it is, how long it takes to make, and how long Chromium takes to
show it.

    python benchmarks/view.py [--quick] [--rounds 7] [--long] [--json FILE]

144 heads, as of a model of 12 layers and 12 heads: of 128 and of 512 tokens, causal and not, with
weights at hand; with `--long` also of 8,192 tokens, made on demand from queries and keys. The
weights are softmax of random scores, half of the heads sharpened: they compress worse than those of
a trained model. One thread. The time to open runs from the start of the navigation until the view
says that its first head is drawn, in a new tab each time; the file lies on the disk. Medians, with
least and most.
"""

import argparse
import json
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from attnlab import seeds
from attnlab.draw.attention import Pattern
from attnlab.draw.view import view_page

LAYERS, HEADS, WIDTH = 12, 12, 64
FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]


class OnDemand:
    """Weights of one layer, made of queries and keys when they are read, as a recording makes
    them."""

    def __init__(self, query: Tensor, key: Tensor, is_causal: bool) -> None:
        self.shape = (query.shape[0], query.shape[1], key.shape[1])
        self._query, self._key, self._is_causal = query, key, is_causal

    def __getitem__(self, where: tuple[int, slice]) -> Tensor:
        """Make some rows of a head."""
        head, queries = where
        scores = self._query[head, queries] @ self._key[head].T / WIDTH**0.5
        if self._is_causal:
            places = torch.arange(self.shape[2])
            scores.masked_fill_(places > places[queries].unsqueeze(-1), -torch.inf)
        return scores.softmax(-1)


def make_patterns(length: int, *, is_causal: bool, on_demand: bool = False) -> list[Pattern]:
    """Make 12 layers of 12 heads."""
    tokens = tuple(f" word{i}" for i in range(length))
    patterns = []
    for layer in range(LAYERS):
        generator = seeds.generator(layer, "benchmark view", "scores")
        query, key = (torch.randn(HEADS, length, WIDTH, generator=generator) for _ in range(2))
        query *= torch.where(torch.arange(HEADS) % 2 == 0, 1.0, 2.5).reshape(-1, 1, 1)
        weights: Any = OnDemand(query, key, is_causal)
        if not on_demand:
            weights = torch.stack([weights[head, slice(0, length)] for head in range(HEADS)])
        site = f"layers.{layer}.attention.weights"
        patterns.append(Pattern(site, weights, tokens, tokens, "causal" if is_causal else None))
    return patterns


def spread(values: list[float]) -> str:
    """Median, least and most."""
    return f"{statistics.median(values):.2f} s ({min(values):.2f} to {max(values):.2f})"


def opening_times(page: Path, rounds: int) -> list[float]:
    """Open a file in Chromium, each time in a new context, until the view is ready."""
    from playwright.sync_api import sync_playwright

    times = []
    with sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        for _ in range(rounds + 1):
            context = chromium.new_context(viewport={"width": 1280, "height": 900})
            tab = context.new_page()
            start = time.perf_counter()
            tab.goto(page.as_uri(), wait_until="commit")
            tab.wait_for_selector("#view[data-ready='true']", state="attached", timeout=60_000)
            times.append(time.perf_counter() - start)
            context.close()
        chromium.close()
    return times[1:]  # the first one starts the browser's own processes


def measure(name: str, patterns: list[Pattern], rounds: int, builds: int) -> dict[str, Any]:
    """Build and open one page."""
    wall, processor, page = [], [], ""
    for _ in range(builds):
        start, start_cpu = time.perf_counter(), time.process_time()
        page = view_page(patterns)
        wall.append(time.perf_counter() - start)
        processor.append(time.process_time() - start_cpu)
    manifest = json.loads(page.split('id="manifest">')[1].split("</script>")[0])
    side = manifest["groups"][0]["cells"][0]
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "view.html"
        place.write_text(page)
        opened = opening_times(place, rounds)
    size = len(page.encode()) / 1e6
    kept = f"{manifest['levels'] + 1} steps" + (f", squares of {side}" if side > 1 else "")
    times = f"built {spread(wall)}, processor {spread(processor)}, opens {spread(opened)}"
    print(f"{name:<20} {size:6.2f} MB, {times}; {kept}", flush=True)
    return {
        "name": name,
        "mb": size,
        "built": wall,
        "processor": processor,
        "opens": opened,
        "kept": kept,
    }


def main() -> None:
    """Measure all sizes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="two rounds")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--long", action="store_true", help="also 8,192 tokens (minutes)")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    rounds = 2 if args.quick else args.rounds
    found = []
    for length, is_causal in ((128, True), (128, False), (512, True), (512, False)):
        patterns = make_patterns(length, is_causal=is_causal)
        name = f"144 x {length}{' causal' if is_causal else ''}"
        found.append(measure(name, patterns, rounds, rounds))
    if args.long:
        found.append(
            measure(
                "144 x 8,192 causal", make_patterns(8192, is_causal=True, on_demand=True), rounds, 1
            )
        )
    if args.json:
        args.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
