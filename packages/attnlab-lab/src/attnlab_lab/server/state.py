"""What the routes share: the runs, the jobs, the processes that answer."""

import asyncio
import os
import re
from pathlib import Path

from attnlab.experiments.folder import ListedRun, list_runs, read_run
from attnlab_lab.server.answers import Answers
from attnlab_lab.server.jobs import Jobs, NotFound

_OPENING_SECONDS = 600.0
"""How long opening a model may take: a GGUF file is converted first."""


class Lab:
    """The runs, the jobs, the answers, and whether the server ends."""

    def __init__(self, runs: Path) -> None:
        self.runs, self.jobs, self.answers = runs, Jobs(runs), Answers()
        self.models = Answers(_OPENING_SECONDS)  # processes of their own, as they answer slowly
        self.proofs, self.checks = Answers(), Answers()
        self.is_closing = False

    async def close(self) -> None:
        """End the processes that answer, and the jobs."""
        for process in (self.answers, self.models, self.proofs, self.checks):
            process.close()
        await self.jobs.close()

    async def list_runs(self) -> list[ListedRun]:
        """Describe the runs, the oldest first; there are none where their folder is missing."""
        if not self.runs.is_dir():
            return []
        return await asyncio.to_thread(list_runs, self.runs)

    def run(self, name: str) -> Path:
        """Return the folder of a run in the folder of runs, and nowhere else."""
        if name not in ("", ".", "..") and not any(sign in name for sign in "/\\\0"):
            folder = (self.runs / name).resolve()
            is_inside = folder.parent == self.runs.resolve() and folder.name == name
            if is_inside and os.path.isfile(folder / "config.json"):  # no error for a long name
                return folder
        raise NotFound(f"there is no run {name[:80]!r}.")

    def model(self, name: str) -> Path:
        """Return the folder of a finished run, or of a member of a population: `runs/NAME/17`."""
        name, slash, member = name.partition("/")
        folder = self.run(name)
        read_run(folder)  # which says what is wrong with one that is not finished
        if not slash:
            return folder
        if not re.fullmatch(r"[0-9]+(-[0-9]+)?", member):
            raise NotFound(f"there is no seed {member[:80]!r}.")
        return folder / member
