"""The routes of the room Course: exercises, answers, checks, hints."""

from pathlib import Path

from fastapi import FastAPI
from pydantic import Field
from starlette.responses import Response

from attnlab.lab.server.answers import Answers, Form, PageId

CHECK_SECONDS = 60.0
"""How long a check may take, the start of its processes included."""


class ExerciseRequest(Form):
    """An exercise by its name."""

    exercise: str = Field(max_length=100)
    page: PageId = None


class CheckRequest(ExerciseRequest):
    """A student's program for an exercise, to be saved and checked."""

    code: str = Field(max_length=200_000)


def add_course(app: FastAPI, folder: Path, checks: Answers) -> None:
    """Add the routes; `folder` holds the student's answers, `checks` is a process of their own."""
    place = {"folder": str(folder)}

    async def respond(what: str, asked: ExerciseRequest, **more: str) -> Response:
        facts = {**place, "name": asked.exercise, **more}
        return await checks.ask(what, facts, page=asked.page)

    @app.get("/api/course")
    async def course() -> Response:
        return await checks.ask("course", place)

    @app.post("/api/course/open")
    async def open_exercise(asked: ExerciseRequest) -> Response:
        return await respond("open_exercise", asked)

    @app.post("/api/course/check")
    async def check(asked: CheckRequest) -> Response:
        return await respond("check_exercise", asked, code=asked.code)

    @app.post("/api/course/hint")
    async def hint(asked: ExerciseRequest) -> Response:
        return await respond("next_hint", asked)
