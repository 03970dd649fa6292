"""Sweeps: the grid that was asked for, the same numbers whoever computes them."""

import csv
import io
import itertools
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from ray_cluster import below, read, wait_until

import attnlab
from attnlab.cli import main
from attnlab.errors import CouldNotRun, WrongUsage
from attnlab.experiments import executors
from attnlab.experiments.executors import Executor, ExecutorOptions, make_engine
from attnlab.experiments.folder import AlreadyFinished
from attnlab.experiments.population import train_population
from attnlab.experiments.registry import find
from attnlab.experiments.resumption import resume
from attnlab.experiments.sweeps import open_sweep, runner, sweep, unit
from attnlab.experiments.sweeps.axes import axis_of, option_of, read_axes
from attnlab.experiments.sweeps.outcome import SweepOutcome
from attnlab.experiments.sweeps.plan import Plan
from attnlab.experiments.sweeps.report import make_content
from attnlab.experiments.sweeps.unit import ModelResult, UnitResult
from attnlab.train.faults import NotFinite
from tests.sampling import sampled

SORTING = find("sorting")
HOW = {"steps": 20, "evaluate_every": 10, "learning_rate": 1e-2, "layout": "vmap"}
GRID = {"rank": [1, 2], "temperature": [0.3, 1.0]}


@pytest.fixture(scope="module")
def here():
    """A sweep computed in this process."""
    return sweep("sorting", seeds=range(3), **GRID, **HOW)


def plan_of(settings, seeds=range(3), fixed=None):
    return Plan.read("sorting", settings, fixed or {}, seeds, layout="vmap")


def units(plan):
    return plan.units(plan.grid())


AXES = {
    "rank=1..6": (1, 2, 3, 4, 5, 6),
    "rank=1..9..2": (1, 3, 5, 7, 9),
    "rank=1..8..3": (1, 4, 7),
    "rank=1..3,8,16": (1, 2, 3, 8, 16),
    "temperature=0.3,1,3": (0.3, 1.0, 3.0),
    "temperature=0.1..0.3..0.1": (0.1, 0.2, 0.3),
    "steps=1e3,2e3": (1_000, 2_000),
    "bias=true,false": (True, False),
    "positions=none,learned": ("none", "learned"),
    "warmup_steps=none,100": (None, 100),
}


@pytest.mark.parametrize("text", AXES)
def test_an_axis_holds_what_was_written(text):
    name, _, rest = text.partition("=")
    axes, fixed = read_axes(SORTING.config_class, {name: rest})
    assert axes[0].values == AXES[text]
    assert [type(value) for value in axes[0].values] == [type(value) for value in AXES[text]]
    assert fixed == {}


MISTYPED = {
    "rnk=1..2": "there is no setting 'rnk'; did you mean 'rank'",
    "rank=3..1": "a range goes upwards",
    "rank=1..9..0": "a range goes upwards by steps above 0",
    "rank=1..2..3..4": "steps above 0 and is written rank=1..6 or rank=1..9..2",
    "rank=a..b": "is written rank=1..6",
    "rank=1..1e99": "is written rank=1..6",
    "rank=0..3": "rank must be an integer from 1 to 4,096; got 0",
    "rank=1..4000": "too many values: at most 1,000",
    "temperature=0.1..1..1e-5000": "too many values: at most 1,000",
    "rank=1..2..0.5": "rank must be an integer",
    "rank=1,1": "1 is given twice",
    "rank=1,,2": "expected values between commas",
    "temperature=1..3": "needs a step, such as 1..3..0.2",
    "temperature=nan..inf..1": "is written temperature=0.5..2..0.5",
    "positions=none,lerned": "positions must be one of",
}


@pytest.mark.parametrize("text", MISTYPED)
def test_a_mistyped_axis_gets_a_sentence(text):
    name, _, rest = text.partition("=")
    with pytest.raises(WrongUsage, match=MISTYPED[text]):
        read_axes(SORTING.config_class, {name: rest})


