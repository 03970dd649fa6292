"""The routes of models: those that are there, the facts of one, and what it makes of a text."""

import asyncio
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Literal

from fastapi import FastAPI
from pydantic import Field
from starlette.responses import Response

from attnlab.experiments.folder import ListedRun
from attnlab_lab.server.answers import PageId, RequestBody
from attnlab_lab.server.jobs import NotFound
from attnlab_lab.server.state import Lab

_MOST = 60  # models that are listed


class ModelRequest(RequestBody):
    """A model to open: a run in the folder of runs, a folder, a GGUF file, or a hub id."""

    model: str = Field(min_length=1, max_length=1_000, exclude=True)


class EditRequest(RequestBody):
    """A head to knock out or, with a query and a key, an edge of it to cut."""

    head: str = Field(max_length=200)
    query: int | None = Field(None, ge=0)
    key: int | None = Field(None, ge=0)


class TextRequest(ModelRequest):
    """A text for a model, edits, and the head that is shown whole."""

    text: str = Field(max_length=40_000)
    edits: list[EditRequest] = Field(default=[], max_length=200)
    head: str = Field("", max_length=200)
    at: list[Annotated[int, Field(ge=0)]] | None = Field(None, min_length=2, max_length=2)
    page: PageId = None


class WhyRequest(ModelRequest):
    """A text, a head, and the query and the key whose score is taken apart."""

    text: str = Field(max_length=40_000)
    head: str = Field(min_length=1, max_length=200)
    query: int = Field(ge=0, le=10_000)
    key: int = Field(ge=0, le=10_000)
    page: PageId = None


class PatchRequest(ModelRequest):
    """Two texts of equally many tokens, what is patched, and the answer that is measured; empty for
    the model's."""

    clean: str = Field(max_length=4_000)
    corrupted: str = Field(max_length=4_000)
    target: str = Field("", max_length=200)
    kind: Literal["stream", "heads", "attentions", "mlps"] = "stream"
    page: PageId = None


def add_models(app: FastAPI, lab: Lab) -> None:
    """Add the routes."""
    opened: dict[str, None] = {}

    async def ask(what: str, request: ModelRequest, page: PageId = None) -> Response:
        try:
            name = str(lab.run(request.model))
        except NotFound:
            name = os.path.expanduser(request.model)
        return await lab.models.ask(what, {"name": name, **request.model_dump()}, page)

    @app.get("/api/models")
    async def there() -> list[dict[str, str]]:
        recent = [{"name": name, "kind": "recent"} for name in reversed(opened)]
        runs = await lab.list_runs()
        return await asyncio.to_thread(lambda: _listed(lab.runs, recent, runs))

    @app.post("/api/models/open")
    async def open_it(request: ModelRequest) -> Response:
        reply = await ask("open_model", request)
        if reply.status_code == 200:
            opened.pop(request.model, None)
            opened[request.model] = None
        return reply

    @app.get("/api/models/opening")
    async def said() -> dict[str, str]:
        return {"said": lab.models.said}

    @app.post("/api/models/ask")
    async def ask_it(request: TextRequest) -> Response:
        return await ask("ask_model", request, request.page)

    @app.post("/api/models/why")
    async def why(request: WhyRequest) -> Response:
        return await ask("why_cell", request, request.page)

    @app.post("/api/models/patch")
    async def patch_it(request: PatchRequest) -> Response:
        return await ask("patch_model", request, request.page)


def _listed(
    folder: Path, recent: Iterable[dict[str, str]], runs: Iterable[ListedRun]
) -> list[dict[str, str]]:
    """List the models, each once, whatever names lead to it."""
    models = dict[str, dict[str, str]]()
    for entry in [*recent, *_runs(runs), *_folders(folder), *_cached()]:
        places = folder / entry["name"], Path(entry["name"]).expanduser()
        place = next((str(path.resolve()) for path in places if path.exists()), entry["name"])
        models.setdefault(place, entry)
    return list(models.values())[:_MOST]


def _runs(runs: Iterable[ListedRun]) -> Iterator[dict[str, str]]:
    """List the finished runs that kept a model."""
    for run in runs:
        folder = Path(run["run"])
        is_one = run["kind"] == "run" and run["state"] == "finished"
        if is_one and (folder / "model.safetensors").is_file():
            yield {"name": folder.name, "kind": "run"}


def _folders(runs: Path) -> Iterator[dict[str, str]]:
    """List pretrained models among the runs and in `models` beside them."""
    for folder in sorted([*runs.glob("*/"), *runs.glob("models/*/")]):
        config = folder / "config.json"
        is_model = config.is_file() and '"model_type"' in config.read_text(errors="replace")
        for file in [folder] if is_model else sorted(folder.glob("*.gguf")):
            yield {"name": str(file), "kind": "folder"}


def _cached() -> Iterator[dict[str, str]]:
    """List the models in the hub's cache."""
    caches = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    home = os.environ.get("HF_HOME") or f"{caches}/huggingface"
    cache = Path(os.environ.get("HF_HUB_CACHE") or f"{home}/hub")
    for folder in sorted(cache.glob("models--*")):
        if any(folder.glob("snapshots/*/config.json")):
            name = folder.name.removeprefix("models--").replace("--", "/")
            yield {"name": name, "kind": "hub"}
