"""attnlab open: the page of a run, the gallery of a folder of runs, or a page made with --out."""

import os
from pathlib import Path

from attnlab.cli import terminal
from attnlab.cli.resolve_run import find_folder, find_run, is_run, runs_in
from attnlab.errors import CouldNotRun

_PAGES = ("report.html", "view.html", "page.html")  # of a long text, of look and edit, of search


def open_(run: str, /) -> int:
    """Open the report of a run in the browser, or the gallery of a folder of runs.

    Parameters
    ----------
    run
        A run folder, the name of one in runs/, a folder of runs, such as runs/ itself, or a folder
        that look, edit or search wrote with --out.
    """
    import webbrowser

    page = _page_of(run).resolve()
    if webbrowser.open(page.as_uri()):
        terminal.say(f"opened {page}")
    else:
        terminal.say(f"no browser was found here; open this file in one: {page}")
    return 0


def _page_of(run: str) -> Path:
    here = find_folder(run)
    if not is_run(here):
        # Unlike Path, os.path returns False for a name that is too long.
        pages = [here / name for name in _PAGES if os.path.isfile(here / name)]
        if pages:
            return pages[0]
        if runs_in(here):
            from attnlab.experiments.gallery import write_gallery

            return write_gallery(here)
    page = _with_report(find_run(run)) / "report.html"
    if not page.is_file():
        raise CouldNotRun(f"{page.parent.resolve()} has no report.html; was it moved away?")
    return page


def _with_report(folder: Path) -> Path:
    """Check that a run is finished; save the report of a population's member when it is needed."""
    from attnlab.experiments.folder import read_run

    if os.path.isfile(folder / "config.json"):
        read_run(folder)
        return folder
    from attnlab.experiments.population import open_run_or_member

    return open_run_or_member(folder).save(folder)