def test_cells_that_differ_in_what_members_may_differ_in_are_trained_together():
    rank_1, rank_2 = units(plan_of({"rank": "1..2", "temperature": "0.3,1,3"}))
    assert [rank_1.cells, rank_2.cells] == [[0, 1, 2], [3, 4, 5]]
    assert [fields["temperature"] for fields in rank_2.fields] == [0.3, 1.0, 3.0]
    assert {fields["rank"] for fields in rank_2.fields} == {2}


def test_no_unit_is_larger_than_what_may_be_lost_and_none_is_missing():
    rates = {"rank": "1..2", "learning_rate": "0.001..0.02..0.001"}
    of_many_cells = units(plan_of(rates, seeds=range(100)))
    assert max(unit.size for unit in of_many_cells) <= 256
    pairs = []
    for part in of_many_cells:
        pairs += itertools.product(part.cells, part.seeds)
    assert sorted(pairs) == [(cell, seed) for cell in range(40) for seed in range(100)]
    assert [unit.number for unit in of_many_cells] == list(range(len(of_many_cells)))
    of_many_seeds = units(plan_of({"rank": "1..2"}, seeds=range(600)))
    assert [len(unit.seeds) for unit in of_many_seeds] == [200, 200, 200] * 2


def test_values_that_do_not_go_together_stay_blank_with_the_reason():
    plan = plan_of({"num_heads": "1..3", "d_model": "4,6"})
    cells = plan.grid()
    assert [cell.config is None for cell in cells] == [False, False, False, False, True, False]
    assert "d_model must be a multiple of num_heads; got 4 and 3" in cells[4].refusal
    assert 4 not in {cell for unit in units(plan) for cell in unit.cells}
    with pytest.raises(WrongUsage, match="no combination of these values is possible"):
        plan_of({"num_heads": "2,4"}, fixed={"d_model": 5}).grid()


def test_a_cell_is_what_a_population_of_its_settings_is(here):
    alone = train_population("sorting", range(3), rank=2, temperature=0.3, **HOW)
    cell = next(cell for cell in here.cells if cell.fields == {"rank": 2, "temperature": 0.3})
    assert torch.get_num_threads() == 1  # as it was
    assert [member.seed for member in cell.members] == [0, 1, 2]
    assert [member.solved_at for member in cell.members] == list(alone.solved_at)
    losses = [alone.trained(index).evaluation.figures["domain_loss"] for index in range(3)]
    found = [member.figures["domain_loss"] for member in cell.members]
    assert found == pytest.approx(losses, rel=1e-4)


def test_every_seed_of_every_cell_is_in_the_table_once(here):
    rows = list(csv.DictReader(io.StringIO(here.outcome.csv())))
    expected = [(rank, heat, seed) for rank in "12" for heat in ("0.3", "1.0") for seed in "012"]
    assert [(row["rank"], row["temperature"], row["seed"]) for row in rows] == expected
    assert here.report.passed


class Changing(Executor):
    """An engine somewhere else that returns changed results, and that Ctrl-C meets after one."""

    words, is_elsewhere = "in 2 processes", True

    def __init__(self, change=lambda result: result):
        self._change = change

    def compute(self, units, observer=None):
        yield self._change(next(iter(super().compute(units, observer))))
        raise KeyboardInterrupt


def off_by_one_bit(result):
    first, *others = result.members
    return replace(
        result, members=[replace(first, loss=math.nextafter(first.loss, math.inf)), *others]
    )


def claims(found):
    return {claim.name: claim.passed for claim in found.report.claims}


def begun_by(engine, monkeypatch, **options):
    """Begin a sweep of two populations with an engine; return for how many workers it was asked."""
    asked = []

    def make(where):
        asked.append(where.num_workers)
        return engine if len(asked) == 1 else Executor()

    monkeypatch.setattr(runner, "make_engine", make)
    with pytest.raises(KeyboardInterrupt):
        sweep("sorting", seeds=range(2), rank=[1, 2], **options, **HOW)
    return asked


