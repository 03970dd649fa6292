"""Nothing is lost: kills, full disks, places that may not be written, changed settings, two at
once.

The long campaigns are marked slow; short samples of them run always.
"""

import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

import attnlab
from attnlab.cli import main
from attnlab.core import store
from attnlab.core.store import LOCK
from attnlab.errors import CouldNotRun
from attnlab.experiments import experiment, registry, runner
from attnlab.experiments.folder import is_finished, list_runs
from attnlab.train.layouts.sequential import Sequential
from tests.sampling import sampled

from .runs import FAILED, SETTINGS, check_readable, check_same, make_whole, output_of, start
from .tiny import WAYS, begin, end, fit, kill, make_draw, member, weights


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that nothing disturbed, and the seconds that it took."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    return folder, make_whole(folder)


class TestKilledAtRandomMoments:
    def test_some(self, whole, tmp_path):
        assert kill_often(whole, tmp_path, kills=2) == 2

    @pytest.mark.slow
    def test_many(self, whole, tmp_path):
        assert kill_often(whole, tmp_path, kills=200) == 200

    def test_a_training_that_goes_on_without_its_moments_is_caught(
        self, whole, tmp_path, monkeypatch
    ):
        load = Sequential.load_state

        def forgetful(self, state):
            load(
                self, {name: t * 0 if name.startswith("first.") else t for name, t in state.items()}
            )

        monkeypatch.setattr(Sequential, "load_state", forgetful)
        with pytest.raises(AssertionError):
            kill_often(whole, tmp_path, kills=25)


def kill_often(whole, parent, *, kills):
    """Kill runs at random moments, going on with each until it ends, and return how many were
    killed."""
    undisturbed, seconds = whole
    drawn, killed, number = random.Random(0), 0, 0
    while killed < kills:
        folder = parent / f"run-{number}"
        while (
            kill(start(folder), drawn.uniform(0.0, seconds)) == -signal.SIGKILL and killed < kills
        ):
            killed += 1
            check_readable(folder)
        if not is_finished(folder):
            assert end(start(folder)) == FAILED
        check_same(folder, undisturbed)
        number += 1
    return killed


def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)


def die_before(owner, name, nth):
    """Kill this process before the nth call of a function."""
    whole, calls = getattr(owner, name), []

    def call(*args, **options):
        calls.append(1)
        if len(calls) == nth:
            die()
        return whole(*args, **options)

    setattr(owner, name, call)


