"""`attnlab open`: the page of a run, the gallery over a folder of runs, or what look, edit or find left."""

import os
import tempfile
from pathlib import Path

from attnlab.cli import terminal
from attnlab.cli.finding import find_run, is_run, runs_in
from attnlab.errors import CouldNotRun
from attnlab.files import CouldNotWrite

__all__ = ["open_"]

_PAGES = ("report.html", "view.html", "page.html")  # of a document, of look and edit, of find


def open_(run: str, /) -> int:
    """Open a report in the browser, or the gallery over all runs of a folder.

    Parameters
    ----------
    run
        A run folder, the name of one in runs/, a folder that holds runs, such as runs/ itself, or what look, edit or
        find left with --out.
    """
    import webbrowser

    here = Path(run)
    # unlike Path, os.path answers False for a name too long
    pages = [here / name for name in _PAGES if os.path.isfile(here / name)]
    if pages and not is_run(here):
        page = pages[0].resolve()
    elif not is_run(here) and runs_in(here):
        page = _gallery(here).resolve()
    else:
        page = (_with_page(find_run(run)) / "report.html").resolve()
        if not page.is_file():
            raise CouldNotRun(f"{page.parent} has no report.html; was it moved away?")
    if webbrowser.open(page.as_uri()):
        terminal.say(f"opened {page}")
    else:
        terminal.say(f"no browser was found here; open this file in one: {page}")
    return 0


def _gallery(parent: Path) -> Path:
    """Write the gallery into its folder, or where that may not be written, into a folder of its own."""
    from attnlab.experiments.gallery import write_gallery

    try:
        return write_gallery(parent)
    except CouldNotWrite:
        return write_gallery(parent, _aside() / "index.html")


def _with_page(folder: Path) -> Path:
    """Check that a run is finished; save a population's member, which has no page before somebody asks for it."""
    from attnlab.experiments.folder import read_run

    if os.path.isfile(folder / "config.json"):
        read_run(folder)
        return folder
    from attnlab.experiments.population import open_run

    report = open_run(folder)
    try:
        return report.save(folder)
    except CouldNotWrite:
        return report.save(_aside() / folder.name)


def _aside() -> Path:
    return Path(tempfile.mkdtemp(prefix="attnlab-"))
