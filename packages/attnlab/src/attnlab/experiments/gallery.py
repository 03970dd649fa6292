"""The gallery: one page over all the runs of a folder, written beside them as `index.html`."""

import os
from dataclasses import replace
from pathlib import Path

from attnlab.core.store import write_text
from attnlab.draw.gallery import GalleryRun, render_gallery
from attnlab.draw.sections import FigureSection, ReportContent
from attnlab.errors import CouldNotRun
from attnlab.experiments.folder import ListedRun, list_runs, read_run

_LEGIBLE = 1_100  # pixels that a figure is wide at most, for its words to be legible on a card


def write_gallery(parent: Path, page: Path | None = None) -> Path:
    """Write one page over all runs inside `parent`, by default beside them; return its path.

    Raises:
        CouldNotRun: the folder is not there, holds no run, or cannot be written.
    """
    runs = list_runs(parent)
    if not runs:
        raise CouldNotRun(f"{parent} holds no runs yet; make some with: attnlab run all")
    page = page or parent / "index.html"
    title = "Runs"
    if parent.resolve().name != "runs":
        title = f"Runs in {parent.resolve().name}"
    write_text(page, render_gallery(title, [_card(run, page.parent) for run in reversed(runs)]))
    return page


def _card(run: ListedRun, beside: Path) -> GalleryRun:
    folder = Path(run["run"])
    there = Path(os.path.relpath(folder.parent.resolve(), beside.resolve()))
    seed: int | str = ""
    if run["seed"] is not None:
        seed = run["seed"]
    card = GalleryRun(
        name=folder.name,
        href=(there / folder.name / "report.html").as_posix(),
        experiment=run["what"],
        title=folder.name,
        subtitle="",
        seed=seed,
        started=(run["started"] or "").replace("T", " ").removesuffix("+00:00"),
        state=run["state"],
    )
    if run["state"] != "finished":
        return card
    files = read_run(folder)
    return replace(
        card,
        title=files.content.title,
        subtitle=files.content.subtitle,
        claims=files.claims,
        thumbnail=_thumbnail(folder, files.content),
    )


def _thumbnail(folder: Path, content: ReportContent) -> bytes:
    """Return the report's first figure that is legible on a card, or its first; empty if none."""
    first = b""
    for section in content.sections:
        if isinstance(section, FigureSection) and section.figure is not None:
            file = folder / "figures" / f"{section.figure}.png"
            picture = file.read_bytes() if file.is_file() else b""
            if 0 < int.from_bytes(picture[16:20], "big") <= _LEGIBLE:
                return picture
            first = first or picture
    return first