def test_numbers_from_another_torch_are_refused(monkeypatch):
    def old(result):
        return replace(result, versions={**result.versions, "torch": "1.0"})

    monkeypatch.setattr(runner, "make_engine", lambda where: Changing(old))
    with pytest.raises(CouldNotRun, match=r"torch 1.0, this machine .* Install the same there"):
        sweep("sorting", seeds=range(2), rank=[1, 2], **HOW)


def fail_on_rank_1(monkeypatch, error):
    """Let no population of rank 1 be trained."""
    make = unit.make_problem

    def failing(name, configs, seeds):
        if configs[0].rank == 1:
            raise error
        return make(name, configs, seeds)

    monkeypatch.setattr(unit, "make_problem", failing)


def test_a_population_of_which_all_broke_is_a_finding_and_not_an_end(monkeypatch):
    fail_on_rank_1(monkeypatch, NotFinite("every member's training was no longer finite."))
    found = sweep("sorting", seeds=range(2), rank=[1, 2], **HOW)
    assert [cell.broken for cell in found.cells] == [2, 0]
    assert found.cells[0].success.value == 0
    assert found.report.passed
    assert "Models that diverged" in found.html()


def test_a_population_that_cannot_be_trained_is_told_and_the_others_are_kept(monkeypatch, tmp_path):
    fail_on_rank_1(monkeypatch, CouldNotRun("there is too little memory."))
    with pytest.raises(CouldNotRun, match=r"1 of 2 populations .*: there is too little memory"):
        sweep("sorting", seeds=range(2), rank=[1, 2], out=tmp_path / "s", **HOW)
    assert [cell.name for cell in open_sweep(tmp_path / "s").cells] == ["rank=2"]
    monkeypatch.undo()
    assert len(sweep("sorting", out=tmp_path / "s", resume=True).cells) == 2


class Stopping(Executor):
    """An engine that Ctrl-C meets after so many units; it remembers what it was asked for."""

    def __init__(self, after):
        self._after, self.asked = after, []

    def compute(self, units, observer=None):
        self.asked = [unit.number for unit in units]
        for done, result in enumerate(super().compute(units, observer)):
            if done == self._after:
                raise KeyboardInterrupt
            yield result


def test_a_stopped_sweep_keeps_what_it_has_and_goes_on(monkeypatch, tmp_path, here):
    folder = tmp_path / "s"
    how = {"seeds": range(3), "out": folder, **GRID, **HOW}
    monkeypatch.setattr(runner, "make_engine", lambda where: Stopping(1))
    with pytest.raises(KeyboardInterrupt):
        sweep("sorting", **how)
    assert [path.name for path in sorted((folder / "cells").iterdir())] == ["00000.json"]
    assert len((folder / "table.csv").read_text().splitlines()) == 1 + 6
    assert "6 of 12" in (folder / "report.html").read_text()
    assert not (folder / "claims.json").exists()
    going_on = Stopping(None)
    monkeypatch.setattr(runner, "make_engine", lambda where: going_on)
    done = sweep("sorting", resume=True, **how)
    assert going_on.asked == [1]
    assert done.rows() == here.rows()
    assert (folder / "table.csv").read_text() == here.outcome.csv()
    assert open_sweep(folder).rows() == here.rows()


def test_a_sweep_remembers_where_each_population_was_computed(monkeypatch, tmp_path):
    """Some that came from elsewhere are computed again, whoever goes on."""
    asked = begun_by(Changing(), monkeypatch, workers=2, out=tmp_path / "s")
    found = resume(tmp_path / "s")
    assert claims(found) == {"all_there": True, "same_here": True}
    assert "rank=1, 2 seeds" in found.report.claims[1].statement
    facts = dict(found.report.content.facts)
    assert facts["computed"] == "1 population in 2 processes, 1 population in this process"
    assert asked == [2, 2]  # as many as began it


