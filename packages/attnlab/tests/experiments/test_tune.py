"""Searches: the best of what was tried, however often they were stopped."""

import json
import sys
from dataclasses import replace
from functools import partial

import pytest

from attnlab.cli import main
from attnlab.errors import CouldNotRun, WrongUsage
from attnlab.experiments.executors import Executor, UnitFailure
from attnlab.experiments.registry import find
from attnlab.experiments.resumption import resume
from attnlab.experiments.sweeps import runner
from attnlab.experiments.sweeps.axes import axis_of, option_of, read_axes
from attnlab.experiments.sweeps.cells import make_cell
from attnlab.experiments.sweeps.outcome import CellOutcome, SweepOutcome
from attnlab.experiments.sweeps.plan import Plan
from attnlab.experiments.sweeps.unit import ModelResult, UnitResult
from attnlab.experiments.tune import open_search, tune
from attnlab.experiments.tune.report import make_content
from attnlab.experiments.tune.study import distribution, is_log, readable
from tests.train.tiny import Watcher

pytest.importorskip("optuna", reason="searches need it; pip install 'attnlab[optuna]'")

CONFIG = find("sorting").config_class
SPACE = {"learning_rate": "1e-4..1e-1", "rank": "1..3", "steps": "10", "evaluate_every": "5"}
HOW = {"seeds": range(2), "trials": 7, "layout": "vmap"}


@pytest.fixture(scope="module")
def whole():
    """A search that nobody stopped."""
    return tune("sorting", settings=SPACE, **HOW)


@pytest.mark.parametrize(
    ("text", "ends", "over_decades"),
    [
        ("learning_rate=1e-4..1e-1", (1e-4, 1e-1), True),
        ("learning_rate=0.01..0.05", (0.01, 0.05), False),
        ("rank=1..6", (1, 6), False),
        ("d_model=8..128", (8, 128), True),
        ("weight_decay=0..10", (0.0, 10.0), False),
    ],
)
def test_a_range_is_searched_between_its_ends_and_decades_by_logarithm(text, ends, over_decades):
    name, _, rest = text.partition("=")
    (axis,), fixed = read_axes(CONFIG, {name: rest}, is_search=True)
    assert (axis.ends, is_log(axis), fixed) == (ends, over_decades, {})
    assert [type(end) for end in axis.ends] == [type(end) for end in ends]
    found = distribution(axis)
    assert (found.low, found.high, found.log) == (*ends, over_decades)


def test_values_between_commas_and_ranges_with_a_step_are_choices():
    settings = {"norm": "layer,rms", "d_model": "6..18..6", "steps": "20"}
    axes, fixed = read_axes(CONFIG, settings, is_search=True)
    assert [axis.values for axis in axes] == [("layer", "rms"), (6, 12, 18)]
    assert fixed == {"steps": 20}


def test_a_proposal_has_no_more_digits_than_a_person_would_type_and_stays_inside():
    axis = axis_of(option_of(CONFIG, "learning_rate"), [], [1e-4, 0.123456])
    assert readable(axis, 0.0123456789) == 0.01235
    assert readable(axis, 0.123456) == 0.123456
    assert readable(axis, 1e-4) == 1e-4


def test_a_mistyped_space_gets_a_sentence():
    for settings, sentence in (
        ({}, "tune needs a setting to search"),
        ({"rank": "2"}, "tune needs a setting to search"),
        ({"rank": "3..1"}, "a range to search goes upwards"),
        ({"rank": "0..4"}, "rank must be an integer from 1 to 4,096; got 0"),
        ({"learning_rate": "1e-4..fast"}, "learning_rate must be a number"),
        ({"lerning_rate": "1e-4..1e-1"}, "did you mean 'learning_rate'"),
        ({"rank": "1..3", "num_heads": "4"}, "d_model must be a multiple of num_heads"),
    ):
        with pytest.raises(WrongUsage, match=sentence):
            tune("sorting", settings=settings)


def test_more_seeds_win_and_of_equals_the_smaller_loss():
    trial = partial(CellOutcome, fields={}, seeds=8)
    ordered = [
        trial(number=0, solved=8, loss=0.4),
        trial(number=1, solved=8, loss=5.0),
        trial(number=2, solved=8, loss=None),
        trial(number=3, solved=7, loss=0.0),
        trial(number=4, solved=0, loss=1e9),
        trial(number=5, seeds=0, refusal="no"),
    ]
    scores = [trial.score for trial in ordered]
    assert scores == sorted(scores, reverse=True)
    assert len(set(scores)) == len(scores)


