"""Work with an event loop, done in a thread: the browser of other tests has a loop in this one."""

import asyncio
import os
import signal
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any


def aside(work: Callable[..., Any], *given: Any) -> Any:
    """Do some work in another thread and wait for it."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work, *given).result()


async def ended(processes: Iterable[asyncio.subprocess.Process]) -> None:
    """End processes and close their pipes: what is left open is complained of in a later test."""
    for process in processes:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        process._transport.close()  # type: ignore[attr-defined]
    await asyncio.sleep(0.01)
