"""Nothing is lost: kills, full disks, changed settings, two at once."""

import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from functools import partial

import pytest
import torch

import attnlab
from attnlab.cli import main
from attnlab.core.store import LOCK
from attnlab.draw import figures
from attnlab.errors import CouldNotRun
from attnlab.experiments import experiment, registry, report, runner
from attnlab.experiments.folder import is_finished, list_runs
from attnlab.experiments.sorting import sorter, sorting_claims
from attnlab.parts.linear import matrix_path_in_use
from attnlab.train import checkpoint
from attnlab.train.layouts.sequential import Sequential
from tests.sampling import sampled

from .runs import FAILED, SETTINGS, check_readable, check_same, make_whole, output_of, start
from .tiny import begin, end, fit


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that nothing disturbed, and the seconds that it took."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    return folder, make_whole(folder)


def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("level", sampled([3_000, *range(500, 80_500, 4_000)], 1))
def test_no_file_may_grow_beyond_a_number_of_bytes(level, whole, tmp_path):
    folder = tmp_path / "run"

    def limit():
        at_step(40, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (level, level)))

    status, text = end(start(folder, before=limit)), output_of(folder).read_text()
    assert status == 3, text
    assert text.count("\n") == 1
    assert str(folder) in text
    assert "bytes)" in text
    assert text.endswith(f"The results so far are in {folder}; to go on: attnlab resume {folder}\n")
    check_readable(folder)
    assert list(folder.glob("checkpoints/**/*.safetensors"))
    assert not list(folder.rglob("*.part"))
    assert end(start(folder)) == FAILED
    check_same(folder, whole[0])


def at_step(step, do):
    """Do something in this process when the training has come to a step."""
    from attnlab.train.loop import _Training

    whole = _Training._note

    def note(self, now, *rest):
        if now == step:
            do()
        whole(self, now, *rest)

    _Training._note = note


def test_a_folder_of_another_user_is_said_before_the_training(tmp_path):
    if os.getuid():
        pytest.skip("only root can become another user")
    (tmp_path / "theirs").mkdir(mode=0o700)

    def call():
        registry.find("sorting")  # before a user comes who may not even read Python's files
        experiment.train_together = lambda *_, **__: pytest.fail("the training began")
        os.setuid(65534)
        try:
            attnlab.run("sorting", out=tmp_path / "theirs" / "run")
        except CouldNotRun as error:
            sys.stdout.write(f"{error}\n")
            return error.exit_status

    assert end(begin(call, tmp_path / "output")) == 3
    text = (tmp_path / "output").read_text()
    assert text.count("\n") == 1
    assert "You have no permission to write there" in text


def test_a_checkpoint_folder_that_may_not_be_written_is_said(tmp_path):
    (tmp_path / "checkpoints").write_text("mine")
    with pytest.raises(CouldNotRun, match="There is a file where a folder is needed"):
        fit(tmp_path / "checkpoints", loss=lambda *_: pytest.fail("a step was taken"))


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """A run that was killed in its training."""
    folder = tmp_path_factory.mktemp("stopped") / "run"
    assert end(start(folder, before=lambda: at_step(40, die))) == -signal.SIGKILL
    return folder


CHANGES = """
    letters=4 d_model=8 learning_rate=2e-3 seed=1 layout=vmap engine=eager
    task=reverse length=4 num_heads=3 num_layers=2 d_ff=7 projections=dense rank=2 temperature=0.5
    positions=rotary norm=rms norm_place=post activation=gelu bias=true dropout=0.1
    initial_scale=0.9 steps=61 batch_size=127 warmup_steps=3 weight_decay=0.1 clip=0.9
    evaluate_every=31 most_judged=26
"""


def contents(folder):
    return {
        path: path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != LOCK
    }