def die_within_a_write(nth):
    """Kill this process with half of the nth file written."""
    whole, calls = Path.write_bytes, []

    def write(path, content):
        calls.append(1)
        if len(calls) == nth:
            whole(path, content[: len(content) // 2])
            die()
        whole(path, content)

    Path.write_bytes = write


POINTS = {
    "before the file is opened": lambda nth: die_before(store.tempfile, "mkdtemp", nth),
    "with half of it written": die_within_a_write,
    "before it is synced": lambda nth: die_before(store.os, "fsync", 2 * nth - 1),
    "before it is renamed": lambda nth: die_before(store.os, "replace", nth),
    "after it is renamed": lambda nth: die_before(store, "_sync_folder", nth),
    "before its folder is synced": lambda nth: die_before(store.os, "fsync", 2 * nth),
    "while an old one is removed": lambda nth: die_before(Path, "unlink", nth),
}


@pytest.mark.parametrize("point", list(POINTS)[1::2])
def test_killed_at_some_points_of_a_save(point, whole, tmp_path):
    kill_at(point, [random.Random(point).randrange(2, 8)], whole, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("point", POINTS)
def test_killed_at_each_point_of_every_save(point, whole, tmp_path):
    # Of seven checkpoints five are removed again, and then two locks.
    kill_at(point, range(1, 8 if "removed" in point else 11), whole, tmp_path)


def kill_at(point, places, whole, parent):
    for nth in places:
        folder = parent / f"run-{nth}"
        assert end(start(folder, before=lambda nth=nth: POINTS[point](nth))) == -signal.SIGKILL
        check_readable(folder)
        assert end(start(folder)) == FAILED
        check_same(folder, whole[0])


def test_of_a_run_killed_before_it_had_a_config_nothing_stands_in_the_way(whole, tmp_path):
    folder = tmp_path / "run"
    assert (
        end(start(folder, before=lambda: POINTS["with half of it written"](1))) == -signal.SIGKILL
    )
    names = {path.name for path in folder.iterdir()}
    assert LOCK in names
    assert any(name.endswith(".part") for name in names)
    assert end(start(folder)) == FAILED
    check_same(folder, whole[0])


class TestAFullDisk:
    def test_some_levels(self, whole, tmp_path):
        fill(whole, tmp_path, [3_000])

    @pytest.mark.slow
    def test_many_levels(self, whole, tmp_path):
        fill(whole, tmp_path, range(500, 80_500, 4_000))

    @pytest.mark.slow
    def test_many_levels_of_a_real_disk(self, whole, tmp_path):
        disk = tmp_path / "disk"
        disk.mkdir()
        for level in range(20):
            with mounted(disk, "size=64m"):
                folder = disk / "run"
                status = end(
                    start(folder, before=lambda level=level: fill_at_step(disk, 60, 8_192 * level))
                )
                check_full(status, folder)
                (disk / "filler").unlink()
                assert end(start(folder)) == FAILED
                check_same(folder, whole[0])

    def test_too_little_room_is_refused_before_the_first_step(self, tmp_path):
        disk = tmp_path / "disk"
        disk.mkdir()
        with mounted(disk, "size=1m"):
            folder = disk / "run"
            assert (
                end(
                    begin(
                        lambda: main(["run", "sorting", "-q", "--out", str(folder)]),
                        tmp_path / "output",
                    )
                )
                == 3
            )
            assert (
                "bytes are free there and a run needs 4,194,304"
                in (tmp_path / "output").read_text()
            )
            assert list(disk.iterdir()) == []


def fill(whole, parent, levels):
    """Let no file grow beyond a number of bytes, from 50 steps on; then lift that, and go on."""
    for level in levels:
        folder = parent / f"run-{level}"

        def limit(level=level):
            at_step(50, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (level, level)))

        status = end(start(folder, before=limit))
        check_full(status, folder)
        assert end(start(folder)) == FAILED
        check_same(folder, whole[0])


def check_full(status, folder):
    text = output_of(folder).read_text()
    assert status == 3, text
    assert text.count("\n") == 1
    assert str(folder) in text
    assert "bytes)" in text
    assert text.endswith(f"The results so far are in {folder}; to go on: attnlab resume {folder}\n")
    check_readable(folder)
    assert list(folder.glob("checkpoints/**/*.safetensors"))
    assert not list(folder.rglob("*.part"))
    output_of(folder).unlink()


def at_step(step, do):
    """Do something in this process when the training has come to a step."""
    from attnlab.train.loop import _Training

    whole = _Training._note

    def note(self, now, *rest):
        if now == step:
            do()
        whole(self, now, *rest)

    _Training._note = note


def fill_at_step(disk, step, left):
    def fill_up():
        free = shutil.disk_usage(disk).free
        (disk / "filler").write_bytes(bytes(max(free - left, 0)))

    at_step(step, fill_up)


@contextmanager
def mounted(folder, options):
    """Mount a small disk, where that is allowed."""
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], capture_output=True, check=False
    )
    if done.returncode:
        pytest.skip("mounting a disk is not allowed here")
    try:
        yield
    finally:
        subprocess.run(["umount", folder], check=True)


class TestPlacesThatMayNotBeWritten:
    @staticmethod
    def refused(folder, tmp_path, words, before=lambda: None):
        def call():
            registry.find("sorting")  # before a user comes who may not even read Python's files
            experiment.train_together = lambda *_, **__: pytest.fail("the training began")
            before()
            try:
                attnlab.run("sorting", out=folder)
            except CouldNotRun as error:
                sys.stdout.write(f"{error}\n")
                return error.exit_status

        assert end(begin(call, tmp_path / "output")) == 3
        text = (tmp_path / "output").read_text()
        assert text.count("\n") == 1
        assert str(folder)[:50] in text  # a very long name is cut
        assert words in text

    def test_a_file_stands_there(self, tmp_path):
        (tmp_path / "file").write_text("mine")
        for folder in (tmp_path / "file", tmp_path / "file" / "run"):
            self.refused(folder, tmp_path, "There is a file where a folder is needed")
            (tmp_path / "output").unlink()
        assert (tmp_path / "file").read_text() == "mine"

    def test_a_name_too_long(self, tmp_path):
        self.refused(tmp_path / ("x" * 300), tmp_path, "Choose a shorter name")

    def test_something_else_is_there(self, tmp_path):
        self.refused(tmp_path, tmp_path, "holds something already")

    def test_another_user_owns_it(self, tmp_path):
        if os.getuid():
            pytest.skip("only root can become another user")
        (tmp_path / "theirs").mkdir(mode=0o700)
        self.refused(
            tmp_path / "theirs" / "run",
            tmp_path,
            "You have no permission to write there",
            lambda: os.setuid(65534),
        )

    def test_a_file_system_is_read_only(self, tmp_path):
        disk = tmp_path / "disk"
        disk.mkdir()
        with mounted(disk, "size=64m,ro"):
            self.refused(disk / "run", tmp_path, "The file system is read-only")

    def test_a_checkpoint_folder_that_may_not_be_written(self, tmp_path):
        (tmp_path / "checkpoints").write_text("mine")
        with pytest.raises(CouldNotRun, match="There is a file where a folder is needed"):
            fit(tmp_path / "checkpoints", loss=lambda *_: pytest.fail("a step was taken"))


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """A run that was killed in its training."""
    folder = tmp_path_factory.mktemp("stopped") / "run"
    assert end(start(folder, before=lambda: at_step(90, die))) == -signal.SIGKILL
    return folder


