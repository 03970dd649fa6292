"""The routes of the rooms Populations, Sweeps, Programs and Course."""

from pathlib import Path
from typing import Annotated, Literal

from fastapi import FastAPI, Query
from pydantic import Field
from starlette.responses import Response

from attnlab.experiments.folder import RunKind
from attnlab_lab.server.answers import SECONDS, Crashed, PageId, RequestBody
from attnlab_lab.server.state import Lab


class PageRequest(RequestBody):
    """The page that asks."""

    page: PageId = None


class StepsRequest(PageRequest):
    """A program as text, which is never run as Python, its alphabet, and an input."""

    text: str = Field(max_length=20_000)
    alphabet: str = Field(max_length=100)
    example: str = Field(max_length=100)


class ProofRequest(StepsRequest):
    """The same, to be proved on all inputs up to a length."""

    longest: int


class ExerciseRequest(PageRequest):
    """An exercise by its name."""

    name: str = Field(max_length=100, alias="exercise")


class CheckRequest(ExerciseRequest):
    """A student's program for an exercise, to be saved and checked."""

    code: str = Field(max_length=200_000)


class HandInRequest(PageRequest):
    """The name of who hands in."""

    student: str = Field(max_length=100)


def add_populations(app: FastAPI, lab: Lab) -> None:
    """Add the routes of the rooms Populations and Sweeps."""

    @app.get("/api/populations")
    async def populations() -> list[dict[str, object]]:
        return await _list_kind(lab, "population")

    @app.get("/api/populations/{name}")
    async def population(
        name: str, text: Annotated[str, Query(max_length=10_000)] = ""
    ) -> Response:
        return await lab.answers.ask("members", {"folder": str(lab.model(name)), "text": text})

    @app.get("/api/populations/{name}/{member}")
    async def member(name: str, member: str) -> Response:
        return await lab.answers.ask("member", {"folder": str(lab.model(name)), "member": member})

    @app.get("/api/sweeps")
    async def sweeps() -> list[dict[str, object]]:
        return await _list_kind(lab, "sweep")

    @app.get("/api/sweeps/{name}")
    async def sweep(name: str) -> Response:
        return await lab.answers.ask("sweep", {"folder": str(lab.run(name))})


async def _list_kind(lab: Lab, kind: RunKind) -> list[dict[str, object]]:
    """List the runs of one kind, the newest first."""
    chosen: list[dict[str, object]] = []
    for listed in reversed(await lab.list_runs()):
        if listed["kind"] == kind:
            facts = {key: listed[key] for key in ("what", "members", "started", "state")}
            chosen.append({"name": Path(listed["run"]).name, **facts})
    return chosen


def add_programs(app: FastAPI, lab: Lab) -> None:
    """Add the routes of the room Programs: the value of each line on an example, and a proof."""

    @app.post("/api/programs/steps")
    async def steps(request: StepsRequest) -> Response:
        return await lab.answers.ask("program_steps", request.model_dump(), request.page)

    @app.post("/api/programs/prove")
    async def prove(request: ProofRequest) -> Response:
        try:
            return await lab.proofs.ask("prove_program", request.model_dump(), request.page)
        except Crashed:
            raise Crashed(
                f"this took more than {SECONDS:g} seconds or the memory there is: take fewer "
                "letters or shorter inputs, or attnlab compile in a terminal, which may take long."
            ) from None


def add_course(app: FastAPI, lab: Lab, folder: Path) -> None:
    """Add the routes of the room Course; `folder` holds the student's answers."""
    place = {"folder": str(folder)}

    @app.get("/api/course")
    async def course() -> Response:
        return await lab.checks.ask("course", place)

    @app.post("/api/course/check")
    async def check(request: CheckRequest) -> Response:
        return await lab.checks.ask("check_exercise", place | request.model_dump(), request.page)

    @app.post("/api/course/stop")
    async def stop(request: PageRequest) -> dict[str, object]:
        await lab.checks.stop(request.page or "")
        return {}

    @app.post("/api/course/submit")
    async def submit(request: HandInRequest) -> Response:
        return await lab.checks.ask("submit", place | request.model_dump(), request.page)

    @app.post("/api/course/{what}")
    async def respond(
        what: Literal["open", "hint", "solution"], request: ExerciseRequest
    ) -> Response:
        return await lab.checks.ask(f"{what}_exercise", place | request.model_dump(), request.page)
