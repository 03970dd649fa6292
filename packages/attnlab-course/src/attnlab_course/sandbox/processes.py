"""The descendants of a process, and the memory they take together; Linux only."""

from collections import defaultdict
from pathlib import Path

_PROC = Path("/proc")


def memory_of(process: int, enough: int) -> int:
    """Return the bytes of memory of all descendants of a process.

    Memory that processes share counts once, unless the sum is below `enough` even without that.
    """
    below = processes_below(process)
    most = sum(_read_bytes(process_id, "status", ("RssAnon:", "RssShmem:")) for process_id in below)
    if most <= enough:
        return most
    return sum(
        _read_bytes(process_id, "smaps_rollup", ("Pss_Anon:", "Pss_Shmem:")) for process_id in below
    )


def processes_below(process: int) -> list[int]:
    """Return the descendants of a process."""
    children = defaultdict(list)
    for folder in _PROC.glob("[0-9]*"):
        try:
            words = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            continue  # it has ended meanwhile
        children[int(words[1])].append(int(folder.name))
    descendants: list[int] = []
    ahead = [process]
    while ahead:
        below = children[ahead.pop()]
        descendants += below
        ahead += below
    return descendants


def _read_bytes(process: int, name: str, fields: tuple[str, ...]) -> int:
    try:
        lines = (_PROC / str(process) / name).read_text(errors="replace").splitlines()
    except OSError:
        return 0
    kilobytes = [int(line.split()[1]) for line in lines if line.startswith(fields)]
    return sum(kilobytes) * 1024
