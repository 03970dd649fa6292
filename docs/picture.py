"""Make the pictures of pages from real runs; reports are photographed in a real browser.

python docs/picture.py             docs/sorting-*.png: the README's, which is the report, light and
                                   dark; a head; the head with an edge cut. docs/class.png
python docs/picture.py FOLDER      docs/census-page.png, of MiniLM (examples/small_models.py)
"""

import io
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from playwright.sync_api import Browser, Locator, Page, sync_playwright

import attnlab
from attnlab.look import Recording

HERE = Path(__file__).parent
MARGIN = 32

STUDENTS = {
    "Ada Lovelace": {"attention": "", "causal_mask": ""},
    "Alan Turing": {"attention": "no scaling", "causal_mask": ""},
    "Emmy Noether": {"attention": "softmax over queries", "causal_mask": ""},
    "Grace Hopper": {"attention": "no scaling"},
}
"""A class that is made up: the mistake in each answer, "" where it is right."""


def main() -> None:
    """Make the pictures that the arguments ask for."""
    with tempfile.TemporaryDirectory() as folder, opened_browser() as browser:
        if sys.argv[1:]:
            census_page(browser, Path(sys.argv[1]), Path(folder))
            return
        sorting_report(browser, Path(folder))
        class_page(browser, Path(folder))


@contextmanager
def opened_browser() -> Iterator[Browser]:
    """Open chromium."""
    path = shutil.which("chromium")
    if path is None:
        sys.exit(
            "pictures need the browser chromium; install it, for example with: apt-get install "
            "chromium"
        )
    with sync_playwright() as playwright:
        options = ["--no-sandbox", "--disable-gpu"]
        browser = playwright.chromium.launch(executable_path=path, args=options)
        yield browser
        browser.close()


def sorting_report(browser: Browser, folder: Path) -> None:
    """Run the sorter, open its report at the second step of `cab`, and photograph the trace."""
    report = attnlab.run("sorting", out=folder / "sorting")
    assert report.passed
    for scheme in ("light", "dark"):
        page = opened(browser, folder / "sorting" / "report.html", scheme)
        section = page.locator("section", has=page.get_by_role("heading", name="Step by step"))
        section.locator("input[type=text]").fill("cab")
        section.get_by_role("button", name="Next step").click()
        page.mouse.move(0, 0)
        photograph(page, [section], HERE / f"sorting-{scheme}.png")
    draw_heads(report.model)


def draw_heads(model: torch.nn.Module) -> None:
    """Draw where a head looks in the answer to `cab`, and again with an edge cut."""
    plain = attnlab.record(model, "cab", "*.weights")
    with attnlab.edit(model, attnlab.CutEdge(query=4, key=2)):
        edited = attnlab.record(model, "cab", "*.weights")
    attnlab.plot.save(attnlab.plot.head(plain, "0.1"), HERE / "sorting-head.png", dpi=110)
    pair = [_picture(recording) for recording in (plain, edited)]
    both = Image.new("RGB", (pair[0].width + pair[1].width, pair[0].height), "white")
    for number, picture in enumerate(pair):
        both.paste(picture, (number * pair[0].width, 0))
    both.save(HERE / "sorting-edit.png", optimize=True)


def _picture(recording: Recording) -> Image.Image:
    stream = io.BytesIO()
    attnlab.plot.head(recording, "0.1").savefig(stream, format="png", dpi=110)
    return Image.open(stream)


def class_page(browser: Browser, folder: Path) -> None:
    """Grade a class that is made up, and photograph the instructor's page."""
    from attnlab_course.catalog import find_exercise
    from attnlab_course.cells import solution_text
    from attnlab_course.mistakes import with_mistake

    handed_in = folder / "submissions"
    handed_in.mkdir()
    for student, answers in STUDENTS.items():
        for name, mistake in answers.items():
            exercise = find_exercise(name)
            program = solution_text(exercise.source)
            if mistake:
                program = with_mistake(exercise, exercise.mistake(mistake))
            (handed_in / f"{student.replace(' ', '-')}_{name}.py").write_text(program)
    command = ["attnlab", "grade", str(handed_in), "-o", str(folder / "grades")]
    subprocess.run([sys.executable, "-m", *command], check=True)
    page = opened(browser, folder / "grades" / "class.html", "light")
    photograph(page, page.locator("main section, body > section").all()[:2], HERE / "class.png")


def census_page(browser: Browser, model: Path, folder: Path) -> None:
    """Count MiniLM's heads over small sentences, and photograph the first maps of the page."""
    sentences = [
        f"The {animal} that we saw {place} was gone. The {animal} came back."
        for animal in ("cat", "dog", "fox", "owl", "crab")
        for place in ("in the garden", "under the bridge", "on the roof", "behind the old mill")
    ]
    census = attnlab.census(attnlab.load(model), sentences, effects=6)
    attnlab.show(census, out=folder / "census.html")
    page = opened(browser, folder / "census.html", "light")
    page.wait_for_selector("figure.map canvas")
    shown = [page.locator("header").first, *page.locator("figure.map").all()[:2]]
    photograph(page, shown, HERE / "census-page.png")


def opened(browser: Browser, page: Path, scheme: Any) -> Page:
    """Open a page of 1,280 pixels."""
    shown = browser.new_page(
        viewport={"width": 1280, "height": 1600}, color_scheme=scheme, device_scale_factor=1.5
    )
    shown.goto(page.as_uri())
    return shown


def photograph(page: Page, sections: list[Locator], path: Path) -> None:
    """Photograph neighboring sections, with a margin at the sides."""
    page.set_viewport_size({"width": 1280, "height": 4000})
    boxes = [section.bounding_box() for section in sections]
    left, top = min(box["x"] for box in boxes if box), min(box["y"] for box in boxes if box)
    width = max(box["width"] for box in boxes if box)
    bottom = max(box["y"] + box["height"] for box in boxes if box)
    clip = {
        "x": left - MARGIN,
        "y": top + 2,
        "width": width + 2 * MARGIN,
        "height": bottom - top - 4,
    }
    page.screenshot(path=path, clip=clip)  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
