"""The model of the page: its task and size by controls, saved for torch, opened from files."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import attnlab
from attnlab.models import Decoder, DecoderConfig, generate

from .playing import Open, answers, click_cell, dots, edits, enter, rested, trained


def choose(page: Any, **settings: str) -> None:
    for name, value in settings.items():
        field = page.get_by_label(name.title(), exact=True)
        if name == "seed":
            field.fill(value)
            field.press("Enter")
        else:
            field.select_option(label=value)


@pytest.mark.slow
def test_another_task_and_size_are_trained_at_once_and_kept_in_the_link(open_lab: Open) -> None:
    page = trained(open_lab())
    choose(page, task="Reverse", letters="2", heads="3", seed="7")
    page.wait_for_selector("body[data-state=trains]")
    trained(page)
    assert page.get_by_role("heading", level=1).inner_text() == "A transformer learns to reverse"
    assert page.url.endswith("#v=1&room=play&seed=7&in=bab&task=reverse&letters=2&heads=3")
    assert answers(page) == ["bab"]
    assert len(dots(page)) == 8
    assert page.locator("canvas.heatmap").count() == 3


def saved(page: Any, folder: Path) -> Path:
    """Save the model, as a reader would who puts both files into one folder."""
    found: list[Any] = []

    def hear(download: Any) -> None:
        found.append(download)

    page.on("download", hear)
    page.get_by_role("button", name="Save it").click()
    page.get_by_text("Two files are saved.").wait_for()
    while len(found) < 2:
        page.wait_for_timeout(20)
    for each in found:
        each.save_as(folder / each.suggested_filename)
    return folder


def give(page: Any, *paths: Path) -> None:
    page.locator("input[type=file]").set_input_files(paths)


def files(folder: Path) -> tuple[Path, Path]:
    return folder / "config.json", folder / "model.safetensors"


def test_a_model_of_the_page_is_the_same_in_torch_and_again(open_lab: Open, tmp_path: Path) -> None:
    page = rested(open_lab("#at=60&seed=3"))
    right = dots(page)
    folder = saved(page, tmp_path)
    model = attnlab.load(folder)
    assert next(model.parameters()).dtype == torch.float64
    texts = [["abc".index(letter) + 1 for letter in text] for text in right]
    inputs = torch.tensor([[*text, 0] for text in texts])
    found = generate(model, inputs, 3, forbidden=[0]).tokens[:, 4:].tolist()
    wanted = [sorted(text) for text in texts]
    assert [one == other for one, other in zip(found, wanted, strict=True)] == [*right.values()]

    again = rested(open_lab("#at=1&task=copy&letters=2"))
    give(again, *files(folder))
    trained(again)
    assert dots(again) == right
    assert "file=1" in again.url
    assert not again.get_by_role("button", name="Again", exact=False).is_visible()
    click_cell(again, 1, 3, 0)
    assert len(edits(again)) == 1
    enter(again, "Bench")
    assert len(edits(again)) == 1
    again.reload()
    told = "The model of this link was opened from files"
    assert again.locator("#notice").inner_text().startswith(told)


@pytest.mark.slow
def test_a_folder_of_a_run_is_dropped_and_opens_in_the_bench(open_lab: Open, sorter: Path) -> None:
    page = open_lab("#room=design")
    page.evaluate(DROP, [[path.name, list(path.read_bytes())] for path in files(sorter)])
    trained(page)
    assert page.locator(".bench").is_visible()
    assert page.locator("#subtitle").inner_text().startswith("It was opened from its files.")
    report = attnlab.open(sorter)
    assert f"{sum(each.numel() for each in report.model.parameters())} numbers" in (
        page.locator("#subtitle").inner_text()
    )
    assert list(dots(page).values()) == [True] * 27


DROP = """files => {
  const make = ([name, bytes]) => [name, new File([new Uint8Array(bytes)], name)];
  const entries = new Map(files.map(make));
  const folder = {
    isDirectory: true,
    getFile: (name, options, done, fail) =>
      entries.has(name) ? done({ file: (take) => take(entries.get(name)) }) : fail(),
  };
  const event = new Event("drop", { bubbles: true, cancelable: true });
  event.dataTransfer = { types: ["Files"], items: [{ webkitGetAsEntry: () => folder }] };
  document.dispatchEvent(event);
}"""


def large(folder: Path) -> None:
    attnlab.save_model(Decoder(DecoderConfig(num_heads=4, d_model=8, num_layers=5)), folder)


def damage(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-8])


def rename(folder: Path) -> None:
    config = folder / "config.json"
    config.write_text(config.read_text().replace('"letters": 3', '"letters": 9'))


def empty(folder: Path) -> None:
    (folder / "config.json").write_text("{}")


def remove(folder: Path) -> None:
    (folder / "config.json").rename(folder / "other.json")


HARMS: dict[Callable[[Path], object], str] = {
    large: "Expected a config.json of a sorter",
    damage: "This is no usable safetensors file",
    rename: "This page takes models of 2 to 4 letters",
    empty: "Expected a config.json of a sorter",
    remove: "Expected config.json and model.safetensors of a run or a saved model, or a picture",
}


def test_files_that_hold_no_such_model_are_refused_and_the_old_one_stays(
    open_lab: Open, sorter: Path, tmp_path: Path
) -> None:
    page = rested(open_lab("#at=20"))
    before = dots(page)
    for harm, words in HARMS.items():
        folder = Path(shutil.copytree(sorter, tmp_path / harm.__name__))
        harm(folder)
        names = ("config.json", "other.json", "model.safetensors")
        give(page, *(folder / name for name in names if (folder / name).exists()))
        page.locator("#notice", has_text=f"The model is not opened. {words}").wait_for()
        assert dots(page) == before
