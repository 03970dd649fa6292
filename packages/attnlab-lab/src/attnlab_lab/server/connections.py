"""Connections of the server: h11 with limits on slow clients, which uvicorn does not set."""

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from attnlab_lab.server.guard import HEADERS
from attnlab_lab.server.refusals import refusal

HEADER_SECONDS = 10.0
READ_SECONDS = 30.0
"""How long a client may take to send its headers, and to read what waits for it."""


class Connection(H11Protocol):
    """One connection: closed when its headers come too slowly, or its answers are not read."""

    def connection_made(self, transport: Any) -> None:
        """Wait for the headers of the first request."""
        super().connection_made(transport)
        self._due: dict[str, asyncio.TimerHandle] = {}
        self._expect("headers", HEADER_SECONDS)

    def data_received(self, data: bytes) -> None:
        """Wait for the rest of the headers, unless they are all there."""
        if "headers" not in self._due and self._is_idle():
            self._expect("headers", HEADER_SECONDS)
        super().data_received(data)
        if not self._is_idle():
            self._has_come("headers")

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing any more."""
        for what in list(self._due):
            self._has_come(what)
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Wait for the client to read."""
        super().pause_writing()
        self._expect("reading", READ_SECONDS)

    def resume_writing(self) -> None:
        """The client has read."""
        self._has_come("reading")
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP, with the headers of every answer."""
        answer = refusal("this is no request that the lab understands.", 400)
        headers = [(b"connection", b"close"), *answer.raw_headers, *HEADERS.items()]
        start = h11.Response(status_code=400, headers=headers)
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            for event in (start, h11.Data(bytes(answer.body)), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _expect(self, what: str, seconds: float) -> None:
        self._due[what] = self.loop.call_later(seconds, self.transport.abort)

    def _has_come(self, what: str) -> None:
        if what in self._due:
            self._due.pop(what).cancel()
