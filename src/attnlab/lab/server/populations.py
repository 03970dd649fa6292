"""The routes of the rooms Populations and Sweeps: the list, and all that one of them holds."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

from fastapi import FastAPI, Query
from starlette.responses import Response

from attnlab.experiments.folder import Kind, list_runs
from attnlab.lab.server.answers import Answers


def add_populations(
    app: FastAPI, runs: Path, folder_of: Callable[[str], Path], answers: Answers
) -> None:
    """Add the routes; `folder_of` finds the folder of a finished run by its name."""

    @app.get("/api/populations")
    async def populations() -> list[dict[str, object]]:
        return await _list_kind(runs, "population")

    @app.get("/api/populations/{name}")
    async def population(
        name: str, text: Annotated[str, Query(max_length=10_000)] = ""
    ) -> Response:
        return await answers.ask("members", {"folder": str(folder_of(name)), "text": text})

    @app.get("/api/populations/{name}/{member}")
    async def member(name: str, member: str) -> Response:
        return await answers.ask("member", {"folder": str(folder_of(name)), "member": member})


def add_sweeps(app: FastAPI, runs: Path, find_run: Callable[[str], Path], answers: Answers) -> None:
    """Add the routes; `find_run` finds the folder of a run, finished or not, by its name."""

    @app.get("/api/sweeps")
    async def sweeps() -> list[dict[str, object]]:
        return await _list_kind(runs, "sweep")

    @app.get("/api/sweeps/{name}")
    async def sweep(name: str) -> Response:
        return await answers.ask("sweep", {"folder": str(find_run(name))})


async def _list_kind(runs: Path, kind: Kind) -> list[dict[str, object]]:
    """List the runs of one kind, the newest first."""
    found: list[dict[str, object]] = []
    if not runs.is_dir():
        return found
    for each in reversed(await asyncio.to_thread(list_runs, runs)):
        if each["kind"] == kind:
            facts = {key: each[key] for key in ("what", "members", "started", "state")}
            found.append({"name": Path(each["run"]).name, **facts})
    return found
