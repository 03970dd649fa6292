"""Make the README's picture: the report of a real run, photographed in a real browser, light and
dark.

python docs/picture.py          writes docs/sorting-light.png and docs/sorting-dark.png
"""

import shutil
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

import attnlab

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


if __name__ == "__main__":
    main()
