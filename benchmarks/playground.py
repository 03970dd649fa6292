"""The playground in Chromium: how long until it has learned every input, from a click to the
changed picture, and how many bytes it is.

    python benchmarks/playground.py [--rounds 7] [--clicks 60] [--json FILE]

Each round opens the page from a server on this machine in a new context, with another seed.
Times run from the start of the navigation: to the first picture, which can be clicked already, to
the first picture of 27 right inputs, and to the end of the training. A click is timed from the
release of the button until edits, dots and maps are drawn anew, and until the next frame began.
"""

import argparse
import functools
import gzip
import http.server
import json
import shutil
import statistics
import tempfile
import threading
from pathlib import Path
from typing import Any

from attnlab_lab.static import write_static

FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]

WATCH = """
window.told = { clicks: [] };
let released = 0;
addEventListener('pointerup', event => { released = event.timeStamp; }, true);
document.addEventListener('DOMContentLoaded', () => {
  new MutationObserver(() => {
    const now = performance.now();
    const score = document.querySelector('.big')?.textContent ?? '';
    if (score) told.first ??= now;
    if (score.startsWith('27 of 27')) told.all ??= now;
    if (document.body.dataset.state === 'done') told.done ??= now;
    const edits = [...document.querySelectorAll('.edits li')].map(each => each.textContent).join();
    const isChanged = told.edits !== edits;
    told.edits = edits;
    if (!released || !isChanged) return;
    const start = released;
    released = 0;
    const click = { drawn: now - start };
    told.clicks.push(click);
    requestAnimationFrame(() => { click.frame = performance.now() - start; });
  }).observe(document.body, { childList: true, subtree: true, attributes: true });
});
"""


class Quiet(http.server.SimpleHTTPRequestHandler):
    """A server that prints nothing."""

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


def open_page(browser: Any, address: str) -> tuple[Any, Any]:
    """Open the page in a new context, and wait until its model is trained."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.add_init_script(WATCH)
    page.goto(address)
    page.wait_for_selector("body[data-state=done]", timeout=120_000)
    return context, page


def click_squares(page: Any, clicks: int) -> list[dict[str, float]]:
    """Cut and mend edges of both heads, one click at a time."""
    canvases = page.locator("canvas.heatmap")
    for number in range(clicks):
        query, key, head = 3 + number % 3, number % 4, number // 3 % 2
        canvas = canvases.nth(head)
        box, told = canvas.bounding_box(), canvas.evaluate("node => ({...node.dataset})")
        page.mouse.click(
            box["x"] + float(told["left"]) + (key + 0.5) * float(told["cellWidth"]),
            box["y"] + float(told["top"]) + (query + 0.5) * float(told["cellHeight"]),
        )
        while page.evaluate("told.clicks.length") <= number:
            page.wait_for_timeout(20)
        page.wait_for_timeout(50)
    found: list[dict[str, float]] = page.evaluate("told.clicks")
    return found


def spread(values: list[float], unit: str, digits: int) -> str:
    """Median, least and most."""
    low, high = min(values), max(values)
    middle = statistics.median(values)
    return f"{middle:.{digits}f} {unit} ({low:.{digits}f} to {high:.{digits}f})"


def measure(rounds: int, clicks: int) -> dict[str, Any]:
    """Open the page again and again, and click in it the last time."""
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder:
        write_static(folder)
        sizes = {
            path.name: len(gzip.compress(path.read_bytes(), 9)) for path in Path(folder).iterdir()
        }
        handler = functools.partial(Quiet, directory=folder)
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        times: list[dict[str, float]] = []
        clicked: list[dict[str, float]] = []
        with sync_playwright() as driver:
            chromium = driver.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
            for seed in range(1, rounds + 1):
                address = f"http://127.0.0.1:{server.server_port}/index.html#seed={seed}"
                context, page = open_page(chromium, address)
                times.append(
                    page.evaluate("({ first: told.first, all: told.all, done: told.done })")
                )
                if seed == rounds:
                    clicked = click_squares(page, clicks)
                context.close()
            chromium.close()
        server.shutdown()
    return {"bytes": sizes, "times": times, "clicks": clicked}


def main() -> None:
    """Measure, print, and write JSON where asked."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--clicks", type=int, default=60)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    found = measure(asked.rounds, asked.clicks)
    names = {"first": "first picture", "all": "27 of 27", "done": "end of the training"}
    for key, name in names.items():
        values = [each[key] / 1000 for each in found["times"] if each.get(key) is not None]
        solved = f"  {len(values)} of {asked.rounds} seeds" if key == "all" else ""
        print(f"{name:20} {spread(values, 's', 2)}{solved}")
    for key, name in {"drawn": "click to drawn", "frame": "click to next frame"}.items():
        values = sorted(each[key] for each in found["clicks"])
        p95 = values[int(0.95 * (len(values) - 1))]
        print(f"{name:20} {spread(values, 'ms', 1)}, p95 {p95:.1f} ms, {len(values)} clicks")
    sizes = found["bytes"]
    print(f"{'bytes, gzip':20} {sum(sizes.values()):,}: {sizes}")
    if asked.json:
        asked.json.write_text(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
