import csv
import dataclasses
import json
import re

import pytest
import torch

import attnlab
from attnlab.core.stats import share_interval
from attnlab.errors import CouldNotRun, WrongUsage
from attnlab.experiments import registry
from attnlab.experiments.population import (
    heads_sections,
    is_member,
    is_population,
    open_population,
    open_run_or_member,
)
from attnlab.experiments.population.blocks import MemoryBlocks
from attnlab.experiments.population.population_heads import record_heads
from attnlab.experiments.registry import find
from attnlab.experiments.sorting import SortingConfig
from attnlab.experiments.sorting import sorter as sorting
from attnlab.train.observer import SilentObserver

QUICK = {"recipe": "fast", "steps": 300, "evaluate_every": 100, "layout": "vmap"}
TINY = {"steps": 20, "evaluate_every": 10, "layout": "vmap"}


class Watching(SilentObserver):
    def __init__(self):
        self.seen = []

    def step(self, step, steps, figures):
        self.seen.append((step, figures))


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    """Ten sorters, of which some can sort, in a folder, and what was told of their training."""
    watching = Watching()
    folder = tmp_path_factory.mktemp("runs") / "many"
    return attnlab.train_population(
        "sorting", range(5, 15), out=folder, observer=watching, **QUICK
    ), watching.seen


@pytest.fixture(scope="module")
def learned(watched):
    return watched[0]


def claim(population, name):
    return next(each for each in population.report.claims if each.name == name)


def test_a_population_says_how_many_solve_the_task_with_an_interval(learned):
    solved = sum(step is not None for step in learned.solved_at)
    assert learned.success == share_interval(solved, 10)
    assert solved > 0
    assert {*learned.solved_at} <= {None, 100, 200, 300}
    assert str(learned).startswith(f"sorting: {solved} of 10 solved, ")
    assert learned.seeds == tuple(range(5, 15))
    assert learned.passed, learned.report
    names = {"most_seeds_solve_it", "none_broke"}
    assert {each.name for each in learned.report.claims} == names


def test_who_watches_is_told_the_share_solved_so_far(watched):
    learned, seen = watched
    told = {step: figures["solved"] for step, figures in seen if "solved" in figures}
    so_far = [
        sum(at is not None and at <= step for at in learned.solved_at) / 10
        for step in learned.evaluated_steps
    ]
    assert [told[step] for step in learned.evaluated_steps] == so_far
    assert so_far[-1] == learned.success.value
    assert seen[0][1].keys() >= {"loss", "loss_low", "loss_high"}


def test_who_is_solved_answers_all_inputs_right(learned):
    for seed, step in zip(learned.seeds, learned.solved_at, strict=True):
        right = next(
            each for each in learned.member(seed).claims if each.name == "all_inputs_right"
        )
        assert right.passed == (step is not None)


def test_a_population_that_learned_nothing_fails_its_claim():
    begun = attnlab.train_population("sorting", [3, 1], **TINY)
    assert not claim(begun, "most_seeds_solve_it").passed


def test_the_weights_of_each_member_are_those_of_its_best_evaluation(learned):
    others = {name: value.roll(1, 0) for name, value in learned.weights.items()}
    block = dataclasses.replace(learned.blocks[0], weights=others)
    rolled = dataclasses.replace(learned, blocks=MemoryBlocks(block))
    for index in (0, 5, 9):
        best = learned.trained(index).evaluation.figures
        evaluate = learned.problem_of([index]).members[0].evaluate
        with torch.no_grad():
            figures, others = evaluate(learned.model_at(index)), evaluate(rolled.model_at(index))
        for name, value in best.items():
            assert float(figures.figures[name]) == pytest.approx(value, rel=1e-5)
        assert others.figures != figures.figures


def test_a_member_that_breaks_is_named_and_disturbs_nobody(break_seeds, tmp_path):
    alone = attnlab.train_population("sorting", range(3), **TINY)
    break_seeds([1], 12)
    population = attnlab.train_population("sorting", range(3), out=tmp_path / "run", **TINY)
    assert list(population.faults) == ["1"]
    assert population.faults["1"].startswith("at step 13 (loss nan")
    assert not claim(population, "none_broke").passed
    found, expected = (each.table("domain_loss")[[0, 2]] for each in (population, alone))
    torch.testing.assert_close(found, expected)
    with pytest.raises(CouldNotRun, match=r"seed 1 was no longer finite at step 13"):
        attnlab.open(tmp_path / "run" / "1")
    assert "Diverged members" in population.html()
    assert population.solved_at[1] is None


