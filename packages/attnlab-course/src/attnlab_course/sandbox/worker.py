"""The side of a check that trusts nothing: it starts the process that runs a student's code.

A plain worker serves a student's own checks: the code is the student's, and so is the machine. A
worker in a sandbox (`jail.py`) serves grading. Both have limits of time and size of their own, so
a process that hangs, floods or talks nonsense costs its own student an answer and no more.
"""

import contextlib
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

from attnlab.errors import CouldNotRun, not_none
from attnlab_course.sandbox.jail import PYTHON_OPTIONS, RUNNER, SETTINGS, Jail
from attnlab_course.sandbox.processes import memory_of
from attnlab_course.sandbox.replies import (
    MEMORY_BYTES,
    REPLY_BYTES,
    SENTENCES,
    CaseAnswer,
    Reply,
    cannot_run,
    clean_answer,
    is_countable,
    of_kind,
    split_reply,
    with_error,
)
from attnlab_course.sandbox.runner import REPLY_HEAD, WARM, has_ended, kill_group, pack_message
from attnlab_course.sandbox.student_code import EncodedCase, Json
from attnlab_course.sandbox.visible import extra_folders

_START_SECONDS = 120.0
_GRACE = 10.0  # seconds beyond a request's own, after which the worker itself is late
_PAUSE = 0.1  # seconds between two looks at the memory of a sandbox
_MOST_FAILURES = 2  # in an exercise, before it is given up
_PIECE = 1 << 16
_KEPT_VARIABLES = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH")


@dataclass(frozen=True)
class Limits:
    """What a student's code may use for one exercise.

    Args:
        seconds: from its start to its last answer.
        memory_bytes: beyond what Python and torch take.
        file_bytes: of a file that it writes.
        reply_bytes: of all its answers.
    """

    seconds: float = 20.0
    memory_bytes: int = MEMORY_BYTES
    file_bytes: int = 16 * 2**20
    reply_bytes: int = REPLY_BYTES


_LIMITS = Limits()


@dataclass(frozen=True)
class _Exchange:
    """The messages that came back from the process.

    Args:
        messages: those that came whole.
        failure: why there are no more: TookTooLong, TooLarge or ProcessEnded; empty without one.
        is_last: whether the process cannot take another request.
    """

    messages: Sequence[Json]
    failure: str
    is_last: bool

    @property
    def is_loaded(self) -> bool:
        """Whether the program was run to its end."""
        return self._first.get("loaded") is True

    @property
    def is_broken(self) -> bool:
        """Whether the program could not be run."""
        return self._first.get("loaded") is False

    @property
    def error(self) -> Json:
        """The first error at the program's top; None without one."""
        return self._first.get("error")

    @property
    def _first(self) -> Mapping[str, Json]:
        first: Mapping[str, Json] = of_kind(dict, next(iter(self.messages), None))
        return first

    @property
    def answers(self) -> Sequence[Json]:
        """The answers that came."""
        return self.messages[1:]


