"""The routes of the room Sweeps: the list, and all cells of one of them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from starlette.responses import Response

from attnlab.lab.server.answers import Answers
from attnlab.lab.server.populations import list_kind


def add_sweeps(app: FastAPI, runs: Path, find_run: Callable[[str], Path], answers: Answers) -> None:
    """Add the routes; `find_run` finds the folder of a run, finished or not, by its name."""

    @app.get("/api/sweeps")
    async def sweeps() -> list[dict[str, Any]]:
        return await list_kind(runs, "sweep")

    @app.get("/api/sweeps/{name}")
    async def sweep(name: str) -> Response:
        return (await answers.ask("sweep", {"folder": str(find_run(name))})).sent()
