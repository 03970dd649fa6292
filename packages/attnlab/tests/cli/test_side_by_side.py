"""Experiments in processes of their own: the order of the screen, errors, deaths and Ctrl-C."""

import os
import signal
import time
from functools import partial

import pytest

from attnlab.cli import failures, side_by_side, terminal
from attnlab.cli.estimate import TimeEstimate
from attnlab.cli.side_by_side import SideBySide
from attnlab.errors import WrongUsage

FINISHED = "claims.json"


def wait_for(path):
    while not path.exists():
        time.sleep(0.01)


def write(name, *, out, observer, after=None):
    """Write a folder, as an experiment does; `after` is the folder of one that must end before."""
    out.mkdir(parents=True)
    (out / "config.json").write_text("{}")
    observer.stage("learning")
    observer.step(1, 2, {"loss": 0.5})
    observer.tell(f"{name} says")
    if after is not None:
        wait_for(out.parent / after / FINISHED)
    (out / FINISHED).write_text("[]")
    return f"the report of {name}"


def go_on_until_stopped(*, out, observer):
    """Begin a folder, and save something in it when Ctrl-C comes."""
    out.mkdir(parents=True)
    (out / "config.json").write_text("{}")
    try:
        wait_for(out / "never")
    except KeyboardInterrupt:
        (out / "saved").touch()
        raise


def end_by_signal(*, out, observer):
    os.kill(os.getpid(), signal.SIGKILL)


def fail(error, *, out, observer):
    raise error


def outcomes_of(makes, parent):
    estimate = TimeEstimate(makes, full=False, num_processes=2)
    return SideBySide(makes, parent, estimate, 2).outcomes(is_quiet=False)


def test_the_screen_is_in_order_though_the_second_is_the_quicker(capsys, tmp_path):
    makes = {
        "slow": partial(write, "slow", after="last"),
        "quick": partial(write, "quick"),
        "last": partial(write, "last"),
    }
    for name, (report, folder) in outcomes_of(makes, tmp_path):
        assert (report, folder) == (f"the report of {name}", tmp_path / name)
        terminal.note(f"{name} is done")
    lines = []
    for number, name in enumerate(makes, 1):
        lines += [f"{name} says", f"{number}/3 {name}: learning: 1 of 2  loss 0.5000"]
        lines += [f"{name} is done"]
    assert capsys.readouterr().err.splitlines() == lines


def test_a_process_that_is_killed_fails_alone(capsys, tmp_path):
    makes = {"killed": end_by_signal, "other": partial(write, "other")}
    outcomes = dict(outcomes_of(makes, tmp_path))
    assert "its process ended with signal 9" in str(outcomes["killed"])
    assert outcomes["killed"].exit_status == 3
    assert outcomes["other"][0] == "the report of other"


@pytest.mark.parametrize(
    ("error", "status", "words"),
    [
        (WrongUsage("seeds must be fewer."), 2, "seeds must be fewer."),
        (OSError(28, "No space left on device", "runs/a"), 3, "could not use runs/a: No space"),
        (MemoryError(), 3, "there is not enough memory for this"),
        (ValueError("a fault of ours"), 3, "its process ended with exit status 1"),
    ],
)
def test_an_error_comes_through_with_its_words_and_status(tmp_path, error, status, words):
    makes = {"failing": partial(fail, error), "other": partial(write, "other")}
    outcomes = dict(outcomes_of(makes, tmp_path))
    assert words in str(outcomes["failing"])
    assert outcomes["failing"].exit_status == status
    assert outcomes["other"][0] == "the report of other"


def test_a_name_that_is_taken_gets_a_number(tmp_path):
    makes = {"one": partial(write, "one"), "two": partial(write, "two")}
    assert [folder.name for _, (_, folder) in outcomes_of(makes, tmp_path)] == ["one", "two"]
    assert [folder.name for _, (_, folder) in outcomes_of(makes, tmp_path)] == ["one-2", "two-2"]


def test_ctrl_c_lets_each_save_and_names_all_that_can_go_on(capsys, monkeypatch, tmp_path):
    folders, whole = [tmp_path / name for name in ("one", "two")], side_by_side.wait

    def interrupt_when_all_have_begun(pipes):
        if all((folder / "config.json").exists() for folder in folders):
            raise KeyboardInterrupt
        return whole(pipes, 0.01)

    monkeypatch.setattr(side_by_side, "wait", interrupt_when_all_have_begun)
    makes = dict.fromkeys(("one", "two"), go_on_until_stopped)
    with pytest.raises(KeyboardInterrupt):
        list(outcomes_of(makes, tmp_path))
    assert all((folder / "saved").exists() for folder in folders)
    assert failures.explain(KeyboardInterrupt()) == 130
    assert (
        capsys.readouterr()
        .err.splitlines()[-1]
        .endswith(
            f"the results so far are in {folders[0]} and {folders[1]}; to go on: attnlab resume "
            f"{folders[0]}; attnlab resume {folders[1]}"
        )
    )


def test_the_variables_of_the_environment_stay_as_they_were(monkeypatch, tmp_path):
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    list(outcomes_of({"one": partial(write, "one")}, tmp_path))
    assert os.environ["OMP_NUM_THREADS"] == "7"
    assert "MKL_NUM_THREADS" not in os.environ
