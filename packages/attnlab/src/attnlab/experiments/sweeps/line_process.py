"""A child process that takes lines and answers with lines.

The child's side is `serve_lines`; the parent's side is `LineProcess`. The child never outlives its
parent: it ends when its input ends. Lines are plain JSON, and the prints of other libraries do not
get between them.
"""

import os
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress


class LineProcess:
    """A running child; `module` is started with `python -m`."""

    def __init__(
        self,
        module: str,
        arguments: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  open as long as the child lives
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            encoding="utf-8",
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
                **(environment or {}),
            },
            start_new_session=True,  # Ctrl-C goes to the parent alone
        )
        self._answers: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        threading.Thread(target=self._listen, daemon=True).start()

    def send(self, line: str) -> None:
        """Send a line; a child that died is noticed when its answer is asked for."""
        assert self._process.stdin is not None
        with suppress(OSError, ValueError):
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()

    def answer(self, timeout: float | None = None) -> str | None:
        """Return the next answer; None if the child has ended.

        Raises:
            queue.Empty: none came in so many seconds.
        """
        return self._answers.get(timeout=timeout)

    def complaint(self) -> str:
        """Return the child's standard error so far."""
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace").strip()

    def end(self) -> int:
        """Kill the child, wait for it, and return its exit status."""
        self._process.kill()
        status = self._process.wait()
        for stream in (self._process.stdin, self._errors):
            with suppress(OSError, ValueError):
                stream.close()  # type: ignore[union-attr]
        return status

    def _listen(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self._answers.put(line.rstrip("\n"))
        self._answers.put(None)


def serve_lines(work: Callable[[Callable[[], str], Callable[[str], None]], None]) -> None:
    """Call `work(take, give)` in the child: take() waits for a line, give(line) answers."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # the prints of other libraries go to standard error
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()

    def listen() -> None:
        for line in sys.stdin:
            lines.put(line.rstrip("\n"))
        os._exit(0)  # the parent is gone

    def give(line: str) -> None:
        answers.write(line + "\n")
        answers.flush()

    threading.Thread(target=listen, daemon=True).start()
    work(lines.get, give)
