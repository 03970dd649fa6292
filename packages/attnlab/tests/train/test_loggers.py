import json
import math
import os
import shutil
import sqlite3
import sys

import pytest

import attnlab
from attnlab.errors import CouldNotRun, WrongUsage
from attnlab.train import loggers
from attnlab.train.loggers import Loggers, MLflow, TensorBoard, measured
from attnlab.train.observer import Silent
from tests.sampling import sampled

SETTINGS = {"steps": 100, "evaluate_every": 50, "learning_rate": 1e-2}
DESCRIPTION = {"experiment": "sorting", "seed": 3, "settings": {"steps": 100}}
LINES = [
    {"step": 50, "loss": 0.5, "learning_rate": 1e-2},
    {"step": 50, "accuracy": 0.25},
    {"step": 100, "loss": 0.25, "learning_rate": 1e-3},
]


@pytest.fixture(scope="module")
def empty_store(tmp_path_factory):
    """A store of MLflow with its tables and nothing in them, which it takes seconds to make."""
    tracking = pytest.importorskip("mlflow.tracking")
    place = tmp_path_factory.mktemp("store") / "mlflow.db"
    with loggers._unheard():
        tracking.MlflowClient(tracking_uri=f"sqlite:///{place}").search_experiments()
    return place


@pytest.fixture
def quick_stores(empty_store, monkeypatch):
    """Begin each store of MLflow as a copy of the empty one."""
    make = MLflow.__init__

    def copied(self, folder, description):
        if not (folder / "mlflow.db").exists():
            shutil.copy(empty_store, folder)
        make(self, folder, description)

    monkeypatch.setattr(MLflow, "__init__", copied)


class Listening(Silent):
    """Keeps what it is told."""

    def __init__(self):
        self.told = []

    def tell(self, sentence):
        self.told.append(sentence)


def read_tensorboard(folder):
    """Read event files back with TensorBoard's own reader: (name, step) -> value."""
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = accumulator.EventAccumulator(str(folder / "tensorboard")).Reload()
    return {
        (name, each.step): each.value
        for name in events.Tags()["scalars"]
        for each in events.Scalars(name)
    }


def read_mlflow(folder):
    """Read a store back with MLflow's own client: (name, step) -> value, and the parameters."""
    tracking = pytest.importorskip("mlflow.tracking")
    with loggers._unheard():
        client = tracking.MlflowClient(tracking_uri=f"sqlite:///{folder / 'mlflow.db'}")
        (experiment,) = (
            each for each in client.search_experiments() if each.name == "attnlab sorting"
        )
        (run,) = client.search_runs([experiment.experiment_id])
        histories = {
            name: client.get_metric_history(run.info.run_id, name) for name in run.data.metrics
        }
    assert run.info.status == "FINISHED"
    return {
        (name, each.step): each.value for name, own in histories.items() for each in own
    }, run.data.params


READ = {"tensorboard": read_tensorboard, "mlflow": lambda folder: read_mlflow(folder)[0]}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ({"step": 1, "loss": 0.5}, (1, {"loss": 0.5})),
        (
            {"model": "mini", "split": "by text", "member": 2, "step": 7, "loss": 1.0},
            (7, {"mini/by text/2/loss": 1.0}),
        ),
        ({"step": 200, "task": "unique", "loss": None}, None),
        ({"experiment": "rank", "claim": "kept", "passed": True}, None),
    ],
)
def test_a_line_says_what_was_measured_when_and_of_whom(line, expected):
    assert measured(line) == expected


@pytest.mark.usefixtures("quick_stores")
@pytest.mark.parametrize("name", ["tensorboard", "mlflow"])
def test_what_is_logged_is_what_the_package_reads_back_and_no_line_twice(name, tmp_path):
    listening = Listening()
    for lines in (LINES, LINES[:2]):  # the second run begins anew
        made = Loggers([name], tmp_path, DESCRIPTION, listening.tell)
        for line in lines:
            made.log(line)
        made.close()
        expected = {(key, line["step"]): value for line in lines for key, value in line.items()}
        found = READ[name](tmp_path)
        assert found == pytest.approx(  # TensorBoard keeps float32
            {key: value for key, value in expected.items() if key[0] != "step"}, rel=1e-6
        )
    assert listening.told == []
    assert loggers.loggers_in(tmp_path) == [name]


