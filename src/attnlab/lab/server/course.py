"""The routes of the room Course: exercises, answers, checks, hints."""

from pathlib import Path

from fastapi import FastAPI
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from attnlab.lab.server.answers import Answers

CHECK_SECONDS = 60.0
"""How long a check may take, the start of its processes included."""


class ExerciseRequest(BaseModel):
    """An exercise by its name."""

    model_config = ConfigDict(extra="forbid", strict=True)
    exercise: str = Field(max_length=100)
    page: str | None = Field(None, max_length=64)  # whose newer questions take this one's place


class CheckRequest(ExerciseRequest):
    """A student's program for an exercise, to be saved and checked."""

    code: str = Field(max_length=200_000)


def add_course(app: FastAPI, folder: Path, checks: Answers) -> None:
    """Add the routes; `folder` holds the student's answers, `checks` is a process of their own."""
    place = {"folder": str(folder)}

    @app.get("/api/course")
    async def course() -> Response:
        return (await checks.ask("course", place)).sent()

    @app.post("/api/course/open")
    async def open_exercise(asked: ExerciseRequest) -> Response:
        facts = {**place, "name": asked.exercise}
        return (await checks.ask("open_exercise", facts, page=asked.page)).sent()

    @app.post("/api/course/check")
    async def check(asked: CheckRequest) -> Response:
        facts = {**place, "name": asked.exercise, "code": asked.code}
        return (await checks.ask("check_exercise", facts, page=asked.page)).sent()

    @app.post("/api/course/hint")
    async def hint(asked: ExerciseRequest) -> Response:
        facts = {**place, "name": asked.exercise}
        return (await checks.ask("next_hint", facts, page=asked.page)).sent()