@pytest.mark.parametrize("change", sampled(CHANGES.split(), 3))
def test_a_run_with_another_setting_is_refused_with_its_name(stopped, change):
    before, (name, _, value) = contents(stopped), change.partition("=")
    settings = {setting: str(number) for setting, number in SETTINGS.items()}
    options = {"seed": 1} if name == "seed" else {name: value}
    if name not in ("seed", "layout", "engine"):
        settings, options = {**settings, **options}, {}
    with pytest.raises(
        CouldNotRun,
        match=rf"is another one, and was left as it is:(?s:.*)\n  {name}: .* there, .* here",
    ):
        attnlab.run("sorting", out=stopped, resume=True, settings=settings, **options)
    assert contents(stopped) == before


@pytest.mark.parametrize("name", ["attnlab", "torch"])
def test_a_run_with_another_version_is_refused_with_its_name(stopped, name, monkeypatch):
    own = runner.describe_run

    def described(*args, **options):
        found = own(*args, **options)
        return {**found, "versions": {**found["versions"], name: "0.0"}}

    monkeypatch.setattr(runner, "describe_run", described)
    with pytest.raises(CouldNotRun, match=rf'\n  versions\.{name}: ".*" there, "0\.0" here$'):
        attnlab.run("sorting", out=stopped, resume=True, **SETTINGS)


def test_an_older_python_is_only_told(stopped, tmp_path, whole, capsys):
    folder = shutil.copytree(stopped, tmp_path / "run")
    config = json.loads((folder / "config.json").read_text())
    config["versions"]["python"] = "3.2"
    (folder / "config.json").write_text(json.dumps(config))
    assert main(["resume", str(folder)]) == FAILED
    assert 'The last digits may differ (versions.python: "3.2" there' in capsys.readouterr().err
    assert (folder / "model.safetensors").read_bytes() == (
        whole[0] / "model.safetensors"
    ).read_bytes()


def test_threads_and_matrix_path_are_as_they_were(stopped, tmp_path, monkeypatch):
    folder = shutil.copytree(stopped, tmp_path / "run")
    config = json.loads((folder / "config.json").read_text())
    other = "onednn" if config["matrix_path"] == "default" else "default"
    (folder / "config.json").write_text(json.dumps({**config, "threads": 3, "matrix_path": other}))
    seen = []

    def conclude(*args):
        seen.append((torch.get_num_threads(), matrix_path_in_use()))
        raise KeyboardInterrupt

    monkeypatch.setattr(sorter, "conclude", conclude)
    with pytest.raises(KeyboardInterrupt):
        attnlab.resume(folder)
    assert seen == [(3, other)]
    assert torch.get_num_threads() == 1
    for damaged in (
        {"threads": "all"},
        {"matrix_path": "evil"},
        {"settings": {"steps": -1}},
        {"layout": None},
    ):
        (folder / "config.json").write_text(json.dumps({**config, **damaged}))
        with pytest.raises(CouldNotRun):
            attnlab.resume(folder)


def test_what_cannot_be_gone_on_with_is_said(whole, tmp_path, capsys):
    finished = whole[0]
    before = contents(finished)
    settings = [f"{name}={value}" for name, value in SETTINGS.items()]
    again = ["run", "sorting", "--resume", "--out", str(finished)]
    for command in (["resume", str(finished)], [*again, "--json", "--set", *settings]):
        assert main(command) == FAILED
        out, err = capsys.readouterr()
        assert "is finished: nothing is left to do, and nothing was changed." in err
        assert "The exit status is 1: " in err
    assert json.loads(out)["passed"] is False
    for command, words in (
        (again, "steps: 60 there"),
        (["resume", str(tmp_path / "no")], "there is no run in"),
        (
            ["run", "sorting", "--resume", "--out", str(tmp_path / "no")],
            "there is no run to resume in",
        ),
        (["run", "sorting", "--resume"], "--resume needs --out"),
        (
            ["run", "all", "--resume", "--out", str(tmp_path)],
            "--resume needs --out with the folder of one run",
        ),
    ):
        assert main(command) in (2, 3)
        assert words in capsys.readouterr().err
    with pytest.raises(CouldNotRun, match="is finished: nothing is left to do"):
        attnlab.resume(finished)
    assert contents(finished) == before


