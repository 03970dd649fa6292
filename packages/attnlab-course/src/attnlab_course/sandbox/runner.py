"""The side of a check that runs a student's code. It knows the inputs and never the answers.

A request names a file of Python and a list of cases; the reply has an answer for each. Between the
two processes stand plain values as JSON, so nothing that a student's code makes is ever run or
unpickled by the other side. This file, `student_code.py` and `student_parameters.py` are all that
stands beside the student's file in the sandbox. Started as a program, it answers requests from
standard input until that ends, each in a child process of its own.
"""

import contextlib
import json
import math
import os
import select
import shutil
import signal
import struct
import sys
import time
from collections.abc import Iterable
from typing import Any

import torch

if __name__ == "__main__":  # in the sandbox there is no attnlab
    sys.path.append(os.path.dirname(__file__))
    import student_code  # type: ignore[import-not-found]

    sys.path.remove(os.path.dirname(__file__))
else:
    from attnlab_course.sandbox import student_code

REPLY_HEAD = struct.Struct(">Q??")
"""What a reply begins with: its size, whether it took too long, whether it is the last."""

WARM = ("optim", "torch.compile", "matplotlib")
"""Words of a file that say what it will import; that takes long and is done once for all."""

_MOST_STREAMS = 1024
_MOST_FILES = 500  # that a student's code may leave behind before the sandbox is made anew
_WRITABLE = ("/box", "/dev/shm")
_MOST_CLEANING = 2  # seconds
_END_WITH_PARENT = 1  # of prctl
_IS_READABLE = 4  # by processes of the same user: memory and streams
_PAUSE = 0.05  # seconds between two looks at whether a child has ended
_LENGTH = struct.Struct(">Q")


def pack_message(value: Any) -> bytes:
    """Return a value as its length and its JSON."""
    text = json.dumps(value).encode()
    return _LENGTH.pack(len(text)) + text


def read_message(stream: int) -> Any:
    """Read one length and its JSON, and no byte more; None at the end of the stream."""
    head = _read_exactly(stream, _LENGTH.size)
    if head is None:
        return None
    body = _read_exactly(stream, _LENGTH.unpack(head)[0])
    return None if body is None else json.loads(body)


def _read_exactly(stream: int, size: int) -> bytes | None:
    data = bytearray()
    while len(data) < size:
        piece = os.read(stream, min(size - len(data), 1 << 20))
        if not piece:
            return None
        data += piece
    return bytes(data)


def serve(requests: int, replies: int) -> None:
    """Answer requests until they end; each runs in a child process that is ended after it.

    A request is two messages: its limits, which this process reads, and the rest, which only the
    child reads. So no trace of a request is in the memory that the next child is a copy of.
    """
    buffer = bytearray()
    is_fit = True
    while is_fit and (limits := read_message(requests)) is not None:
        if len(buffer) < limits["reply_bytes"]:
            buffer = bytearray(limits["reply_bytes"])
        _warm(limits["warm"])
        size, is_late = _in_child(requests, limits, buffer)
        is_fit = _is_clean()
        _write_whole(replies, REPLY_HEAD.pack(size, is_late, not is_fit))
        _write_whole(replies, memoryview(buffer)[:size])
        buffer[:size] = bytes(size)


def _warm(names: Iterable[str]) -> None:
    """Import what a file will import, so that every later child has it already."""
    with contextlib.suppress(ImportError):
        if "optim" in names or "torch.compile" in names:
            import torch._dynamo  # noqa: F401 - which both begin with
        if "matplotlib" in names:
            import matplotlib.pyplot  # noqa: F401