class Worker:
    """A process that runs students' code, started again whenever it fails.

    It is used in the thread that made it: the sandbox ends with that thread.

    Args:
        jail: the sandbox to run in; None runs the code as the user who asks.
    """

    def __init__(self, jail: Jail | None = None) -> None:
        self._jail = jail
        self._process: subprocess.Popen[bytes] | None = None
        self._base_memory = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process and all that it has started."""
        process, self._process = self._process, None
        if process is None:
            return
        kill_group(process.pid)
        process.wait()
        _drain(process)
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                stream.close()

    def ask(
        self,
        source: str,
        path: str,
        cases: Sequence[EncodedCase],
        *,
        limits: Limits = _LIMITS,
        is_graded: bool = False,
    ) -> Reply:
        """Put cases to a program; after one failure go on with the next case, after two give up.

        Args:
            source: the program.
            path: its file's name, for messages.
            cases: what is called, and with what.
            limits: what the program may use.
            is_graded: say of an error no more than its type, so that no input is shown.
        """
        program = {"source": source, "path": path}
        answers: list[CaseAnswer] = []
        failures: list[str] = []
        is_answered = False
        while len(failures) < _MOST_FAILURES:
            remaining = cases[len(answers) :]
            exchange = self._exchange({**program, "cases": remaining}, limits)
            error = self._error(exchange, program, limits, is_graded=is_graded)
            if exchange.is_broken:
                return cannot_run(error)
            for answer, case in zip(exchange.answers, remaining, strict=False):
                answers.append(clean_answer(answer, case["call"], is_graded=is_graded))
                is_answered = True
            missing = len(cases) - len(answers)
            if exchange.is_loaded and not missing:
                return with_error(answers, error)
            failures.append(exchange.failure or "ProcessEnded")
            if not exchange.is_loaded or missing == 1:
                break
            answers.append(CaseAnswer(error=failures[-1]))
        if not is_answered:
            return Reply(problem=SENTENCES[failures[0]])
        failed = CaseAnswer(error=failures[-1])
        return Reply([*answers, *[failed] * (len(cases) - len(answers))])

    def _error(
        self, exchange: _Exchange, program: Mapping[str, str], limits: Limits, *, is_graded: bool
    ) -> Json:
        """Return the error at a program's top; when graded, of a run without the secret cases."""
        if exchange.error is None or not is_graded:
            return exchange.error
        return self._exchange({**program, "cases": ()}, limits).error

    def _exchange(self, request: Mapping[str, Any], limits: Limits) -> _Exchange:
        """Send a request and read what comes back; end the process after a failure."""
        warm = [name for name in WARM if name in request["source"]]
        data = pack_message({**asdict(limits), "warm": warm}) + pack_message(request)
        self._start()
        try:
            exchange = self._send(data, limits)
        except _Failed as failed:
            exchange = _Exchange((), str(failed), is_last=True)
        except BaseException:
            self.close()
            raise
        if exchange.is_last:
            self.close()
        return exchange

    def _start(self) -> None:
        """Start the process if there is none, and wait until it is ready.

        Raises:
            CouldNotRun: it does not become ready.
        """
        # Not by poll, which would reap it: `close` signals its number, which must still be its own.
        if self._process is not None and not has_ended(self._process.pid):
            return
        self.close()
        self._process = self._jail.start() if self._jail else _start_plain()
        deadline = time.monotonic() + _START_SECONDS
        try:
            self._read(REPLY_HEAD.size, deadline, None)
        except _Failed:
            kill_group(self._process.pid)
            words = not_none(self._process.stderr).read(_PIECE) or b""
            self.close()
            said = words.decode(errors="replace").strip().splitlines() or ["it said nothing"]
            raise CouldNotRun(f"the process for answers did not start: {said[-1][:300]}") from None
        if self._jail is not None:
            self._base_memory = memory_of(self._process.pid, 0)

    def _send(self, data: bytes, limits: Limits) -> _Exchange:
        deadline = time.monotonic() + limits.seconds + _GRACE
        self._write(data, deadline)
        head = self._read(REPLY_HEAD.size, deadline, limits)
        size, is_late, is_last = REPLY_HEAD.unpack(head)
        if size > limits.reply_bytes:
            raise _Failed("TooLarge")
        body = self._read(size, deadline, limits)
        if not is_countable(body):
            raise _Failed("TooLarge")
        failure = ""
        if is_late:
            failure = "TookTooLong"
        elif size == limits.reply_bytes:
            failure = "TooLarge"
        return _Exchange(split_reply(body), failure, is_last)

    def _write(self, data: bytes, deadline: float) -> None:
        stream, rest = self._stream("stdin"), memoryview(data)
        os.set_blocking(stream, False)
        while rest:
            _wait(stream, selectors.EVENT_WRITE, deadline - time.monotonic())
            try:
                rest = rest[os.write(stream, rest[:_PIECE]) :]
            except BlockingIOError:
                continue
            except OSError:
                raise _Failed("ProcessEnded") from None

    def _read(self, size: int, deadline: float, limits: Limits | None) -> bytes:
        """Read so many bytes, and watch the memory of the sandbox meanwhile."""
        stream, data = self._stream("stdout"), bytearray()
        while len(data) < size:
            left = deadline - time.monotonic()
            if not _wait(stream, selectors.EVENT_READ, min(left, _PAUSE)):
                self._watch(limits)
                continue
            piece = os.read(stream, min(size - len(data), _PIECE))
            if not piece:
                raise _Failed("ProcessEnded")
            data += piece
        return bytes(data)

    def _stream(self, name: str) -> int:
        number: int = getattr(self._process, name).fileno()
        return number

    def _watch(self, limits: Limits | None) -> None:
        """Fail where the sandbox takes more memory than the limits allow."""
        if self._jail is None or limits is None:
            return
        most = self._base_memory + limits.memory_bytes
        if memory_of(not_none(self._process).pid, most) > most:
            raise _Failed("ProcessEnded")


class _Failed(Exception):
    """The process did not answer as it should: TookTooLong, TooLarge or ProcessEnded."""


def _drain(process: subprocess.Popen[bytes]) -> None:
    """Read until the last process that could write has ended."""
    stream, deadline = not_none(process.stdout).fileno(), time.monotonic() + _GRACE
    with contextlib.suppress(_Failed):
        while True:
            is_ready = _wait(stream, selectors.EVENT_READ, deadline - time.monotonic())
            if is_ready and not os.read(stream, _PIECE):
                return


def _start_plain() -> subprocess.Popen[bytes]:
    """Start the runner as the user who asks, with little of the environment."""
    if not hasattr(os, "fork"):
        raise CouldNotRun("checks in a process of their own need Linux or macOS.")
    variables = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
    variables |= {**SETTINGS, "PYTHONPATH": os.pathsep.join(extra_folders())}
    return subprocess.Popen(
        [sys.executable, *PYTHON_OPTIONS, str(RUNNER)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=variables,
        start_new_session=True,
        bufsize=0,
    )


def _wait(stream: int, event: int, seconds: float) -> bool:
    """Wait until a stream is ready; False where it is not in time.

    Raises:
        _Failed: there is no time left.
    """
    if seconds <= 0:
        raise _Failed("TookTooLong")
    with selectors.DefaultSelector() as selector:
        selector.register(stream, event)
        return bool(selector.select(seconds))
