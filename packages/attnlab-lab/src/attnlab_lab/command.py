"""attnlab lab: serve the lab, or write the playground, in which a model trains in the browser."""

from pathlib import Path
from tempfile import TemporaryDirectory

from attnlab.cli import terminal
from attnlab.cli.options import OptionalWholeNumber, Switch
from attnlab.cli.resolve_run import RUNS
from attnlab.errors import WrongUsage


def lab(
    *,
    runs: Path = RUNS,
    port: OptionalWholeNumber = None,
    no_browser: Switch = False,
    static: Path | None = None,
) -> int:
    """Open the lab in the browser: a playground, and runs that start, pause and resume.

    Parameters
    ----------
    runs
        The folder that holds the run folders, created if needed.
    port
        The port on this machine; by default one that is free.
    no_browser
        Only print the address.
    static
        Instead of serving, write the playground into this folder: index.html and two files beside
        it, for any web host, or to open from disk.
    """
    from attnlab_lab.server.start import serve
    from attnlab_lab.static import write_served, write_static

    for name, folder in (("--static", static), ("--runs", runs)):
        if folder is not None and folder.exists() and not folder.is_dir():
            raise WrongUsage(f"{name} must be a folder; {folder} is a file.")
    if static is not None:
        terminal.say(f"open {(write_static(static) / 'index.html').resolve()}")
        return 0
    if port is not None and not 1 <= port <= 65_535:
        raise WrongUsage(f"--port must be from 1 to 65,535; got {port}.")
    with TemporaryDirectory(prefix="attnlab-") as assets:
        serve(runs, port, not no_browser, write_served(assets, runs))
    return 0