def _in_child(requests: int, limits: Any, buffer: bytearray) -> tuple[int, bool]:
    """Fork, let the child answer, and read its answers; return their size, and if it was late."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.setsid()
            request = read_message(requests)
            os.closerange(3, writing)
            os.closerange(writing + 1, _MOST_STREAMS)
            _limit(limits)
            for reply in student_code.replies_to(request):
                try:
                    message = pack_message(reply)
                except MemoryError:
                    message = pack_message(student_code.describe_error(student_code.TooLarge()))
                _write_whole(writing, message)
            status = 0
        finally:
            os._exit(status)
    os.close(writing)
    try:
        return _read_within(reading, child, limits, buffer)
    finally:
        os.close(reading)
        kill_group(child)
        os.waitpid(child, 0)


def _limit(limits: Any) -> None:
    """Keep a student's child small, quiet and without a way to its parent's streams."""
    import resource

    _prctl(_END_WITH_PARENT, signal.SIGKILL)
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    os.close(nothing)
    seconds = math.ceil(limits["seconds"]) + 1
    wanted = {
        resource.RLIMIT_CPU: seconds,
        resource.RLIMIT_FSIZE: limits["file_bytes"],
        resource.RLIMIT_CORE: 0,
    }
    if sys.platform == "linux":
        with open("/proc/self/statm", encoding="ascii") as file:  # libraries take gigabytes of it
            mapped = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        wanted[resource.RLIMIT_AS] = mapped + limits["memory_bytes"]
    for what, most in wanted.items():
        resource.setrlimit(what, (most, most))


def _write_whole(stream: int, data: bytes | memoryview) -> None:
    while data:
        data = data[os.write(stream, data) :]


def _read_within(stream: int, child: int, limits: Any, buffer: bytearray) -> tuple[int, bool]:
    """Read what the child writes until it ends, is late, or has filled the buffer."""
    deadline, size = time.monotonic() + limits["seconds"], 0
    space = memoryview(buffer)[: limits["reply_bytes"]]
    while size < len(space):
        patience = min(deadline - time.monotonic(), _PAUSE)
        if patience <= 0:
            return size, True
        is_over = has_ended(child)
        if is_over:
            patience = 0
        if select.select([stream], [], [], patience)[0]:
            read = os.readv(stream, [space[size:]])
            size += read
            is_over = not read
        if is_over:  # its own children may still hold the stream
            break
    return size, False


def has_ended(child: int) -> bool:
    """Has this child ended? It stays to be waited for."""
    if not hasattr(os, "waitid"):
        return False
    return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def kill_group(process: int) -> None:
    """Kill a process and those of its group that are left."""
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            kill(process, signal.SIGKILL)


def _is_clean() -> bool:
    """In the sandbox, end every other process and remove every file; False where some stay.

    The signal goes to every process that may be reached, so it is sent in a namespace of our own
    alone, whatever the environment says.
    """
    if os.environ.get("ATTNLAB_ALONE") != "yes":
        return True
    if not _owns_namespace():
        return False
    deadline = time.monotonic() + _MOST_CLEANING
    while time.monotonic() < deadline:
        try:
            os.kill(-1, signal.SIGKILL)
            os.waitpid(-1, os.WNOHANG)  # orphans become children of the first process
        except ProcessLookupError:
            return all(map(_is_emptied, _WRITABLE))
        except ChildProcessError:
            time.sleep(0.001)
    return False


def _owns_namespace() -> bool:
    """Whether this is the first process of its namespace, or bubblewrap is and has started it."""
    if os.getpid() == 1:
        return True
    if os.getppid() != 1 or sys.platform != "linux":
        return False
    with open("/proc/1/comm", encoding="utf-8", errors="replace") as stream:
        return stream.read() == "bwrap\n"


def _is_emptied(folder: str) -> bool:
    count = 0
    for _, folders, files in os.walk(folder):
        count += len(folders) + len(files)
        if count > _MOST_FILES:
            return False
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    shutil.rmtree(entry.path)
                else:
                    os.unlink(entry.path)
    except OSError:
        return False
    return True


def _prctl(option: int, value: int) -> None:
    """Set an attribute of this process with prctl; Linux only."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    _prctl(_IS_READABLE, False)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    torch.set_num_threads(1)
    answers = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    _write_whole(answers, REPLY_HEAD.pack(0, False, False))  # ready
    serve(0, answers)
