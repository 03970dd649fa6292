import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from attnlab.cli import main
from attnlab.errors import WrongUsage
from attnlab.experiments.population import train_population
from attnlab.experiments.resumption import resume
from attnlab.experiments.sweeps import sweep
from attnlab.experiments.tune import tune
from attnlab.train.checkpoint import latest_checkpoint
from attnlab.train.processes import ProcessGroup, is_launched, is_writer, joined

from . import team_worker

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What two processes found, in one go."""
    folder = tmp_path_factory.mktemp("team")
    command = [*TORCHRUN, team_worker.__file__, str(folder)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, env=ONE_THREAD, check=False
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    return json.loads((folder / "found.json").read_text()) | {"folder": folder}


def apart(one, other):
    """The largest distance of two trainings' weights."""
    pairs = [
        (torch.tensor(one["weights"][name]), torch.tensor(other["weights"][name]))
        for name in one["weights"]
    ]
    return max(float((a - b).abs().max()) for a, b in pairs)


def test_two_processes_end_where_one_ends_that_computes_the_whole_batch(found):
    alone = team_worker.trained(None)
    assert found["size"] == 2
    # float64, with shares of 2 and 2, 3 and 2, 1 and 0, 1 and 1 rows
    assert apart(found["whole"], alone) <= 1e-12
    assert found["whole"]["losses"] == pytest.approx(alone["losses"], rel=1e-12)


def test_gradients_that_are_not_averaged_are_caught(found):
    assert apart(found["planted"], team_worker.trained(None)) > 1e-3


def test_sentiment_is_trained_to_the_same_loss_by_two_processes_as_by_one_with_the_batch_of_both(
    found,
):
    alone = team_worker.sentiment()
    assert len(found["sentiment"]) == len(alone) > 5
    for two, one in zip(found["sentiment"], alone, strict=True):
        assert two.keys() == one.keys()
        for name, value in one.items():
            is_number = isinstance(value, float)
            assert two[name] == (pytest.approx(value, rel=1e-5) if is_number else value)


def test_each_process_has_noise_of_its_own_and_the_first_judges_for_all(found):
    first, second = found["noises"]
    assert len({*first, *second}) == 4
    # Of the evaluations every one but the first process's would have gone on.
    assert len(found["stopped early"]) == 1


def test_a_loss_that_is_not_finite_or_a_disagreement_ends_all_in_that_step(found):
    # The batch of step 2 has five rows, and the first process three of them.
    assert found["broken"].startswith("the training was no longer finite at step 2 ")
    assert "do not agree on the step (0, 1): start all of them with" in found["disagreed"]


def test_what_stops_one_process_stops_all_after_the_same_step_and_the_run_goes_on_to_the_bit(found):
    assert found["stopped"] == "stopped"
    assert found["resumed"] == found["whole"]
    kept = latest_checkpoint(found["folder"] / "checkpoints")
    assert kept.facts["step"] == 60


def test_a_process_alone_is_no_team():
    assert (is_launched(), is_writer()) == (False, True)
    with joined() as group:
        assert group is None


@pytest.mark.parametrize("size", [1, 2, 7])
@pytest.mark.parametrize("rows", [1, 5, 8])
def test_shares_hold_every_row_once_and_count_by_their_rows(size, rows):
    batch = (torch.arange(rows).double(),)
    shares = [ProcessGroup(rank, size, torch.device("cpu")).share(batch) for rank in range(size)]
    total = sum(float(part[0].mean()) * weight for part, weight in shares) / size
    assert total == pytest.approx(float(batch[0].mean()))
    held = [value for part, weight in shares if weight for value in part[0].tolist()]
    assert sorted(held) == batch[0].tolist()


COMMAND = [
    "-m", "attnlab", "run", "sentiment", "--set", "seeds=1", "epochs=40", "patience=40",
    "best_epochs=1", "baseline=false", "d_model=16", "num_heads=2", "num_layers=1", "--out",
]  # fmt: skip


def start(folder, *, processes=True):
    command = (
        [*TORCHRUN, *COMMAND, str(folder)] if processes else [sys.executable, *COMMAND, str(folder)]
    )
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ONE_THREAD
    )


def workers(process):
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return [
        int(child)
        for child in children
        if b"attnlab" in Path(f"/proc/{child}/cmdline").read_bytes()
    ]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="it finds the processes in /proc")
@pytest.mark.parametrize("whom", [0, 1])
def test_a_process_that_is_killed_ends_the_others_with_a_sentence_and_the_run_goes_on(
    whom, tmp_path
):
    folder = tmp_path / "run"
    killed = start(folder)
    deadline = time.monotonic() + 120
    while not list(folder.glob("checkpoints/*/*.safetensors")) and time.monotonic() < deadline:
        time.sleep(0.2)
    os.kill(workers(killed)[whom], signal.SIGKILL)
    _, errors = killed.communicate(timeout=60)
    assert killed.returncode != 0
    assert f"another process of this training has ended, so number {1 - whom} ends too" in errors
    resumed = subprocess.run(
        [*TORCHRUN, "-m", "attnlab", "resume", str(folder)], env=ONE_THREAD, check=False
    )
    whole = start(tmp_path / "whole")
    whole.communicate(timeout=300)
    assert (resumed.returncode, whole.returncode) == (0, 0)
    for name in ("model.safetensors", "metrics.jsonl"):
        assert (folder / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


@pytest.mark.slow
def test_only_the_first_process_writes_and_shows(tmp_path):
    two, one = start(tmp_path / "two"), start(tmp_path / "one", processes=False)
    shown, alone = two.communicate(timeout=300)[0], one.communicate(timeout=300)[0]
    assert shown.count("claims hold") == 1
    assert shown.splitlines()[-3:] == alone.replace("/one", "/two").splitlines()[-3:]
    assert {path.name for path in (tmp_path / "two").iterdir()} == {
        path.name for path in (tmp_path / "one").iterdir()
    }


@pytest.fixture
def launched(monkeypatch):
    """Pretend to be one of two processes."""
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "x")
    monkeypatch.setenv("WORLD_SIZE", "2")


@pytest.mark.usefixtures("launched")
@pytest.mark.parametrize("kind", ["population", "sweep", "search"])
def test_what_is_many_is_not_gone_on_with_by_several_processes(kind, tmp_path):
    described = {"experiment": "sorting", "seed": 0, "started": "", "settings": {}, "versions": {}}
    (tmp_path / "config.json").write_text(json.dumps(described | {"model": {}, kind: {}}))
    with pytest.raises(WrongUsage, match=f"torchrun shares out one training, and a {kind} is many"):
        resume(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]


@pytest.mark.usefixtures("launched")
@pytest.mark.parametrize(
    ("make", "rank"), [(train_population, "1"), (sweep, "1..2"), (tune, "1..2")]
)
def test_what_is_many_is_not_begun_by_several_processes(make, rank, tmp_path):
    with pytest.raises(WrongUsage, match="torchrun shares out one training"):
        make("sorting", settings={"rank": rank}, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.usefixtures("launched")
@pytest.mark.parametrize("arguments", [["all"], ["sorting", "--seeds", "4"]])
def test_what_cannot_be_shared_out_is_refused(arguments, tmp_path, capsys):
    assert main(["run", *arguments, "--out", str(tmp_path / "run")]) == 2
    assert "torchrun distributes one training: name one experiment" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
