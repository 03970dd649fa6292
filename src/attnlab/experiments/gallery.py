"""The gallery: one page over all the runs of a folder, written beside them as `index.html`."""

import os
from pathlib import Path
from typing import Any

from attnlab.draw.gallery import render_gallery
from attnlab.errors import CouldNotRun
from attnlab.experiments.folder import list_runs, read_run
from attnlab.files import write_text

__all__ = ["write_gallery"]


def write_gallery(parent: Path, page: Path | None = None) -> Path:
    """Write one page over all runs inside `parent`, by default beside them; return its path.

    Raises:
        CouldNotRun: the folder is not there, holds no run, or cannot be written.
    """
    runs = list_runs(parent)
    if not runs:
        raise CouldNotRun(f"{parent} holds no runs yet; make some with: attnlab run all")
    page = page or parent / "index.html"
    name = parent.resolve().name
    title = "Runs" if name == "runs" else f"Runs in {name}"
    write_text(page, render_gallery(title, [_card(run, page.parent) for run in reversed(runs)]))
    return page


def _card(run: dict[str, Any], beside: Path) -> dict[str, Any]:
    folder = Path(run["run"])
    there = Path(os.path.relpath(folder.parent.resolve(), beside.resolve()))
    card = {
        "name": folder.name,
        "href": (there / folder.name / "report.html").as_posix(),
        "experiment": run["what"],
        "title": folder.name,
        "subtitle": "",
        "seed": "" if run["seed"] is None else run["seed"],
        "started": str(run["started"] or "").replace("T", " ").removesuffix("+00:00"),
        "state": run["state"],
        "claims": [],
        "thumbnail": None,
    }
    if run["state"] == "finished":
        _, claims, _, document = read_run(folder)
        card |= {
            "title": document["title"],
            "subtitle": document["subtitle"],
            "claims": [claim.to_mapping() for claim in claims],
            "thumbnail": _thumbnail(folder, document),
        }
    return card


def _thumbnail(folder: Path, document: dict[str, Any]) -> bytes | None:
    """Return the report's first figure as PNG, if there is one."""
    names = [section["figure"] for section in document["sections"] if "figure" in section]
    picture = folder / "figures" / f"{names[0]}.png" if names else None
    return picture.read_bytes() if picture is not None and picture.is_file() else None