def test_a_number_from_elsewhere_that_is_not_ours_is_noticed(monkeypatch, tmp_path):
    asked = begun_by(Changing(off_by_one_bit), monkeypatch, workers=3, out=tmp_path / "s")
    found = resume(tmp_path / "s", workers=1)
    assert claims(found) == {"all_there": True, "same_here": False}
    assert asked == [3, 1]  # going on may be shared out otherwise


def test_one_run_is_not_shared_out(sorter, tmp_path):
    shutil.copytree(sorter, tmp_path / "r")
    (tmp_path / "r" / "claims.json").unlink()
    with pytest.raises(WrongUsage, match="workers share the cells of a sweep"):
        resume(tmp_path / "r", workers=2)


def test_what_is_damaged_is_computed_again(tmp_path):
    result = UnitResult(3, [], "vmap", {}, "here")
    runner.write_result(tmp_path, result)
    file = tmp_path / "cells" / "00003.json"
    whole = file.read_bytes()
    assert runner.read_result(tmp_path, 3) == result
    for size in range(0, len(whole), 3):
        file.write_bytes(whole[:size])
        assert runner.read_result(tmp_path, 3) is None
    for bit in range(0, 8 * len(whole), 5):
        changed = bytearray(whole)
        changed[bit // 8] ^= 1 << bit % 8
        file.write_bytes(changed)
        assert runner.read_result(tmp_path, 3) is None
    file.unlink()
    assert runner.read_result(tmp_path, 3) is None


def test_going_on_with_another_sweep_is_refused_with_the_difference(monkeypatch, tmp_path):
    monkeypatch.setattr(runner, "make_engine", lambda where: Stopping(1))
    how = {"seeds": range(2), "out": tmp_path / "s", "rank": [1, 2], **HOW}
    with pytest.raises(KeyboardInterrupt):
        sweep("sorting", **how)
    with pytest.raises(CouldNotRun, match=r"rank: \[1, 2\] there, \[1, 2, 3\] here"):
        sweep("sorting", resume=True, **{**how, "rank": [1, 2, 3]})
    with pytest.raises(CouldNotRun, match="steps: 20 there, 41 here"):
        sweep("sorting", resume=True, **{**how, "steps": 41})
    with pytest.raises(WrongUsage, match="holds a sweep of sorting, not of lookup"):
        sweep("lookup", resume=True, out=tmp_path / "s")
    with pytest.raises(WrongUsage, match="a sweep is resumed as it was begun"):
        sweep("sorting", resume=True, out=tmp_path / "s", seeds=range(3))
    with pytest.raises(CouldNotRun, match="and nothing is overwritten"):
        sweep("sorting", **how)


def workers_of(number):
    """Return the workers that a process has started."""
    return [each for each in below(number) if b"spawn_main" in read(each, "cmdline")]


linux = pytest.mark.skipif(
    not Path("/proc/self/stat").exists(), reason="looks for processes in /proc"
)


@linux
def test_a_sweep_whose_worker_is_killed_says_so_and_resumes_to_the_same_numbers(here, tmp_path):
    def kill_one():
        wait_until(lambda: workers_of(os.getpid()))
        os.kill(workers_of(os.getpid())[0], signal.SIGKILL)

    killer = threading.Thread(target=kill_one)
    killer.start()
    with pytest.raises(CouldNotRun, match="a worker process ended before its work was done"):
        sweep("sorting", seeds=range(3), workers=2, out=tmp_path / "s", **GRID, **HOW)
    killer.join()
    assert workers_of(os.getpid()) == []
    found = resume(tmp_path / "s")
    assert found.rows() == here.rows()
    assert claims(found) == {"all_there": True, "same_here": True}
    assert workers_of(os.getpid()) == []


@pytest.mark.slow
@linux
@pytest.mark.parametrize("blow", sampled([signal.SIGKILL, signal.SIGINT], 1))
def test_no_worker_outlives_a_sweep_that_is_stopped_or_killed(blow, tmp_path):
    command = f"sweep sorting --set rank=1..4 steps=100000 --workers 2 --out {tmp_path / 's'}"
    with subprocess.Popen(
        [sys.executable, "-m", "attnlab", *command.split()],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as parent:
        try:
            wait_until(lambda: len(workers_of(parent.pid)) == 2)
            workers = workers_of(parent.pid)
            os.killpg(parent.pid, blow) if blow is signal.SIGINT else parent.kill()
            _, errors = parent.communicate(timeout=30)
        finally:
            parent.kill()
    assert parent.returncode == (130 if blow is signal.SIGINT else -9), errors
    assert "Traceback" not in errors
    wait_until(lambda: not any(map(is_running, workers)), 20)


def is_running(number):
    return read(number, "stat").rpartition(b")")[2].split()[:1] not in ([], [b"Z"])


@pytest.mark.slow
def test_a_script_that_uses_workers_is_run_once_and_their_prints_are_no_output(tmp_path):
    file = tmp_path / "script.py"
    file.write_text(
        "from attnlab.experiments import executors\n"
        "print('begun')\n"
        "executors.compute = print\n"
        "with executors.make_engine(executors.ExecutorOptions('local', 2)) as engine:\n"
        "    list(engine.compute(['noise']))\n"
    )
    done = subprocess.run([sys.executable, file], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("begun\n", "noise\n")


RAY = """
import os

class Task:
    def __init__(self, work, unit=None):
        self.work, self.unit = work, unit

    def remote(self, unit):
        return Task(self.work, unit)

def init(address, **options):
    if address == "refusing:1":
        raise ConnectionError("no such cluster")

def cluster_resources():
    return {"CPU": 1}

def remote(**options):
    return Task

def wait(tasks):
    return tasks[:1], tasks[1:]

def get(task):
    if task.unit.fields[0]["rank"] == 3:
        raise RuntimeError("the worker died")
    if task.unit.fields[0]["rank"] == 4:
        os._exit(1)
    return task.work(task.unit)
"""
"""What the process that talks to a cluster calls of Ray, in one process: rank 3 loses its worker,
rank 4 the cluster."""


@pytest.fixture
def stand_in_for_ray(tmp_path, monkeypatch):
    (tmp_path / "ray.py").write_text(RAY)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(executors, "_PATIENCE", 240.0)  # on a busy machine


def test_a_cluster_gives_our_numbers_and_tells_what_was_lost(stand_in_for_ray, here, tmp_path):
    grid, folder = {**GRID, "rank": [1, 2, 3]}, tmp_path / "s"
    lost = "1 of 3 populations could not be trained: Ray .* the worker died"
    with pytest.raises(CouldNotRun, match=lost):
        sweep("sorting", seeds=range(3), engine="ray", address="one:1", out=folder, **grid, **HOW)
    assert open_sweep(folder).rows() == here.rows()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ranks", "address", "sentence"),
    [
        ([1, 4], "one:1", "the connection to the Ray cluster at one:1 was lost"),
        ([1, 2], "refusing:1", "could not be used: ConnectionError: no such cluster"),
    ],
)
def test_a_cluster_that_is_lost_or_refuses_is_told(stand_in_for_ray, ranks, address, sentence):
    with pytest.raises(CouldNotRun, match=sentence):
        sweep("sorting", seeds=[0], rank=ranks, engine="ray", address=address, **HOW)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"kind": "rya"}, "did you mean 'ray'"),
        ({"kind": "local", "num_workers": 0}, "an integer from 1 to 256; got 0"),
        ({"kind": "local", "address": "a:1"}, "give --engine ray with it"),
        ({"kind": "ray"}, "needs --address HOST:PORT"),
        ({"kind": "ray", "address": "a:1", "num_workers": 2}, "leave --workers out"),
    ],
)
def test_an_engine_that_makes_no_sense_is_refused(arguments, sentence):
    with pytest.raises(WrongUsage, match=sentence):
        make_engine(ExecutorOptions(**arguments))