def test_an_opened_population_is_the_one_that_was_saved(learned, tmp_path):
    opened = attnlab.open(learned.save(tmp_path / "again"))
    assert opened.solved_at == learned.solved_at
    assert opened.layout == learned.layout
    assert torch.equal(opened.table("domain_loss"), learned.table("domain_loss"))
    assert all(torch.equal(value, learned.weights[name]) for name, value in opened.weights.items())
    assert opened.trained(3) == learned.trained(3)
    assert opened.report.claims == learned.report.claims


def test_a_member_opens_as_an_ordinary_run(learned, tmp_path):
    path = learned.folder / "9"
    assert is_population(learned.folder)
    assert is_member(path)
    report = attnlab.open(path)
    alone = attnlab.run("sorting", seed=9, **{**QUICK, "layout": "auto"})
    assert [each.name for each in report.claims] == [each.name for each in alone.claims]
    assert report.config["seed"] == 9
    assert report.config["settings"] == alone.config["settings"]
    assert [line["step"] for line in report.metrics] == [line["step"] for line in alone.metrics]
    first, same = report.metrics[0]["loss"], alone.metrics[0]["loss"]
    assert first == pytest.approx(same, rel=1e-5)
    model = attnlab.load(path)
    prompt = torch.tensor([[3, 1, 2, 0]])
    assert torch.equal(model(prompt), report.model(prompt))
    with pytest.raises(WrongUsage, match="no member '99'; it has the seeds 5 to 14"):
        attnlab.open(learned.folder / "99")
    saved = attnlab.open(learned.member(7).save(tmp_path / "7"))  # as a run of its own
    assert saved.content.facts == learned.member(7).content.facts