CHANGES = [
    ("task", "reverse"),
    ("letters", 4),
    ("length", 4),
    ("d_model", 8),
    ("num_heads", 3),
    ("num_layers", 2),
    ("d_ff", 7),
    ("projections", "dense"),
    ("rank", 2),
    ("temperature", 0.5),
    ("positions", "rotary"),
    ("norm", "rms"),
    ("norm_place", "post"),
    ("activation", "gelu"),
    ("bias", True),
    ("dropout", 0.1),
    ("initial_scale", 0.9),
    ("steps", 151),
    ("batch_size", 127),
    ("learning_rate", 2e-3),
    ("warmup_steps", 3),
    ("weight_decay", 0.1),
    ("clip", 0.9),
    ("evaluate_every", 31),
    ("most_judged", 26),
    ("seed", 1),
    ("layout", "vmap"),
    ("engine", "eager"),
]


def contents(folder):
    return {
        path: path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != LOCK
    }


@pytest.mark.parametrize(("name", "value"), CHANGES, ids=str)
def test_a_run_with_another_setting_is_refused_with_its_name(stopped, name, value):
    before = contents(stopped)
    with pytest.raises(
        CouldNotRun,
        match=rf"is another one, and was left as it is:(?s:.*)\n  {name}: .* there, .* here",
    ):
        attnlab.run("sorting", out=stopped, resume=True, **{**SETTINGS, name: value})
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


def test_a_run_of_another_experiment_is_refused(stopped):
    with pytest.raises(CouldNotRun, match='experiment: "sorting" there, "anatomy" here'):
        attnlab.run("anatomy", out=stopped, resume=True)


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


def test_threads_and_matrix_path_are_as_they_were(stopped, tmp_path):
    import torch

    from attnlab.experiments.sorting import sorter
    from attnlab.parts.linear import matrix_path_in_use

    folder = shutil.copytree(stopped, tmp_path / "run")
    config = json.loads((folder / "config.json").read_text())
    other = "onednn" if config["matrix_path"] == "default" else "default"
    (folder / "config.json").write_text(json.dumps({**config, "threads": 3, "matrix_path": other}))
    seen, whole = [], sorter.conclude
    monkey = pytest.MonkeyPatch()

    def conclude(*args):
        seen.append((torch.get_num_threads(), matrix_path_in_use()))
        return whole(*args)

    with monkey.context() as patch:
        patch.setattr(sorter, "conclude", conclude)
        attnlab.resume(folder)
    assert seen == [(3, other)]
    assert torch.get_num_threads() == 1
    for damaged in (
        {"threads": "all"},
        {"matrix_path": "evil"},
        {"settings": {"steps": -1}},
        {"layout": None},
    ):
        folder = shutil.copytree(stopped, tmp_path / str(damaged)[:9])
        (folder / "config.json").write_text(json.dumps({**config, **damaged}))
        with pytest.raises(CouldNotRun):
            attnlab.resume(folder)