@pytest.mark.usefixtures("quick_stores")
def test_a_run_logs_to_both_and_to_its_own_file_as_ever(tmp_path):
    report = attnlab.run(
        "sorting", out=tmp_path / "run", loggers=["tensorboard", "mlflow"], **SETTINGS
    )
    lines = [
        json.loads(line) for line in (report.folder / "metrics.jsonl").read_text().splitlines()
    ]
    expected = {
        (name, line["step"]): line[name] for line in lines for name in line if name != "step"
    }
    found, parameters = read_mlflow(report.folder)
    assert found == expected
    assert read_tensorboard(report.folder) == pytest.approx(expected, rel=1e-6)
    assert (parameters["seed"], parameters["learning_rate"], parameters["steps"]) == (
        "0",
        "0.01",
        "100",
    )
    # Nothing of MLflow leaves the machine.
    assert os.environ["MLFLOW_DISABLE_TELEMETRY"] == "true"
    with sqlite3.connect(report.folder / "mlflow.db") as store:
        (place,) = store.execute(
            "select artifact_location from experiments where name like 'attnlab%'"
        ).fetchone()
    assert place == str(report.folder)


def test_a_run_that_was_stopped_goes_on_with_the_loggers_it_had(tmp_path):
    class Stopping(Silent):
        def step(self, step, steps, figures):
            if step == 100:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        attnlab.run(
            "sorting",
            out=tmp_path / "run",
            loggers=["tensorboard"],
            observer=Stopping(),
            **SETTINGS,
        )
    attnlab.run("sorting", out=tmp_path / "run", resume=True, **SETTINGS)
    attnlab.run("sorting", out=tmp_path / "whole", loggers=["tensorboard"], **SETTINGS)
    assert read_tensorboard(tmp_path / "run") == read_tensorboard(tmp_path / "whole")


@pytest.mark.usefixtures("quick_stores")
@pytest.mark.parametrize(("name", "kind"), [("tensorboard", TensorBoard), ("mlflow", MLflow)])
@pytest.mark.parametrize("method", sampled(["log", "__init__", "close"], 1))
def test_a_logger_that_fails_says_so_once_and_the_run_goes_on(
    name, kind, method, tmp_path, monkeypatch
):
    pytest.importorskip(name)

    def failing(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(kind, method, failing)
    listening = Listening()
    report = attnlab.run(
        "sorting", out=tmp_path / "run", loggers=[name], observer=listening, **SETTINGS
    )
    told = [sentence for sentence in listening.told if "logs no more" in sentence]
    assert told == [
        f"{name} failed and logs no more ([Errno 28] No space left on device); metrics.jsonl "
        "has every line."
    ]
    assert (
        len(report.metrics) == len((report.folder / "metrics.jsonl").read_text().splitlines()) > 3
    )


@pytest.mark.usefixtures("quick_stores")
def test_a_store_that_vanishes_is_told_once_and_ends_no_training(tmp_path):
    pytest.importorskip("mlflow")
    listening = Listening()
    made = Loggers(["mlflow"], tmp_path, DESCRIPTION, listening.tell)
    (tmp_path / "mlflow.db").unlink()
    (tmp_path / "mlflow.db").mkdir()  # nobody can write a file there now
    made.log(LINES[0])
    made.close()
    assert len(listening.told) == 1


def test_figures_that_are_not_finite_are_logged_as_such(tmp_path):
    pytest.importorskip("tensorboard")
    made = Loggers(["tensorboard"], tmp_path, DESCRIPTION, Listening().tell)
    made.log({"step": 1, "loss": math.nan})
    made.close()
    assert math.isnan(read_tensorboard(tmp_path)["loss", 1])


@pytest.mark.parametrize("name", ["tensorboard", "mlflow"])
def test_a_package_that_is_missing_is_said_before_anything_long(name, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(
        CouldNotRun,
        match=rf"{name} is not installed; install it with: pip install 'attnlab\[{name}\]'",
    ):
        attnlab.run("sorting", out=tmp_path / "run", loggers=[name])
    assert not (tmp_path / "run").exists()


def test_what_cannot_log_is_refused_in_words(tmp_path):
    with pytest.raises(
        WrongUsage, match="there is no logger 'tensorbord'; did you mean 'tensorboard'"
    ):
        attnlab.run("sorting", out=tmp_path / "run", loggers=["tensorbord"])
    with pytest.raises(WrongUsage, match="loggers write into the run folder; name one with out"):
        attnlab.run("sorting", loggers=["tensorboard"])
