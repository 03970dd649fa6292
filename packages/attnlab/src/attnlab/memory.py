"""Free memory, as reported by the system, and what is given back to it."""

import ctypes
import sys
from pathlib import Path

import torch


def free_memory(device: torch.device | str = "cpu", system: Path = Path("/")) -> int | None:
    """Return the free bytes of the system, or of a GPU; None if unknown."""
    if torch.device(device).type == "cuda":
        cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + cached
    limits = []
    try:
        lines = (system / "proc/meminfo").read_text().splitlines()
        for line in lines:
            if line.startswith("MemAvailable:"):
                limits.append(1024 * int(line.split()[1]))
    except (OSError, ValueError, IndexError):
        pass
    try:  # a container may be allowed less than the machine has
        group = system / "sys/fs/cgroup"
        most = int((group / "memory.max").read_text())
        limits.append(most - int((group / "memory.current").read_text()))
    except (OSError, ValueError):
        pass
    return None if not limits else max(0, min(limits))


_M_MMAP_THRESHOLD = -3  # of malloc.h
_LARGE = 4 * 2**20  # bytes


def give_back_large_blocks() -> None:
    """Have this process give each large block back to the system as soon as it is freed.

    By itself the C library of Linux stops doing so after the first of them, and long computations
    in threads grow by what lies between the blocks in use. Elsewhere nothing is done.
    """
    if sys.platform == "linux":
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # glibc alone has it
        if mallopt is not None:
            mallopt(_M_MMAP_THRESHOLD, _LARGE)
