"""The interactive page: how large it is, how long it takes to make, and how long Chromium takes to
show it, beside BertViz' and attnview's.

    python benchmarks/view.py [--rounds 7] [--parts size opens] [--long]

144 heads, as of a model of 12 layers and 12 heads: of 128 and of 512 tokens, causal and not, with
weights at hand; with `--long` also of 8,192 tokens, made on demand from queries and keys. The
weights are softmax of random scores, half of the heads sharpened: they compress worse than those of
a trained model. One thread. BertViz' pages load their scripts from the network, so how long they
take to open is not measured. The time to open runs from the start of the navigation until the view
says that its first head is drawn, in a new tab each time; the file lies on the disk.
"""

import argparse
import json
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from attnlab import seeds
from attnlab.draw.attention import Pattern
from attnlab.draw.view import view_page
from results import Table, leave_without, measured
from timing import timed

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


def bertviz_page(patterns: list[Pattern]) -> str:
    """Make BertViz' page of all heads."""
    from bertviz import model_view

    weights = [pattern.weights.unsqueeze(0) for pattern in patterns]
    page: str = model_view(weights, list(patterns[0].query_tokens), html_action="return").data
    return page


def attnview_page(patterns: list[Pattern]) -> str:
    """Make attnview's page of all heads."""
    import attnview

    cache = {
        f"blocks.{layer}.attn.hook_pattern": pattern.weights
        for layer, pattern in enumerate(patterns)
    }
    study = attnview.from_cache(cache, tokens=list(patterns[0].query_tokens))
    page: str = attnview.render_html(study)
    return page


MAKERS: dict[str, Callable[[list[Pattern]], str]] = {
    "attnlab": view_page,
    "BertViz": bertviz_page,
    "attnview": attnview_page,
}


def compare_sizes(rounds: int, table: Table) -> None:
    """Make each page of 128 tokens: its size and the time it takes."""
    patterns = make_patterns(128, is_causal=True)
    times: dict[str, list[float]] = {name: [] for name in MAKERS}
    sizes: dict[str, list[float]] = {}
    for _ in range(rounds):
        for name, make in MAKERS.items():
            page, taken = timed(make, patterns)
            times[name].append(taken)
            sizes[name] = [len(page.encode()) / 1e6]
    table.add("size of the page", sizes, unit="MB")
    table.add("to make it", times, unit="s")


def measure(name: str, patterns: list[Pattern], rounds: int, builds: int, table: Table) -> None:
    """Make and open one page of ours."""
    made, page = [], ""
    for _ in range(builds):
        page, taken = timed(view_page, patterns)
        made.append(taken)
    manifest = json.loads(page.split('id="manifest">')[1].split("</script>")[0])
    side = manifest["groups"][0]["cells"][0]
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "view.html"
        place.write_text(page)
        opened = opening_times(place, rounds)
    kept = f"{manifest['levels'] + 1} steps" + (f", squares of {side}" if side > 1 else "")
    table.add(f"{name}, size", {"attnlab": [len(page.encode()) / 1e6]}, unit="MB", note=kept)
    table.add(f"{name}, made", {"attnlab": made}, unit="s")
    table.add(f"{name}, opens, wall time", {"attnlab": opened}, unit="s")


def main() -> None:
    """Measure, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--parts", nargs="+", default=["size", "opens"])
    parser.add_argument("--long", action="store_true", help="also 8,192 tokens (minutes)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rounds, ours = options.rounds, ["attnlab"]
    if "size" in options.parts:
        leave_without("bertviz", "attnview")
        what, packages = "a page of 144 heads, 128 tokens, causal", ("bertviz", "attnview")
        with measured("view", "size", what, ours=ours, packages=packages, rounds=rounds) as table:
            compare_sizes(rounds, table)
    if "opens" in options.parts:
        what = "our page of 144 heads, made and opened in Chromium"
        with measured("view", "opens", what, ours=ours, rounds=rounds) as table:
            for length, is_causal in ((128, True), (128, False), (512, True), (512, False)):
                patterns = make_patterns(length, is_causal=is_causal)
                name = f"{length} tokens{', causal' if is_causal else ''}"
                measure(name, patterns, rounds, rounds, table)
            if options.long:
                patterns = make_patterns(8192, is_causal=True, on_demand=True)
                measure("8,192 tokens, causal", patterns, rounds, 1, table)


if __name__ == "__main__":
    main()
