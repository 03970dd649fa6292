"""A picture of the large map carries its page's link: dropped on any such page, it is followed."""

import base64
import html
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.sampling import sampled

from .playing import Open, edits, rested, settled

LINK = "#v=1&room=bench&seed=3&in=bca&edits=c0.1.3.0,z0.0&at=40"
DROP = """([name, content]) => {
  const bytes = Uint8Array.from(atob(content), (letter) => letter.charCodeAt(0));
  const dataTransfer = new DataTransfer();
  dataTransfer.items.add(new File([bytes], name));
  for (const kind of ["dragover", "drop"]) {
    const event = { bubbles: true, cancelable: true, dataTransfer };
    document.body.dispatchEvent(new DragEvent(kind, event));
  }
}"""


def picture(page: Any, kind: str, folder: Path) -> Path:
    """Download the picture of the map."""
    with page.expect_download() as download:
        page.get_by_role("button", name=f"Download the map as {kind.upper()}").click()
    path = folder / download.value.suggested_filename
    download.value.save_as(path)
    return path


def carried_in(path: Path) -> Any:
    """Read the JSON that a picture carries: a chunk of a PNG, the metadata of an SVG."""
    content = path.read_bytes()
    if path.suffix == ".svg":
        found = re.search(r'<metadata id="attnlab">(.*?)</metadata>', content.decode(), re.DOTALL)
        assert found is not None
        return json.loads(html.unescape(found[1]))
    head = b"iTXtattnlab\0\0\0\0\0"
    at = content.index(head)
    size = int.from_bytes(content[at - 4 : at], "big")
    return json.loads(content[at + len(head) : at + 4 + size])


def drop(page: Any, path: Path) -> None:
    page.evaluate(DROP, [path.name, base64.b64encode(path.read_bytes()).decode()])


@pytest.mark.parametrize("kind", sampled(["svg", "png"], 1))
def test_a_picture_brings_back_what_its_page_showed(open_lab: Open, tmp_path: Path, kind: str):
    page = rested(open_lab(LINK))
    made = edits(page)
    assert len(made) == 2
    path = picture(page, kind, tmp_path)
    assert path.name == f"attnlab-head-0.0.{kind}"
    found = carried_in(path)
    assert found["link"] == page.evaluate("location.hash")
    assert found["seed"] == 3
    assert "attnlab.CutEdge(layer=0, head=1, query=3, key=0)" in found["code"]
    other = rested(open_lab("#room=play&at=1"))
    drop(other, path)
    other.wait_for_function("link => location.hash === link", arg=found["link"])
    rested(other)
    assert edits(other) == made
    assert other.get_by_label("Input", exact=True).input_value() == "bca"


def test_an_svg_shows_every_weight_and_every_cut(open_lab: Open, tmp_path: Path):
    page = rested(open_lab(LINK.replace(",z0.0", "")))
    page.locator(".thumbs").get_by_role("radio").nth(1).click()
    path = picture(settled(page), "svg", tmp_path)
    text = path.read_text()
    assert text.count("×") == 1
    shown = re.findall(r">(?:&lt;)?[.\d]+</text>", text)
    assert len(shown) == 20  # of 21 that are not masked, one is cut
    assert carried_in(path)["attnlab"] == 1
