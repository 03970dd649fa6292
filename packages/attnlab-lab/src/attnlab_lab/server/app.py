"""The routes of the lab: its page, the runs, the jobs, the answers of a run's model.

This process loads neither torch nor NumPy; what needs them is asked of the process in `answers`.
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Literal

from fastapi import FastAPI, Header
from fastapi.exceptions import RequestValidationError
from pydantic import Field
from starlette.exceptions import HTTPException
from starlette.requests import Request as Received
from starlette.responses import FileResponse, Response, StreamingResponse

from attnlab.errors import AttnlabError, WrongUsage
from attnlab.experiments.folder import is_finished, read_config, read_run
from attnlab_lab.server.answers import RequestBody
from attnlab_lab.server.events import follow, is_read
from attnlab_lab.server.guard import MISTAKE
from attnlab_lab.server.jobs import JobFacts, NotFound, Request
from attnlab_lab.server.models import add_models
from attnlab_lab.server.refusals import refusal
from attnlab_lab.server.rooms import add_course, add_populations, add_programs
from attnlab_lab.server.state import Lab

REPORT_POLICY = (
    "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline'; "
    "style-src 'unsafe-inline'; img-src data:; frame-ancestors 'none'"
)
"""A report is a file that anyone may have written: it runs as a page of no origin, alone."""

_KINDS = {".html": "text/html", ".js": "text/javascript", ".css": "text/css"}
_Scalar = str | int | float | bool | None


class JobRequest(RequestBody):
    """A training to start; settings as `attnlab settings` names them."""

    experiment: str = Field(max_length=100)
    settings: dict[str, _Scalar] = Field(default={})
    seed: int = Field(0, ge=0, lt=2**63)
    seeds: int = Field(1, ge=1, le=10_000)
    sweep: bool = False


class DomainRequest(RequestBody):
    """All inputs for a run's model, and edits as `attnlab.edits` writes them."""

    run: str = Field(max_length=255, exclude=True)
    edits: list[dict[str, object]] = Field(default=[], max_length=1_000)


class AskRequest(DomainRequest):
    """One input for a run's model, and edits."""

    text: str = Field(max_length=10_000, alias="input")


def make_app(lab: Lab, assets: Path) -> FastAPI:
    """Make the app; it serves the files that are in the folder of assets now."""

    @asynccontextmanager
    async def living(app: FastAPI) -> AsyncIterator[None]:
        await lab.answers.begin()
        yield
        await lab.close()

    app = FastAPI(title="attnlab lab", lifespan=living, openapi_url=None, redirect_slashes=False)
    for kind in (AttnlabError, HTTPException, RequestValidationError, Exception):
        app.add_exception_handler(kind, _explain)
    _add_page(app, assets)
    _add_experiments(app, lab)
    _add_runs(app, lab)
    _add_jobs(app, lab)
    add_populations(app, lab)
    add_models(app, lab)
    add_programs(app, lab)
    add_course(app, lab, Path("course"))
    return app


def _add_page(app: FastAPI, assets: Path) -> None:
    files = {path.name: path.read_bytes() for path in assets.iterdir() if path.is_file()}

    @app.get("/")
    async def page() -> Response:
        return Response(files["index.html"], media_type="text/html")

    @app.get("/{file}")
    async def asset(file: str) -> Response:
        if file not in files:
            raise NotFound(f"there is no file {file[:80]!r}.")
        return Response(files[file], media_type=_KINDS.get(Path(file).suffix))


def _add_experiments(app: FastAPI, lab: Lab) -> None:
    @app.get("/api/experiments")
    async def experiments() -> Response:
        return await lab.answers.ask("experiments", {})

    @app.post("/api/check")
    async def check(request: JobRequest) -> Response:
        checked = await lab.answers.ask("check", request.model_dump())
        checked.status_code = 200  # asking about wrong settings is no mistake
        return checked


def _add_runs(app: FastAPI, lab: Lab) -> None:
    @app.get("/runs/{name}/report.html")
    async def report(name: str) -> Response:
        path = lab.run(name) / "report.html"
        if path.is_symlink() or not path.is_file():
            raise NotFound(f"the run {name!r} has no report.")
        return FileResponse(path, 200, {"content-security-policy": REPORT_POLICY}, "text/html")

    @app.get("/api/runs")
    async def runs() -> list[dict[str, object]]:
        return [{**listed, "run": Path(listed["run"]).name} for listed in await lab.list_runs()]

    @app.get("/api/runs/{name}")
    def run(name: str) -> dict[str, object]:
        folder = lab.run(name)
        if not is_finished(folder):
            return {"config": read_config(folder), "claims": [], "metrics": []}
        result = read_run(folder)
        claims = [claim.to_mapping() for claim in result.claims]
        return {"config": result.config, "claims": claims, "metrics": result.metrics}

    @app.post("/api/ask")
    async def ask(request: AskRequest) -> Response:
        return await _put(lab, "ask", request)

    @app.post("/api/domain")
    async def domain(request: DomainRequest) -> Response:
        return await _put(lab, "domain", request)


async def _put(lab: Lab, what: str, request: DomainRequest) -> Response:
    return await lab.answers.ask(
        what, {"folder": str(lab.model(request.run)), **request.model_dump()}
    )


def _add_jobs(app: FastAPI, lab: Lab) -> None:
    jobs = lab.jobs

    @app.post("/api/jobs", status_code=201)
    async def start(body: JobRequest) -> object:
        jobs.take_place()
        checked = await lab.answers.ask("check", body.model_dump())
        if checked.status_code != 200:
            return checked
        request = Request(**body.model_dump() | json.loads(bytes(checked.body)))
        return jobs.describe(jobs.start(request))

    @app.get("/api/jobs")
    def all_jobs() -> list[JobFacts]:
        return jobs.list()

    @app.get("/api/jobs/{name}/events")
    async def events(
        name: str, last_event_id: Annotated[str, Header(max_length=20)] = "0"
    ) -> Response:
        is_number = last_event_id.isascii() and last_event_id.isdigit()
        after, log = int(last_event_id) if is_number else 0, jobs.log(name)
        if not jobs.is_live(name) and is_read(log, after):
            return Response(status_code=204)  # which tells the browser not to ask again
        lines = follow(log, after, lambda: jobs.is_live(name), lambda: lab.is_closing)
        return StreamingResponse(lines, media_type="text/event-stream")

    @app.post("/api/jobs/{name}/{wish}")
    async def change(name: str, wish: Literal["pause", "resume", "cancel"]) -> JobFacts:
        if wish == "resume":
            jobs.resume(name)
        else:
            jobs.end(name, "paused" if wish == "pause" else "canceled")
        return jobs.describe(name)


async def _explain(received: Received, error: Exception) -> Response:
    """Answer an error with one sentence."""
    if isinstance(error, RequestValidationError):
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"][1:]))
        status, sentence = 422, f"{where or 'the request'}: {first['msg']}."
    elif isinstance(error, HTTPException):
        status = error.status_code
        sentence = f"there is nothing to {received.method} at {received.url.path[:80]!r}."
    elif isinstance(error, AttnlabError):
        status = getattr(error, "status", 400 if isinstance(error, WrongUsage) else 409)
        sentence = str(error)
    else:  # the guard writes it to the terminal
        status, sentence = 500, MISTAKE
    answer = refusal(sentence, status, received.scope)
    if status == 429:
        answer.headers["retry-after"] = "2"
    return answer
