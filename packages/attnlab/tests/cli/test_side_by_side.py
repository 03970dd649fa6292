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


ERRORS = {
    "wrong": (WrongUsage("seeds must be fewer."), 2, "seeds must be fewer."),
    "full": (OSError(28, "No space left on device", "runs/a"), 3, "could not use runs/a: No space"),
    "fault": (ValueError("a fault of ours"), 3, "its process ended with exit status 1"),
    "killed": (None, 3, "its process ended with signal 9"),
}


def test_a_process_that_fails_fails_alone_with_its_words_and_status(tmp_path):
    makes = {
        name: partial(fail, error) if error else end_by_signal
        for name, (error, *_) in ERRORS.items()
    }
    outcomes = dict(outcomes_of({**makes, "other": partial(write, "other")}, tmp_path))
    for name, (_, status, words) in ERRORS.items():
        assert words in str(outcomes[name])
        assert outcomes[name].exit_status == status
    assert outcomes["other"][0] == "the report of other"


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
    told = f"{folders[0]} and {folders[1]}; to go on: attnlab resume {folders[0]}; attnlab resume "
    assert capsys.readouterr().err.endswith(f"the results so far are in {told}{folders[1]}\n")


def test_a_taken_name_gets_a_number_and_the_environment_stays_as_it_was(monkeypatch, tmp_path):
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "config.json").write_text("{}")
    [(_, (_, folder))] = outcomes_of({"one": partial(write, "one")}, tmp_path)
    assert folder.name == "one-2"
    assert os.environ["OMP_NUM_THREADS"] == "7"
    assert "MKL_NUM_THREADS" not in os.environ
