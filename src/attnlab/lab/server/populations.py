"""The routes of the room Populations: the list, and all that one of them holds."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI, Query
from starlette.responses import Response

from attnlab.experiments.folder import Kind, list_runs
from attnlab.lab.server.answers import Answers


def add_populations(
    app: FastAPI, runs: Path, folder_of: Callable[[str], Path], answers: Answers
) -> None:
    """Add the routes; `folder_of` finds the folder of a finished run by its name."""

    @app.get("/api/populations")
    async def populations() -> list[dict[str, Any]]:
        return await list_kind(runs, "population")

    @app.get("/api/populations/{name}")
    async def population(
        name: str, text: Annotated[str, Query(max_length=10_000)] = ""
    ) -> Response:
        return (await answers.ask("members", {"folder": str(folder_of(name)), "text": text})).sent()

    @app.get("/api/populations/{name}/{member}")
    async def member(name: str, member: str) -> Response:
        return (
            await answers.ask("member", {"folder": str(folder_of(name)), "member": member})
        ).sent()


async def list_kind(runs: Path, kind: Kind) -> list[dict[str, Any]]:
    """List the runs of one kind, the newest first."""
    found = await asyncio.to_thread(list_runs, runs) if runs.is_dir() else []
    kept = ("what", "members", "started", "state")
    return [
        {"name": Path(each["run"]).name, **{key: each[key] for key in kept}}
        for each in reversed(found)
        if each["kind"] == kind
    ]