def test_the_table_has_a_line_for_each_seed_and_step(learned):
    with (learned.folder / "table.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 10 * 6  # the loss every 50 steps; every second time the figures too
    line = next(row for row in rows if row["seed"] == "9" and row["step"] == "300")
    assert float(line["accuracy"]) == learned.table("accuracy")[4, 2]
    assert next(row for row in rows if row["step"] == "50")["accuracy"] == ""


def test_the_folder_is_an_ordinary_run_too(learned):
    report = open_run_or_member(learned.folder)
    assert report.claims == learned.report.claims
    middle = record_heads(learned).middle
    prompt = torch.tensor([[3, 1, 2, 0]])
    assert torch.equal(report.model(prompt), learned.model_at(middle)(prompt))
    assert {"success.png", "loss-fan.svg", "heads.png", "agreement.png"} <= report.figures.keys()


def test_damaged_or_missing_members_are_one_sentence(learned, tmp_path):
    folder = learned.save(tmp_path / "run")
    for name in ("population.safetensors", "history.safetensors"):
        whole = (folder / name).read_bytes()
        (folder / name).write_bytes(whole[:100])
        with pytest.raises(CouldNotRun, match=name):
            attnlab.open(folder)
        (folder / name).write_bytes(whole)
    config = json.loads((folder / "config.json").read_text())
    config["population"]["seeds"].append(99)
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(CouldNotRun, match="does not hold the 11 members"):
        attnlab.open(folder)


def test_an_ordinary_run_is_no_population(sorter, tmp_path):
    with pytest.raises(CouldNotRun, match="a run of one seed, not a population"):
        open_population(sorter)
    with pytest.raises(CouldNotRun, match="not a run folder"):
        open_population(tmp_path / "none")


@pytest.mark.slow
def test_members_may_end_as_soon_as_they_can_do_the_task(learned):
    ended = attnlab.train_population("sorting", range(5, 9), stop_when_solved=True, **QUICK)
    assert ended.solved_at == learned.solved_at[:4]
    assert ended.history.ends == list(ended.solved_at)
    solved = next(index for index, step in enumerate(ended.solved_at) if step is not None)
    assert ended.trained(solved).best_step == ended.solved_at[solved]


def test_seeds_that_make_no_sense_are_refused():
    for seeds, message in (
        ([], "at least one seed; got none"),
        ([1, 2, 1], "seed 1 was given twice"),
        ([-1], "an integer from 0 to"),
        ([True], "an integer from 0 to"),
        ([1.5], "an integer from 0 to"),
        (64, r"a range or a list of integers, such as range\(64\); got 64"),
        ("64", "a range or a list of integers"),
        (range(10**9), "at most 1,000,000 members; got 1,000,000,000"),
    ):
        with pytest.raises(WrongUsage, match=message):
            attnlab.train_population("sorting", seeds, **TINY)


def test_one_seed_is_a_population_too():
    population = attnlab.train_population("sorting", [7], **TINY | {"layout": "auto"})
    assert [population.member(7).config["seed"], len(population)] == [7, 1]


def test_the_middle_member_is_typical_and_the_furthest_is_odd(learned):
    heads = record_heads(learned)
    assert heads.ranking[0] == heads.middle
    assert float(heads.distances.min()) == 0.0
    at = heads.members.index(heads.ranking[-1])
    assert heads.percentiles[at] == 1.0
    assert learned.solved_at[heads.middle] is not None


def test_a_head_that_looks_at_the_next_letter_has_all_its_weight_there():
    task = SortingConfig().sequence_task()
    rows = task.rows(task.parse("cab").unsqueeze(0))
    weights = torch.zeros(1, 2, 6, 6)
    # SEP is followed by the a at place 1, that by the b, that by the c
    for query, key in ((3, 1), (4, 2), (5, 0)):
        weights[0, 0, query, key] = 1.0
    weights[0, 1] = torch.ones(6, 6).tril() / torch.arange(1, 7).unsqueeze(1)
    one, even = sorting.weight_on_next(weights, rows, task).tolist()
    assert one == 1.0
    assert even == pytest.approx((1 / 4 + 1 / 5 + 1 / 6) / 3)


def test_a_recipe_fills_in_what_a_config_leaves_open():
    names = ("steps", "learning_rate", "weight_decay", "warmup_steps")
    for recipe, expected in (
        ({}, (15_000, 1e-3, 0.01, 500)),
        ({"recipe": "fast"}, (2_000, 3e-2, 0.1, 200)),
    ):
        config = SortingConfig(**recipe).train_config()
        assert tuple(getattr(config, name) for name in names) == expected
    assert SortingConfig(recipe="fast", steps=100, learning_rate=1e-2).train_config().steps == 100


@pytest.mark.slow
@pytest.mark.parametrize("projections", ["gated", "strict", "dense"])
def test_the_fast_recipe_solves_sorting_for_nearly_every_seed(projections):
    how = {"recipe": "fast", "projections": projections}
    assert attnlab.train_population("sorting", range(64), **how).success.low > 0.9


def test_an_experiment_of_ours_is_found_without_reading_what_else_is_installed(monkeypatch):
    monkeypatch.setattr(
        registry, "entry_points", lambda group: pytest.fail("all packages are read")
    )
    assert find("sorting").config_class is SortingConfig


def test_every_experiment_says_what_is_learned_and_when_it_counts():
    for name in ("sorting", "lookup"):
        found = find(name)
        goal = found.experiment.describe_problem(found.config_class())
        assert goal.task
        assert goal.solved


def test_what_solved_means_stands_at_the_head_of_the_report_and_beside_the_success(learned):
    assert learned.report.content.sections[0].text == (
        "Sort 3 letters from a to c. Solved means: all 27 inputs answered right at one evaluation."
    )
    assert "all 27 inputs answered right" in learned.report.content.section("Success rate").caption
    assert "all 27 inputs answered right" in claim(learned, "most_seeds_solve_it").statement
    assert learned.report.content.section("Success rate").from_zero


def test_a_fan_has_one_median_and_two_named_bands(learned):
    (median,) = learned.report.content.section("Loss").series
    assert median.name == "median"
    assert [band.name for band in median.bands] == ["nine in ten members", "the middle half"]
    wide, narrow = median.bands
    for low, inner_low, middle, inner_high, high in zip(
        wide.low, narrow.low, median.y, narrow.high, wide.high, strict=True
    ):
        assert low <= inner_low <= middle <= inner_high <= high


def test_what_may_not_be_looked_at_is_blank_and_never_a_weight_of_zero(learned):
    (first, *_) = learned.report.content.section("Where heads look, over all seeds").choices
    assert first.label == "Layer 0: groups"
    rows = first.maps[0].rows
    assert [[value is None for value in row] for row in rows] == [
        [key > query for key in range(len(rows))] for query in range(len(rows))
    ]
    assert "masked" in first.maps[0].masked


def test_padding_is_left_out_of_the_pictures_of_heads():
    population = attnlab.train_population("lookup", range(2), samples=400, epochs=1, part="fixed")
    choices = population.report.content.section("Where heads look, over all seeds").choices
    first, cross = choices[0].maps[0], choices[-1].maps[0]
    assert first.row_labels == first.column_labels == [f"word {number}" for number in range(1, 6)]
    assert cross.row_labels == ["start", "answer"]
    assert cross.column_labels == first.column_labels


def test_a_question_gets_a_sentence_that_answers_it(learned):
    answer = learned.report.content.section("Do seeds agree?").caption.split("\n\n")[0]
    assert re.fullmatch(
        r"Layer 0: (Yes, nearly|In part|Hardly|No, no more than chance): paired by what they do, "
        r"their heads are 0\.\d\d apart, shuffled heads 0\.\d\d\.",
        answer,
    )
    spread = {"aligned": 0.1, "shuffled, aligned": 0.5}
    assert heads_sections._answer(spread).startswith("Yes, nearly")
    assert heads_sections._answer({**spread, "aligned": 0.6}).startswith("No, no more than chance")
    assert "only one seed" in heads_sections._answer({**spread, "aligned": float("nan")})