def test_an_unfinished_run_says_how_to_go_on(stopped, capsys):
    assert main(["list", str(stopped.parent)]) == 0
    assert f"to go on  attnlab resume {stopped}" in capsys.readouterr().out
    for command in (["show", str(stopped)], ["run", "sorting", "-q", "--out", str(stopped)]):
        assert main(command) == 3
        assert f"attnlab resume {stopped}" in capsys.readouterr().err


def test_only_one_writes_a_run(whole, tmp_path):
    folder, go = tmp_path / "run", tmp_path / "go"

    def wait():
        go.touch()
        while go.exists():
            time.sleep(0.01)

    first = start(folder, before=lambda: at_step(40, wait))
    while not go.exists():
        time.sleep(0.01)
    output = tmp_path / "output"
    for command, words in (
        (["run", "sorting", "-q", "--out", str(folder)], "holds a run already"),
        (["resume", "-q", str(folder)], f"process {first} is writing into {folder}"),
    ):
        assert end(begin(lambda command=command: main(command), output)) == 3
        assert words in output.read_text()
    go.unlink()
    assert end(first) == FAILED
    check_same(folder, whole[0])


INTERRUPTIONS = {
    "the training, by SIGTERM": (Sequential, "advance", signal.SIGTERM),
    "the report": (report, "write_text", signal.SIGINT),
    "a checkpoint": (checkpoint, "write_bytes", signal.SIGINT),
    "an evaluation": (sorting_claims, "answers", signal.SIGINT),
    "the figures": (figures, "section_figures", signal.SIGINT),
    "the training": (Sequential, "advance", signal.SIGINT),
    "the report, by SIGTERM": (report, "write_text", signal.SIGTERM),
    "the last file": (report, "write_json", signal.SIGINT),
}


@pytest.mark.parametrize("place", sampled(INTERRUPTIONS, 1))
def test_an_interrupted_run_names_what_is_kept_and_goes_on(place, whole, tmp_path):
    folder = tmp_path / "run"
    owner, name, number = INTERRUPTIONS[place]
    undisturbed = getattr(owner, name)

    def interrupted(*args, **options):
        signal.raise_signal(number)
        return undisturbed(*args, **options)

    interrupt = partial(setattr, owner, name, interrupted)
    status = end(start(folder, before=interrupt, has_figures=place == "the figures"))
    who = "you" if number == signal.SIGINT else "SIGTERM"
    assert status == 128 + number
    assert output_of(folder).read_text() == (
        f"attnlab: stopped by {who}; the results so far are in {folder}; to go on: attnlab resume "
        f"{folder}\n"
    )
    assert list_runs(tmp_path)[0]["state"] == "unfinished"
    assert end(start(folder)) == FAILED
    check_same(folder, whole[0])


ONCE = [(signal.SIGINT,)] * 50 + [(signal.SIGTERM,)] * 20


@pytest.mark.slow
def test_real_processes_may_be_sent_signals_from_their_first_import_on(whole, tmp_path):
    drawn = random.Random(1)
    command = [sys.executable, "-m", "attnlab", "run", "sorting", "-q", "--set"]
    command += [f"{name}={value}" for name, value in SETTINGS.items()]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONDEVMODE": ""}
    for number, signals in enumerate([*ONCE, *[(signal.SIGINT, signal.SIGINT)] * 20]):
        folder = tmp_path / f"run-{number}"
        process = subprocess.Popen(
            [*command, "--out", str(folder)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        time.sleep(drawn.uniform(0.15, 4.0))
        for each in signals:
            process.send_signal(each)
            if len(signals) > 1:
                time.sleep(drawn.uniform(0.0, 0.05))
        _, told = process.communicate(timeout=60)
        status, last = process.returncode, signals[0]
        # One that comes before there is a handler, or after the last sentence, ends the process as
        # it ends any other.
        assert status in (FAILED, 128 + last, -last), (status, told)
        assert "Traceback" not in told
        assert told.count("\n") <= 1
        check_readable(folder)
        if (folder / "config.json").exists():
            if not is_finished(folder):
                assert f"attnlab resume {folder}" in told
            assert end(start(folder)) == FAILED
            for name in ("model.safetensors", "metrics.jsonl"):
                assert (folder / name).read_bytes() == (whole[0] / name).read_bytes()
