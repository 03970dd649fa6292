"""Free memory is the smaller of what the machine and what the container has."""

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
