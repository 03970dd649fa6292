"""Answers of a warm process that has torch and the last models open; one question at a time.

The page asks at every click: a newer question drops an older one that has not begun.
"""

import asyncio
import json
import signal
from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from attnlab.errors import CouldNotRun, not_none
from attnlab_lab.server.jobs import MOST_WAITING, Busy, spawn

SECONDS = 60.0
"""How long an answer may take, the start of the process included."""

_AGAIN = 0.1  # seconds between two interrupts of an answer that is stopped


class Superseded(CouldNotRun):
    """A newer question took the place of this one."""


class Crashed(CouldNotRun):
    """The process ended while it answered."""

    status = 503


class RequestBody(BaseModel):
    """The JSON of a request: nothing but its fields, each of its own type."""

    model_config = ConfigDict(extra="forbid", strict=True)


PageId = Annotated[str | None, Field(max_length=64, exclude=True)]
"""The page that asks, whose newer questions take this one's place; None for no page."""


class Answers:
    """The process and the questions that wait for it.

    seconds: that an answer may take; None for the usual number.
    """

    def __init__(self, seconds: float | None = None) -> None:
        self._seconds = seconds
        self._turn = asyncio.Lock()
        self._process: asyncio.subprocess.Process | None = None
        self._is_closed = False
        self._waiting = 0
        self._newest: dict[str, object] = {}  # of each page that wants no older answers
        self._answered: tuple[PageId, object] | None = None  # the question that is being answered
        self.said = ""
        """What the process says of the answer that it works on."""

    async def begin(self) -> None:
        """Start the process, unless it runs: torch takes a second or two to load."""
        if self._process is None or self._process.returncode is not None:
            self._process = await spawn("answer_process")

    async def ask(self, what: str, facts: Mapping[str, object], page: PageId = None) -> Response:
        """Put a question, and return its answer as a route sends it.

        page: the page that asks; its newer question takes the place of its older one. None: all
            its questions are answered.

        Raises:
            Busy: too many questions wait.
            Superseded: a newer question of the same page came before this one began.
            Crashed: the process ended, or took too long.
        """
        if self._waiting >= MOST_WAITING:
            raise Busy(f"{MOST_WAITING} questions wait already: ask again in a moment.")
        ticket = object()
        if page is not None:
            self._newest[page] = ticket
        self._waiting += 1
        try:
            async with self._turn:
                if page is not None and self._newest.get(page) is not ticket:
                    raise Superseded("a newer question took the place of this one.")
                self._answered = page, ticket
                try:
                    return await self._answer({"what": what, **facts})
                finally:
                    self._answered, self.said = None, ""
        finally:
            self._waiting -= 1
            if page is not None and self._newest.get(page) is ticket:
                del self._newest[page]

    async def stop(self, page: str) -> None:
        """Interrupt the answer to a page's question, or drop the question if it still waits.

        The process may not heed an interrupt yet, so it is sent until the answer is there.
        """
        self._newest.pop(page, None)
        question, process = self._answered, self._process
        if question is None or question[0] != page or process is None:
            return
        while self._answered is question:
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGINT)
            await asyncio.sleep(_AGAIN)

    def close(self) -> None:
        """End the process, for good."""
        self._is_closed = True
        self._kill()

    def _kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.kill()

    async def _answer(self, question: Mapping[str, object]) -> Response:
        await self.begin()
        process = not_none(self._process)
        line = b""
        try:
            with suppress(ConnectionError, TimeoutError):
                not_none(process.stdin).write(json.dumps(question).encode() + b"\n")
                async with asyncio.timeout(self._seconds or SECONDS):
                    line = await self._read_answer(not_none(process.stdout))
        finally:
            if not line.endswith(b"\n"):  # it died, or its answer would be taken for the next one
                self._kill()
                await process.wait()
                if not self._is_closed:
                    await self.begin()
        if not line.endswith(b"\n"):
            raise Crashed("this took too long, or the process that answers ended; ask again.")
        status, _, body = line.partition(b" ")
        return Response(body, int(status), media_type="application/json")

    async def _read_answer(self, lines: asyncio.StreamReader) -> bytes:
        """Read the line of an answer, and keep what the process says of it before."""
        while (line := await lines.readline()).startswith(b"100 "):
            self.said = json.loads(line.removeprefix(b"100 "))
        return line
