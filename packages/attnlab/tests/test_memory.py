"""Free memory is the smaller of what the machine and what the container has."""

import platform
import subprocess
import sys

import pytest

from attnlab.memory import free_memory


def test_free_memory_is_the_smaller_of_the_machines_and_the_containers(tmp_path):
    assert free_memory("cpu", tmp_path) is None
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal: 100 kB\nMemAvailable:   64 kB\n")
    assert free_memory("cpu", tmp_path) == 65_536
    (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup/memory.max").write_text("max\n")
    (tmp_path / "sys/fs/cgroup/memory.current").write_text("1000\n")
    assert free_memory("cpu", tmp_path) == 65_536
    (tmp_path / "sys/fs/cgroup/memory.max").write_text("21000\n")
    assert free_memory("cpu", tmp_path) == 20_000


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="of the C library of Linux")
def test_large_blocks_between_others_are_given_back_once_they_are_freed():
    code = """
import os
import torch
from pathlib import Path
from attnlab.memory import give_back_large_blocks
def pages():
    return int(Path("/proc/self/statm").read_text().split()[1])
child = os.fork()  # which does without
if child:
    os.waitpid(child, 0)
    give_back_large_blocks()
torch.ones(2**22)  # freed, so the next one comes from the heap
blocks = [torch.ones(2**21) for _ in range(8)]
full = pages()
del blocks[::2]
print(full - pages() > 6 * 2**20 // 4096, flush=True)  # of 32 MiB
os._exit(0)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]
