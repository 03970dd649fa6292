"""A sweep on a real Ray cluster of two nodes, which ask for a token."""

import os
import signal
import threading
import time
from pathlib import Path

import pytest
from ray_cluster import Cluster, wait_until

from attnlab.errors import CouldNotRun
from attnlab.experiments.sweeps import sweep

pytest.importorskip("ray", reason="a cluster needs it; pip install 'attnlab[ray]'")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc"),
]

HOW = {
    "rank": [1, 2, 3, 4, 5, 6],
    "temperature": [0.3, 1.0],
    "seeds": range(8),
    "steps": 400,
    "evaluate_every": 200,
    "learning_rate": 1e-2,
    "layout": "vmap",
}


@pytest.fixture(scope="module")
def here():
    """The sweep computed in this process."""
    return sweep("sorting", **HOW)


@pytest.fixture
def cluster(monkeypatch):
    with Cluster() as made:
        for name, value in made.environment.items():
            monkeypatch.setenv(name, value)
        yield made
    assert made.processes() == []


class Later:
    """Does something once a node works, while the sweep goes on."""

    def __init__(self, cluster, node, what):
        self._thread = threading.Thread(target=self._wait, args=(cluster, node, what))
        self.is_done = False

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._thread.join()

    def _wait(self, cluster, node, what):
        wait_until(lambda: cluster.workers(node))
        time.sleep(2)  # it is in the middle of a unit
        what()
        self.is_done = True


def test_a_sweep_whose_worker_is_killed_ends_in_the_numbers_of_the_local_one(cluster, here):
    def kill():
        os.kill(cluster.workers(1)[0], signal.SIGKILL)

    with Later(cluster, 1, kill) as later:
        found = sweep("sorting", engine="ray", address=cluster.address, **HOW)
    assert later.is_done
    assert found.rows() == here.rows()
    assert found.report.passed


def test_a_sweep_that_loses_a_whole_node_ends_in_the_numbers_of_the_local_one(cluster, here):
    with Later(cluster, 1, lambda: cluster.lose(1)) as later:
        found = sweep("sorting", engine="ray", address=cluster.address, **HOW)
    assert later.is_done
    assert found.rows() == here.rows()


def test_a_sweep_whose_cluster_is_lost_goes_on_without_it(cluster, here, tmp_path):
    with (
        Later(cluster, 0, lambda: cluster.lose(0)) as later,
        pytest.raises(CouldNotRun, match=r"the connection to the Ray cluster at .* was lost"),
    ):
        sweep("sorting", engine="ray", address=cluster.address, out=tmp_path / "s", **HOW)
    assert later.is_done
    assert sweep("sorting", resume=True, out=tmp_path / "s", workers=2).rows() == here.rows()


@pytest.mark.parametrize("token", ["another", "none", "a file that is not there"])
def test_a_wrong_token_is_told(cluster, monkeypatch, token):
    for name in cluster.environment:
        monkeypatch.delenv(name)
    if token == "another":
        monkeypatch.setenv("RAY_AUTH_TOKEN", "b1" * 32)
    elif token != "none":
        monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", "/not/there")
    with pytest.raises(
        CouldNotRun, match=r"the Ray cluster at .* (did not answer|could not be used)"
    ):
        sweep("sorting", engine="ray", address=cluster.address, **HOW)
