"""A converted notebook: figures appear by themselves, and pages can be read without the kernel."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.journeys.conftest import Home

pytest.importorskip("matplotlib")
pytest.importorskip("anywidget")
nbformat = pytest.importorskip("nbformat")
pytest.importorskip("nbconvert")

CELLS = {  # how many pictures stand below each
    "recording = attnlab.record(model, 'cab')": 0,
    "attnlab.plot.heads(recording)": 1,
    "figure = attnlab.plot.heads(recording)\nfigure": 1,
    "attnlab.plot.head(recording, 0, 0)": 1,
    "attnlab.plot.head(recording, 0, 1)": 1,
    "attnlab.plot.head(recording, 0, 0)\nattnlab.plot.head(recording, 0, 1)": 2,
    "[attnlab.plot.head(recording, 0, head) for head in range(2)]": 2,
    "for head in range(2):\n    attnlab.plot.head(recording, 0, head)": 2,
    "figure  # once more": 1,
    "print('no figure')": 0,
    "%matplotlib inline\nattnlab.plot.heads(recording)": 1,
    "figure = attnlab.plot.heads(recording)\nfigure  # with the magic": 1,
}
WRONG = """try:
    attnlab.show(attnlab.record(model, "*.weights"))
except attnlab.AttnlabError as error:
    print(error)"""


def test_figures_are_pictures_a_wrong_call_is_one_sentence_and_a_model_has_answered(
    home: Home, visit: Callable[..., Any], sorter: Path
) -> None:
    first = f"import attnlab\nmodel = attnlab.load({str(sorter)!r})"
    sources = [first, *CELLS, WRONG, "attnlab.show(model)"]
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), home.here / "notebook.ipynb")
    home.run("python -m nbconvert --execute --to html notebook.ipynb")
    page = visit(home.here / "notebook.html", elsewhere=True)
    shown = dict(zip(sources, page.locator(".jp-CodeCell").all(), strict=True))
    pictures = {
        source: [image.get_attribute("src") for image in cell.locator("img").all()]
        for source, cell in shown.items()
    }
    assert {source: len(pictures[source]) for source in CELLS} == CELLS
    alone = [pictures[f"attnlab.plot.head(recording, 0, {head})"] for head in range(2)]
    assert [*alone[0], *alone[1]] == pictures["\n".join([*CELLS][3:5])]  # in their order
    assert alone[0][0].startswith("data:image/png")
    (said,) = shown[WRONG].locator(".jp-OutputArea-output").all_inner_texts()
    assert "record inputs at once: attnlab.record(model" in said
    assert len(said.splitlines()) == 1
    page.locator("iframe").scroll_into_view_if_needed()
    frame = page.frame_locator("iframe")
    frame.get_by_role("heading", name=sorter.name, exact=True).wait_for()
    frame.get_by_text("Step 1 of 3: after").wait_for()
    assert frame.get_by_label("Input", exact=True).input_value() == "cba"
    assert frame.locator("canvas").first.is_visible()