def test_without_ray_it_is_said_what_to_install(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(CouldNotRun, match=r"pip install 'attnlab\[ray\]'"):
        make_engine(ExecutorOptions("ray", address="127.0.0.1:6379"))


def test_a_cluster_that_is_not_there_is_told_within_seconds(monkeypatch):
    pytest.importorskip("ray", reason="a cluster needs it; pip install 'attnlab[ray]'")
    monkeypatch.setattr(executors, "_PATIENCE", 2.0)
    with pytest.raises(CouldNotRun, match=r"at 127.0.0.1:1 did not answer .*is it running"):
        make_engine(ExecutorOptions("ray", address="127.0.0.1:1"))


def content_of(settings, solved, num_seeds=4):
    """The report of a sweep in which the cell with index i has so many seeds that learned the
    task."""
    plan = plan_of(settings, seeds=range(num_seeds))
    cells, members = plan.grid(), []
    for number, cell in enumerate(cells):
        if cell.config is not None:
            for seed in range(num_seeds):
                step = 100 if seed < solved[number] else None
                figures = {"accuracy": number / 10}
                members.append(ModelResult(number, seed, step, 100, 0.5 + number, figures))
    result = UnitResult(0, members, "vmap", {}, "here")
    return make_content(plan, SweepOutcome(plan.axes, cells, plan.seeds, [result]), {})


def test_the_phase_diagram_puts_each_cell_in_its_place():
    document = content_of({"num_heads": "1..3", "d_model": "4,6"}, solved=[0, 1, 2, 3, 0, 4])
    (found,) = document.section("Where it can be learned").choices[0].maps
    assert (found.row_title, found.row_labels) == ("num_heads", ["1", "2", "3"])
    assert (found.column_title, found.column_labels) == ("d_model", ["4", "6"])
    assert found.rows == [[0.0, 0.25], [0.5, 0.75], [None, 1.0]]
    assert (found.low, found.high) == (0.0, 1.0)
    cells = document.section("Cells")
    rows = [dict(zip(cells.columns, row, strict=True)) for row in cells.rows]
    assert [row["first step"] for row in rows] == [None, None, None, 100.0, 100.0]
    assert [row["loss"] for row in rows] == [0.5, 1.5, 2.5, 3.5, 5.5]
    assert [row["accuracy"] for row in rows] == [0.0, 0.1, 0.2, 0.3, 0.5]
    assert document.section("Impossible cells").rows[0][0] == "num_heads=3 d_model=4"


def test_intervals_stand_beside_the_diagram_and_around_the_curves():
    document = content_of({"rank": "1..2", "temperature": "0.3,3"}, [0, 4, 2, 1])
    rows = document.section("Cells").rows
    assert [row[:4] for row in rows][:2] == [[1, 0.3, "0/4", 0.0], [1, 3.0, "4/4", 1.0]]
    assert rows[1][4] == pytest.approx(1 / (1 + 1.959964**2 / 4))  # Wilson at all of four
    first = document.section("Success rate, with intervals").series[0]
    assert (first.name, first.x, first.y) == ("rank=1", [0.3, 3.0], [0.0, 1.0])
    assert first.low[1] == rows[1][4]


def test_one_axis_gives_curves_words_give_bars_and_a_third_axis_a_chooser():
    kinds = {section.kind for section in content_of({"rank": "1..2"}, [0, 4]).sections}
    assert kinds == {"lines", "table", "text"}
    words = content_of({"norm": "layer,rms"}, [0, 4])
    assert words.section("Success rate, with intervals").groups == ["layer", "rms"]
    three = {"rank": "1..2", "temperature": "1,3", "norm": "layer,rms"}
    document = content_of(three, list(range(4)) * 2)
    choices = document.section("Where it can be learned").choices
    assert [choice.label for choice in choices] == ["norm=layer", "norm=rms"]
    assert choices[1].maps[0].rows == [[0.25, 0.75], [0.25, 0.75]]


def test_the_command_that_a_report_names_makes_the_same_models_again(here, tmp_path):
    text = here.report.content.section("Look into a cell").text
    words = re.search(r"`attnlab run sorting (.*)`$", text)[1].split()
    command = ["run", "sorting", *words, "--layout", "vmap", "-q", "--out", str(tmp_path / "p")]
    assert main(command) in (0, 1)
    settings = json.loads((tmp_path / "p" / "config.json").read_text())["settings"]
    cell = next(cell for cell in here.cells if cell.fields == {k: settings[k] for k in GRID})
    again = list(csv.DictReader(io.StringIO((tmp_path / "p" / "table.csv").read_text())))
    losses = [float(row["loss"]) for row in again if row["step"] == "20" and row["loss"]]
    assert losses == pytest.approx([member.loss for member in cell.members], rel=1e-4)


def test_the_command_line_sweeps_shows_and_goes_on(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    command = "sweep sorting --seeds 2 --layout vmap --set rank=1..2 num_heads=2,4 steps=20"
    assert main([*command.split(), "evaluate_every=10"]) == 0
    shown = capsys.readouterr().out
    assert "0/2" in shown
    assert "invalid cells, which stay blank: rank=1 num_heads=4" in shown
    assert "runs/sorting-sweep/report.html" in shown
    assert main(["list"]) == 0
    assert "runs/sorting-sweep" in capsys.readouterr().out
    folder = tmp_path / "runs" / "sorting-sweep"
    check_finished(folder)
    (folder / "claims.json").unlink()
    (folder / "cells" / "00001.json").unlink()
    assert main(["resume", "sorting-sweep", "--json"]) == 0
    cells = json.loads(capsys.readouterr().out)["cells"]
    assert [(cell["fields"]["rank"], cell["seeds"]) for cell in cells] == [(1, 2), (2, 2)]


def check_finished(folder):
    """A finished sweep is not gone on with as another."""
    grid = {"rank": [1, 2], "num_heads": [2, 4]}
    how = {"seeds": range(2), "layout": "vmap", "steps": 20, "evaluate_every": 10}
    for more in ({}, {**grid, **how}):
        with pytest.raises(AlreadyFinished):
            sweep("sorting", resume=True, out=folder, **more)
    with pytest.raises(CouldNotRun, match=r"\n  sweep.axes.rank: \[1, 2\] there, \[1, 3\] here"):
        sweep("sorting", resume=True, out=folder, **{**grid, **how, "rank": [1, 3]})
    with pytest.raises(CouldNotRun, match=r"made with --seeds 2, not a run of one seed"):
        attnlab.run("sorting", resume=True, out=folder)
    with pytest.raises(WrongUsage, match="holds a sweep, which keeps no weights"):
        attnlab.load(folder)
    with pytest.raises(WrongUsage, match=r"attnlab run sorting --seeds 2 --set"):
        _ = open_sweep(folder).report.model


@pytest.mark.parametrize(
    ("typed", "sentence"),
    [
        ("sorting", "sweep needs --set key=value with several values"),
        ("sorting --set rank=2", "a sweep needs a setting with several values"),
        ("sortin --set rank=1..2", "did you mean 'sorting'"),
        ("anatomy --set only=scaling,rank", "anatomy has no model to train for many seeds"),
        ("sorting --set rank=1..2 --seeds 0", "--seeds must be at least 1; got 0"),
        ("sorting --set rank=1..1000 d_ff=1..1000", "are too many"),
        ("sorting --resume", "--resume needs --out with the folder of one run"),
    ],
)
def test_a_mistyped_sweep_gets_a_sentence_alone(typed, sentence, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["sweep", *typed.split()]) == 2
    assert sentence in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_axes_as_values_are_checked_as_those_as_texts_are():
    option = option_of(SORTING.config_class, "rank")
    with pytest.raises(WrongUsage, match="it has no values"):
        axis_of(option, [])
    with pytest.raises(WrongUsage, match="rank must be an integer"):
        axis_of(option, [1, 2.5])
    with pytest.raises(WrongUsage, match="the seed 1 was given twice"):
        sweep("sorting", rank=[1, 2], seeds=[1, 1])
    with pytest.raises(WrongUsage, match="rank was given twice"):
        sweep("sorting", rank=[1, 2], settings={"rank": "1..2"})
