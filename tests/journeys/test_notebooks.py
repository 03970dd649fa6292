"""Notebooks: figures appear by themselves, and pages can be read when the kernel is gone."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("matplotlib")
pytest.importorskip("anywidget")


def pictures(outputs: Sequence[dict[str, Any]]) -> int:
    return sum("image/png" in output.get("data", {}) for output in outputs)


def png(output: dict[str, Any]) -> str:
    return str(output["data"]["image/png"])


def test_a_figure_is_a_picture_once_without_a_magic_and_a_wrong_call_one_sentence(
    kernel: Callable[[str], list[dict[str, Any]]], sorter: Path
) -> None:
    first = f"import attnlab\nrecording = attnlab.record(attnlab.load({str(sorter)!r}), 'cab')"
    assert pictures(kernel(first)) == 0
    cells = {
        "attnlab.plot.heads(recording)": 1,
        "figure = attnlab.plot.heads(recording)\nfigure": 1,
        "attnlab.plot.head(recording, 0, 0)\nattnlab.plot.head(recording, 0, 1)": 2,
        "[attnlab.plot.head(recording, 0, head) for head in range(2)]": 2,
        "for head in range(2):\n    attnlab.plot.head(recording, 0, head)": 2,
        "figure": 1,
        "print('no figure')": 0,
    }
    for code, number in cells.items():
        assert pictures(kernel(code)) == number, code
    alone = [kernel(f"attnlab.plot.head(recording, 0, {head})") for head in range(2)]
    both = kernel("attnlab.plot.head(recording, 0, 0)\nattnlab.plot.head(recording, 0, 1)")
    assert list(map(png, both)) == [png(output) for (output,) in alone]  # in their order
    kernel("%matplotlib inline")
    for code, number in [*cells.items()][:2]:
        assert pictures(kernel(code)) == number, f"with the magic: {code}"
    wrong = f"""
try:
    attnlab.show(attnlab.record(attnlab.load({str(sorter)!r}), "*.weights"))
except attnlab.AttnlabError as error:
    print(error)
"""
    (output,) = kernel(wrong)
    assert "record inputs at once: attnlab.record(model" in output["text"]
    assert output["text"].count("\n") == 1


def test_a_converted_notebook_holds_the_pictures_and_a_model_that_has_answered(
    notebook: Callable[[Sequence[str]], Path], visit: Callable[..., Any], sorter: Path
) -> None:
    cells = [
        f"import attnlab\nmodel = attnlab.load({str(sorter)!r})",
        "attnlab.plot.heads(attnlab.record(model, 'cab'))",
        "attnlab.show(model)",
    ]
    page = visit(notebook(cells), elsewhere=True)
    assert page.locator("img[src^='data:image/png']").count() == 1
    page.locator("iframe").scroll_into_view_if_needed()
    frame = page.frame_locator("iframe")
    frame.get_by_role("heading", name=sorter.name, exact=True).wait_for()
    frame.get_by_text("Step 1 of 3: after").wait_for()
    assert frame.get_by_label("Input", exact=True).input_value() == "cba"
    assert frame.locator("canvas").first.is_visible()
