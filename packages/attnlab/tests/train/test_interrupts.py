"""Ctrl-C and SIGTERM: the first waits for the step, the second for nothing, and nothing is lost."""

import os
import signal
import threading

import pytest

from attnlab.train.checkpoint import latest_checkpoint
from attnlab.train.interrupts import held_back

from .tiny import WAYS, Watcher, fit, loss, weights


class Interrupter(Watcher):
    """Sends SIGINT at any moment after step 50, but before the training is over."""

    def __init__(self):
        super().__init__()
        self.soon = threading.Timer(0.004, lambda: os.kill(os.getpid(), signal.SIGINT))

    def step(self, step, steps, figures):
        super().step(step, steps, figures)
        if step >= 50 and self.soon.ident is None:
            self.soon.start()
        if step >= 100:
            self.soon.join()


@pytest.fixture
def heard():
    """Hear both signals, as a program would that has handlers of its own."""
    found = []
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {
        number: signal.signal(number, lambda number, frame: found.append(number))
        for number in numbers
    }
    yield found
    for number, handler in before.items():
        signal.signal(number, handler)


def test_the_first_waits_until_it_is_delivered(heard):
    with held_back() as held:
        assert not held.came()
        signal.raise_signal(signal.SIGINT)
        assert held.came()
        assert heard == []
        held.deliver()
        assert heard == [signal.SIGINT]
        assert not held.came()
        held.deliver()
    assert heard == [signal.SIGINT]


def test_the_second_does_not_wait(heard):
    with held_back():
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)
        assert heard == [signal.SIGINT]
    assert heard == [signal.SIGINT, signal.SIGTERM]


def test_one_that_was_not_delivered_is_at_the_end():
    with pytest.raises(KeyboardInterrupt), held_back():
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_error_inside_comes_first(heard):
    def break_off():
        with held_back():
            signal.raise_signal(signal.SIGINT)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        break_off()
    assert heard == []


def test_a_signal_that_nobody_hears_is_left_alone():
    with held_back():
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as `nohup attnlab … &` starts us
    try:
        with held_back() as held:
            signal.raise_signal(signal.SIGINT)
            assert not held.came()
    finally:
        signal.signal(signal.SIGINT, before)


def test_outside_the_main_thread_nothing_is_held_back():
    found = []

    def use():
        with held_back() as held:
            found.append(held.came())

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    assert found == [False]


def test_a_training_stops_after_the_step_also_within_a_chunk(tmp_path):
    calls = []

    def interrupted(model, x):
        calls.append(1)
        if len(calls) == 37:
            signal.raise_signal(signal.SIGINT)
        return loss(model, x)

    with pytest.raises(KeyboardInterrupt):
        fit(tmp_path, loss=interrupted)
    assert len(calls) == 37
    assert latest_checkpoint(tmp_path).facts["step"] == 37
    told, again = [], []
    whole, _ = fit(record=lambda *line: told.append(line))
    resumed, _ = fit(tmp_path, record=lambda *line: again.append(line))
    assert weights(whole) == weights(resumed)
    assert told == again


def test_a_training_that_ignores_the_first_would_be_seen(tmp_path, monkeypatch):
    monkeypatch.setattr("attnlab.train.interrupts.DeferredSignal.came", lambda self: False)
    with pytest.raises(AssertionError):
        test_a_training_stops_after_the_step_also_within_a_chunk(tmp_path)


@pytest.mark.parametrize(("layout", "engine"), WAYS[1::2])
def test_several_stop_after_the_step_too(tmp_path, layout, engine):
    told, again = [], []
    how = {"num": 2, "layout": layout, "engine": engine}
    whole, _ = fit(**how, record=lambda *line: told.append(line))
    with pytest.raises(KeyboardInterrupt):
        fit(tmp_path, **how, observer=Interrupter())
    resumed, _ = fit(tmp_path, num=2, record=lambda *line: again.append(line))
    assert weights(whole) == weights(resumed)
    assert told == again


def test_a_handler_that_only_takes_note_lets_the_training_go_on(tmp_path, heard):
    whole, _ = fit()
    ours, _ = fit(tmp_path, observer=Watcher(60, lambda: signal.raise_signal(signal.SIGINT)))
    assert heard == [signal.SIGINT]
    assert weights(whole) == weights(ours)


def test_one_that_comes_with_the_last_step_is_not_lost(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        fit(tmp_path, observer=Watcher(150, lambda: signal.raise_signal(signal.SIGINT)))
    assert latest_checkpoint(tmp_path).facts["step"] == 150


def test_a_second_one_ends_a_judge_at_once_and_leaves_a_whole_checkpoint(tmp_path, monkeypatch):
    monkeypatch.setenv("ATTNLAB_CHECKPOINT_SECONDS", "0")

    def slow(model):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        pytest.fail("was not interrupted")

    with pytest.raises(KeyboardInterrupt):
        fit(tmp_path, evaluate=slow)
    assert latest_checkpoint(tmp_path).facts["step"] == 50
    assert weights(fit(tmp_path)[0]) == weights(fit()[0])
