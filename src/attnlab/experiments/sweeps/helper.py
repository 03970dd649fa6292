"""A process of ours that takes lines and gives lines: how work is handed out, and how a death is noticed.

The helper's side is `attend_to`; the other side is `Helper`. A helper never outlives who started it: when its input
ends, it ends. Lines are plain JSON, and nothing that another library prints gets between them.
"""

import os
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

__all__ = ["Helper", "attend_to"]


class Helper:
    """A running helper; `module` is what `python -m` is told."""

    def __init__(
        self, module: str, arguments: Sequence[str] = (), environment: Mapping[str, str] | None = None
    ) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  open as long as the helper lives
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            encoding="utf-8",
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **(environment or {})},
            start_new_session=True,  # Ctrl-C is ours to hear
        )
        self._answers: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        threading.Thread(target=self._listen, daemon=True).start()

    def send(self, line: str) -> None:
        """Hand over a line; a helper that died is noticed when its answer is asked for."""
        assert self._process.stdin is not None
        with suppress(OSError, ValueError):
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()

    def answer(self, timeout: float | None = None) -> str | None:
        """Return the next line it gives; None when there will be none, for it has ended.

        Raises:
            TimeoutError: none came in so many seconds.
        """
        try:
            return self._answers.get(timeout=timeout)
        except queue.Empty:
            raise TimeoutError from None

    def complaint(self) -> str:
        """Return what it wrote to its standard error."""
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace").strip()

    def end(self) -> int:
        """End it at once, wait until it is gone, and return its exit status."""
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


def attend_to(work: Callable[[Callable[[], str], Callable[[str], None]], None]) -> None:
    """Be a helper: call `work(take, give)`, where take() waits for a line and give(line) answers."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what others print goes to standard error
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()

    def listen() -> None:
        for line in sys.stdin:
            lines.put(line.rstrip("\n"))
        os._exit(0)  # whoever started us is gone

    def give(line: str) -> None:
        answers.write(line + "\n")
        answers.flush()

    threading.Thread(target=listen, daemon=True).start()
    work(lines.get, give)