def test_every_trial_is_inside_the_space_and_none_is_lost(whole):
    assert [trial.number for trial in whole.trials] == list(range(7))
    assert all(1e-4 <= trial.fields["learning_rate"] <= 1e-1 for trial in whole.trials)
    assert {trial.fields["rank"] for trial in whole.trials} <= {1, 2, 3}
    assert whole.best.score == max(trial.score for trial in whole.trials)
    assert whole.report.passed
    assert whole.best.name in whole.report.content.subtitle


def test_a_trial_that_was_lost_is_noticed(whole):
    outcome = whole.outcome

    def is_whole(cells, members):
        result = replace(outcome.results[0], members=members)
        changed = SweepOutcome(outcome.axes, cells, outcome.seeds, [result])
        return runner.all_there(changed, "trial", 7).passed

    assert is_whole(outcome.grid, outcome.members)
    assert not is_whole(outcome.grid[:-1], outcome.members[:-2])
    assert not is_whole(outcome.grid, outcome.members[:-1])
    assert not is_whole(outcome.grid, [*outcome.members[:-1], outcome.members[0]])


class Stopping(Executor):
    """An engine that Ctrl-C meets before a certain round."""

    def __init__(self, call):
        self._calls_left = call

    def compute(self, units, observer=None):
        if units:
            self._calls_left -= 1
        if self._calls_left == 0:
            raise KeyboardInterrupt
        return super().compute(units, observer)


class Elsewhere(Stopping):
    words = "in 2 processes"


def test_a_search_that_was_stopped_goes_on_to_the_same_trials(whole, tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "make_engine", lambda where: Elsewhere(2))
    with pytest.raises(KeyboardInterrupt):
        tune("sorting", settings=SPACE, out=tmp_path / "s", **HOW)
    assert len(json.loads((tmp_path / "s" / "trials.json").read_text())) == 7
    assert (tmp_path / "s" / "table.csv").exists()
    monkeypatch.undo()
    watching = Watcher()
    found = resume(tmp_path / "s", observer=watching)
    assert watching.steps[-1] == (14, 14)
    assert found.rows() == whole.rows()
    assert open_search(tmp_path / "s").trials == found.trials
    computed = [trial.computed for trial in found.trials]
    assert computed == ["in 2 processes"] * 5 + ["in this process"] * 2
    assert "in 2 processes, " in dict(found.report.content.facts)["computed"]
    assert "Solved means: all 27 inputs" in found.report.content.sections[0].text


def test_values_that_do_not_go_together_are_a_trial_with_a_reason():
    settings = {"num_heads": "2,4", "steps": "4", "evaluate_every": "2"}
    found = tune("sorting", settings=settings, **HOW)
    refused = [trial for trial in found.trials if trial.refusal]
    assert refused
    assert all("d_model must be a multiple of num_heads" in trial.refusal for trial in refused)
    assert {trial.fields["num_heads"] for trial in found.trials if not trial.refusal} == {2}
    assert found.best.fields == {"num_heads": 2}
    assert found.report.passed


def test_a_setting_that_is_proposed_twice_at_once_is_trained_twice_with_one_outcome():
    settings = {"rank": "1,2", "steps": "4", "evaluate_every": "2"}
    search = tune("sorting", trials=3, seeds=[0], settings=settings)
    losses = {(trial.fields["rank"], trial.loss) for trial in search.trials}
    assert len(search.trials) == 3
    assert len(losses) == len({rank for rank, _ in losses})


class Failing(Executor):
    """An engine that cannot train what has a certain rank, or nothing at all."""

    def __init__(self, *ranks):
        self._ranks = ranks

    def compute(self, units, observer=None):
        for part in units:
            if part.fields[0]["rank"] in self._ranks:
                yield UnitFailure(part.number, CouldNotRun("too little memory."))
            else:
                yield part.compute()


def test_a_trial_that_cannot_be_trained_keeps_the_others_from_nothing(monkeypatch, tmp_path):
    monkeypatch.setattr(runner, "make_engine", lambda where: Failing(2))
    found = tune("sorting", settings=SPACE, out=tmp_path / "s", **HOW)
    assert {trial.fields["rank"] for trial in found.trials if trial.refusal} == {2}
    assert {trial.fields["rank"] for trial in found.trials if not trial.refusal} == {1, 3}
    assert "too little memory" in found.html()
    assert open_search(tmp_path / "s").trials == found.trials
    monkeypatch.setattr(runner, "make_engine", lambda where: Failing(1, 2, 3))
    with pytest.raises(CouldNotRun, match="too little memory"):
        tune("sorting", settings=SPACE, **HOW)


