"""`open`: whatever attnlab keeps in a folder, by the files in it."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from attnlab.errors import CouldNotRun
from attnlab.experiments.folder import RunKind, read_config, run_kind
from attnlab.experiments.model_loader import similar
from attnlab.experiments.population import (
    Population,
    is_member,
    open_population,
    open_run_or_member,
)
from attnlab.experiments.report import Report
from attnlab.experiments.sweeps import Sweep, open_sweep
from attnlab.experiments.tune import Search, open_search
from attnlab.look import Recording, open_recording
from attnlab.look.census import Census, HeadVis, open_census, open_headvis
from attnlab.look.corpus import CorpusSearch
from attnlab.look.corpus import open_corpus_search as open_corpus_search
from attnlab.look.long_text import Document, open_document
from attnlab.programs import CompiledProgram, open_compiled

OpenedResult: TypeAlias = (
    Report
    | Population
    | Sweep
    | Search
    | Recording
    | Document
    | CorpusSearch
    | Census
    | HeadVis
    | CompiledProgram
)

_FILES: dict[str, Callable[[Path], OpenedResult]] = {
    "recording.json": open_recording,
    "recording/recording.json": open_recording,
    "document.json": open_document,
    "search.json": open_corpus_search,
    "census.json": open_census,
    "scatter_data.json": open_headvis,
    "program.json": open_compiled,
}
_RUNS: dict[RunKind, Callable[[Path], OpenedResult]] = {
    "run": open_run_or_member,
    "population": open_population,
    "sweep": open_sweep,
    "search": open_search,
}


def open(path: Path | str) -> OpenedResult:
    """Open a folder that attnlab wrote, by the files in it.

    Args:
        path: the folder of a run, a population, a member of one (`runs/sorting-64-seeds/17`), a
            sweep, a hyper-parameter search, a recording, a summarized long text, a corpus search, a
            census or a compiled program; or one of HeadVis.

    Raises:
        WrongUsage: the population has no such member.
        CouldNotRun: the folder holds none of these, is unfinished, or a file of it is damaged.

    Returns:
        what was returned when the folder was made: a `Report`, a `Population`, a `Sweep`, a
        `Search`, a `Recording`, a `Document`, a `CorpusSearch`, a `Census` or a `CompiledProgram`;
        a `HeadVis` for a folder of HeadVis.

    >>> open("runs/no")
    Traceback (most recent call last):
        ...
    attnlab.errors.CouldNotRun: there is no folder runs/no.
    """
    folder = Path(path)
    for file, open_it in _FILES.items():
        if os.path.isfile(folder / file):
            return open_it(folder)
    config = read_config(folder)
    if config is not None:
        return _RUNS[run_kind(config)](folder)
    if is_member(folder) or os.path.isfile(folder / "config.json"):
        return open_run_or_member(folder)  # which refuses a saved model, and says what loads it
    if not os.path.isdir(folder):
        raise CouldNotRun(f"there is no folder {folder}.{similar(folder)}")
    raise CouldNotRun(
        f"{folder} holds nothing to open: no config.json (a run, population, sweep or "
        "hyper-parameter search), recording.json (a recording), document.json (a long text), "
        "search.json (a corpus search), census.json (a census), program.json (a compiled program) "
        "or scatter_data.json (HeadVis)."
    )
