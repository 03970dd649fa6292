"""Make the pictures of the sorter from a real run.

python docs/picture.py          writes docs/sorting-*.png: the README's, which is the report in a
                                real browser, light and dark; a head; the head with an edge cut
"""

import io
import shutil
import sys
import tempfile
from pathlib import Path

import torch
from PIL import Image
from playwright.sync_api import sync_playwright

import attnlab
from attnlab.look import Recording

HERE = Path(__file__).parent


def main() -> None:
    """Run the sorter, open its report at the second step of `cab`, and photograph the trace."""
    browser_path = shutil.which("chromium")
    if browser_path is None:
        sys.exit(
            "the picture needs the browser chromium; install it, for example with: apt-get "
            "install chromium"
        )
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        report = attnlab.run("sorting", out=Path(folder) / "sorting")
        browser = playwright.chromium.launch(
            executable_path=browser_path, args=["--no-sandbox", "--disable-gpu"]
        )
        for scheme in ("light", "dark"):
            page = browser.new_page(
                viewport={"width": 1280, "height": 1600},
                color_scheme=scheme,
                devicescale_factor=1.5,
            )
            page.goto((Path(folder) / "sorting" / "report.html").as_uri())
            section = page.locator("section", has=page.get_by_role("heading", name="Step by step"))
            section.locator("input[type=text]").fill("cab")
            section.get_by_role("button", name="Next step").click()
            page.mouse.move(0, 0)
            section.scroll_into_view_if_needed()
            box = section.bounding_box()
            assert box is not None
            margin = 32
            clip = {
                "x": box["x"] - margin,
                "y": box["y"] + 2,
                "width": box["width"] + 2 * margin,
                "height": box["height"] - 4,
            }
            page.screenshot(path=HERE / f"sorting-{scheme}.png", clip=clip)
        browser.close()
        assert report.passed
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


if __name__ == "__main__":
    main()