def test_going_on_with_another_search_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "make_engine", lambda where: Stopping(1))
    with pytest.raises(KeyboardInterrupt):
        tune("sorting", settings=SPACE, out=tmp_path / "s", **HOW)
    with pytest.raises(CouldNotRun, match=r"search.ends.rank: \[1, 3\] there, \[1, 4\] here"):
        tune("sorting", settings={**SPACE, "rank": "1..4"}, out=tmp_path / "s", resume=True, **HOW)
    assert len(json.loads((tmp_path / "s" / "trials.json").read_text())) == 5
    assert not (tmp_path / "s" / "table.csv").exists()
    with pytest.raises(CouldNotRun, match=r"nothing of the search in .* is finished yet"):
        open_search(tmp_path / "s")
    for text, reason in (("[{", "could not read"), ('[{"rank": 2}]', "is damaged")):
        (tmp_path / "s" / "trials.json").write_text(text)
        with pytest.raises(CouldNotRun, match=rf"(?s){reason}.*trials.json|trials.json {reason}"):
            tune("sorting", out=tmp_path / "s", resume=True)


def test_without_optuna_it_is_said_what_to_install_and_nothing_is_made(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(CouldNotRun, match=r"pip install 'attnlab\[optuna\]'"):
        tune("sorting", settings=SPACE, out=tmp_path / "s", **HOW)
    assert list(tmp_path.iterdir()) == []


def content_of(plan, trials):
    """The report of trials, each as its fields, how many of 4 seeds solved it, and the loss."""
    cells, members = [], []
    for number, (fields, solved, loss) in enumerate(trials):
        cell = make_cell(plan.config_class, plan.fixed, fields)
        if solved is None:
            cell = replace(cell, refusal="no")
        else:
            for seed in range(4):
                step = 10 if seed < solved else None
                members.append(ModelResult(number, seed, step, 10, loss, {}))
        cells.append(cell)
    result = UnitResult(0, members, "vmap", {}, "here")
    return make_content(plan, SweepOutcome(plan.axes, cells, plan.seeds, [result]), {})


def test_the_report_shows_the_best_the_course_and_each_range():
    settings = {"learning_rate": "1e-4..1e-1", "norm": "layer,rms", "steps": "20"}
    plan = Plan.read("sorting", settings, {}, range(4), layout="vmap", trials=4)
    first = {"learning_rate": 0.01, "norm": "rms"}
    trials = [
        (first, 1, 0.5),
        ({"learning_rate": 0.001, "norm": "layer"}, 3, 0.4),
        ({"learning_rate": 0.1, "norm": "rms"}, None, None),
        ({"learning_rate": 0.05, "norm": "rms"}, 2, 0.6),
    ]
    document = content_of(plan, trials)
    _, *sections = document.sections
    best, course, against_rate, table, refused, _ = sections
    assert "All of them were drawn at random" in course.caption
    assert [each.style for each in course.series] == ["points", "steps"]
    assert against_rate.series[0].style == "points"
    assert "--seed 4 --set learning_rate=0.001 norm=layer steps=20" in best.text
    assert course.series[1].y == [0.25, 0.75, 0.75]
    assert (against_rate.series[0].x, against_rate.x_log) == ([0.001, 0.01, 0.05], True)
    later = content_of(plan, [(first, 1, 0.5)] * 11)
    assert "the others learn from those before them" in later.sections[2].caption
    assert [row[0] for row in table.rows] == [1, 3, 0]
    assert refused.rows == [[2, "learning_rate=0.1 norm=rms", "no"]]


def test_the_command_line_tunes_and_shows(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    command = ["tune", "sorting", "--trials", "2", "--seeds", "2", "--layout", "vmap", "--json"]
    assert main([*command, "--set", *(f"{name}={value}" for name, value in SPACE.items())]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["run"] == "runs/sorting-tune"
    assert [trial["number"] for trial in found["trials"]] == [0, 1]
    assert main(["show", "sorting-tune"]) == 0
    assert main(["tune", "sorting", "--set", "rank=2"]) == 2
    assert "tune needs a setting to search" in capsys.readouterr().err