def test_what_cannot_be_gone_on_with_is_said(whole, tmp_path, capsys):
    finished = whole[0]
    before = contents(finished)
    settings = [f"{name}={value}" for name, value in SETTINGS.items()]
    again = ["run", "sorting", "--resume", "--out", str(finished)]
    for command in (["resume", str(finished)], [*again, "--set", *settings]):
        assert main(command) == FAILED
        assert (
            "is finished: nothing is left to do, and nothing was changed."
            in capsys.readouterr().err
        )
    for command, words in (
        (again, "steps: 150 there"),
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

    first = start(folder, before=lambda: at_step(60, wait))
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


PLACES = {
    "the training": ("attnlab.train.layouts.sequential", "Sequential.advance"),
    "an evaluation": ("attnlab.experiments.sorting.sorting_claims", "answers"),
    "a checkpoint": ("attnlab.train.checkpoint", "write_bytes"),
    "the report": ("attnlab.experiments.report", "write_text"),
    "the figures": ("attnlab.draw.figures", "section_figures"),
    "the last file": ("attnlab.experiments.report", "write_json"),
}


INTERRUPTIONS = [
    ("the training", signal.SIGTERM),
    ("an evaluation", signal.SIGINT),
    ("a checkpoint", signal.SIGINT),
    ("the figures", signal.SIGINT),
    ("the training", signal.SIGINT),
    ("the report", signal.SIGINT),
    ("the report", signal.SIGTERM),
    ("the last file", signal.SIGINT),
]


@pytest.mark.parametrize("interruption", sampled(INTERRUPTIONS, 4), ids=str)
def test_an_interrupted_run_names_what_is_kept_and_goes_on(interruption, whole, tmp_path):
    folder = tmp_path / "run"
    place, number = interruption
    module, name = PLACES[place]

    def interrupt():
        with pytest.MonkeyPatch.context() as patch:
            owner = sys.modules[module]
            *parts, last = name.split(".")
            for part in parts:
                owner = getattr(owner, part)
            undisturbed = getattr(owner, last)

            def call(*args, **options):
                signal.raise_signal(number)
                return undisturbed(*args, **options)

        setattr(owner, last, call)
        del patch

    has_figures = place == "the figures"
    status = end(start(folder, before=interrupt, has_figures=has_figures))
    who = "you" if number == signal.SIGINT else "SIGTERM"
    assert status == {signal.SIGINT: 130, signal.SIGTERM: 143}[number]
    expected = (
        f"attnlab: stopped by {who}; the results so far are in {folder}; to go on: attnlab resume "
        f"{folder}\n"
    )
    assert output_of(folder).read_text() == expected
    assert list_runs(tmp_path)[0]["state"] == "unfinished"
    assert end(start(folder)) == FAILED
    check_same(folder, whole[0])


class TestSignalsAtRandomMoments:
    """Of real processes, from their first import on."""

    @pytest.mark.slow
    def test_many(self, whole, tmp_path):
        once = [(signal.SIGINT,)] * 50 + [(signal.SIGTERM,)] * 20
        signal_often(whole, tmp_path, once + [(signal.SIGINT, signal.SIGINT)] * 20)


def signal_often(whole, parent, campaigns):
    drawn = random.Random(1)
    settings = [f"{name}={value}" for name, value in SETTINGS.items()]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONDEVMODE": ""}
    for number, signals in enumerate(campaigns):
        folder = parent / f"run-{number}"
        command = [
            sys.executable,
            "-m",
            "attnlab",
            "run",
            "sorting",
            "-q",
            "--out",
            str(folder),
            "--set",
            *settings,
        ]
        process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment
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
        expected = {FAILED, 128 + last, -last}
        assert status in expected, (status, told)
        assert "Traceback" not in told
        assert told.count("\n") <= 1
        check_readable(folder)
        if (folder / "config.json").exists():
            if not is_finished(folder):
                assert f"attnlab resume {folder}" in told
            assert end(start(folder)) == FAILED
            assert (folder / "model.safetensors").read_bytes() == (
                whole[0] / "model.safetensors"
            ).read_bytes()
            assert (folder / "metrics.jsonl").read_bytes() == (
                whole[0] / "metrics.jsonl"
            ).read_bytes()


@pytest.mark.slow
def test_a_fault_at_any_of_many_steps_is_caught_in_that_step_and_disturbs_nobody():
    drawn = random.Random(2)
    for number in range(30):
        at = drawn.randrange(1, 151)

        def draw(first, count, at=at):
            (x,) = make_draw(1)(first, count)
            if first < at <= first + count:
                x[at - 1 - first] = float("nan")
            return (x,)

        layout, engine = WAYS[number % len(WAYS)]
        members, found = fit(
            members=[member(0), member(1, draw=draw), member(2)], layout=layout, engine=engine
        )
        undisturbed, _ = fit(num=3, layout=layout, engine=engine)
        assert found.history.faults[1].startswith(f"at step {at} (loss nan")
        for place in (0, 2):
            assert weights([members[place]]) == weights([undisturbed[place]])
