import copy
import itertools
import json
from dataclasses import replace

import numpy as np
import pytest
import torch

import attnlab
from attnlab.design import design_for, designs, prove
from attnlab.errors import WrongUsage
from attnlab.experiments.experiment import RunContext
from attnlab.experiments.handmade import HandmadeConfig, cohorts, comparison, workshop
from attnlab.experiments.handmade.programs import PROGRAMS
from attnlab.models import SingleHead
from attnlab.programs import Program, check_program, interpret
from attnlab.tasks.vectors import VectorTask
from attnlab.train import Evaluation, Member, train_together
from tests.sampling import sampled

SMALL = {"positions": "one_hot", "seeds": 3, "steps": 3_500, "learning_rate": 0.1}
TINY = {"steps": 3, "seeds": 2}
CLAIMS = [
    "proved_identity", "proved_copy_first", "proved_unique", "no_smaller_gain",
    "wrong_design_refuted", "learned_identity", "learned_copy_first", "learned_unique",
    "only_the_product_counts", "agree_where_it_can_be_known",
]  # fmt: skip


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    """One real run, and the cohorts it trained."""
    cohorts = {}
    whole = workshop.train_cohort

    def kept(design, config, context, **options):
        cohorts[design.name] = whole(design, config, context, **options)
        return cohorts[design.name]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(workshop, "train_cohort", kept)
        patch.setenv("CXXFLAGS", "-O0")  # half as long as without a compiler
        folder = tmp_path_factory.mktemp("runs") / "handmade"
        run = attnlab.run("handmade", out=folder, layout="simd", engine="compiled", **SMALL)
    return run, cohorts


@pytest.fixture
def again(learned, monkeypatch):
    """Run once more with the cohorts of the real run, and list the claims that fail."""

    def run():
        known = workshop.train_cohort
        if known.__module__ == cohorts.__name__:
            monkeypatch.setattr(
                workshop, "train_cohort", lambda design, *args, **options: learned[1][design.name]
            )
        return [claim.name for claim in attnlab.run("handmade", **SMALL).claims if not claim.passed]

    return run


def claim(report, name):
    return next(each for each in report.claims if each.name == name)


def test_every_claim_holds(learned):
    report, _ = learned
    assert [each.name for each in report.claims] == CLAIMS
    assert str(report).startswith("handmade: 10 of 10 claims hold")
    assert claim(report, "proved_identity").measured.startswith("1,092/1,092, margin 8.5e-06")
    assert "3 of 3 heads reach the bound" in claim(report, "agree_where_it_can_be_known").measured
    refuted = claim(report, "wrong_design_refuted").measured
    assert "1,074 of 1,092 fail; first AB, at A in place 1" in refuted


RULES = ["identity", "copy_first", "unique"]


def test_gains_that_are_a_little_too_small_are_caught(again, monkeypatch):
    whole = workshop.prove_design

    def weak(design):
        return whole(design.with_gain(0.995 * design.gain) if design.name in RULES else design)

    monkeypatch.setattr(workshop, "prove_design", weak)
    assert again() == [f"proved_{rule}" for rule in RULES]


def test_a_gain_that_is_needlessly_large_is_caught(again, monkeypatch):
    monkeypatch.setattr(designs, "_HEADROOM", 1.05)
    assert again() == ["no_smaller_gain"]


def test_a_proof_that_does_not_measure_the_error_is_caught(again, monkeypatch):
    whole = workshop.prove

    def careless(design):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                VectorTask,
                "error",
                lambda task, output, ids: torch.zeros(ids.shape, dtype=output.dtype),
            )
            return whole(design)

    monkeypatch.setattr(workshop, "prove", careless)
    assert again() == ["wrong_design_refuted"]


def test_heads_that_learned_too_little_are_caught(learned, again, monkeypatch):
    real = cohorts.train_cohort
    short = HandmadeConfig(**{**SMALL, "steps": 200})

    def hurried(design, config, context, **options):
        known = learned[1][design.name]
        hasty = real(design, short, context, **options)
        return replace(hasty, losses=known.losses, steps=known.steps)

    monkeypatch.setattr(workshop, "train_cohort", hurried)
    # What has not learned cannot agree with the design either.
    failed = [name for name in again() if name != "agree_where_it_can_be_known"]
    assert failed == [f"learned_{rule}" for rule in RULES]


def test_a_change_that_is_no_gauge_change_is_caught(again, monkeypatch):
    monkeypatch.setattr(
        comparison,
        "gauge_change",
        lambda m, r: m._replace(Km=m.Km @ r, Qm=m.Qm @ torch.linalg.inv(r)),
    )
    assert again() == ["only_the_product_counts"]


def test_a_comparison_of_raw_keys_is_caught(again, monkeypatch):
    table = comparison.score_table
    monkeypatch.setattr(
        comparison, "score_table", lambda m, task: table(m._replace(Qm=torch.ones_like(m.Qm)), task)
    )
    assert again() == ["agree_where_it_can_be_known"]


def test_heads_trained_together_end_where_each_would_end_alone():
    design = design_for("unique")
    settings = HandmadeConfig(steps=100, learning_rate=0.05).train_config()
    heads = [cohorts.initial_head(design, True, 0, member).double() for member in range(3)]
    samplers = [cohorts.make_sampler(design.task, 0, member, torch.float64) for member in range(3)]
    evaluate = lambda model: Evaluation((0.0,), {})  # noqa: E731
    members = [
        Member(copy.deepcopy(head), settings, sample, evaluate)
        for head, sample in zip(heads, samplers, strict=True)
    ]
    train_together(members, cohorts.loss)
    for head, sample, member in zip(heads, samplers, members, strict=True):
        alone = train_alone(head, sample, 0.05)
        for name, value in alone.state_dict().items():
            torch.testing.assert_close(member.model.state_dict()[name], value, atol=1e-12, rtol=0)


def train_alone(head, sample, rate):
    """Train one head as a textbook says, one unpadded sequence a step."""
    optimiser = torch.optim.SGD(head.parameters(), lr=rate)
    batches = [part for first in (0, 50) for part in zip(*sample(first, 50), strict=True)]
    for x, target, share, real in batches:
        output = head(x[real].unsqueeze(0)).output
        counted = share[real].squeeze(-1) > 0
        loss = torch.nn.functional.mse_loss(output[0, counted], target[real][counted])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return head


def test_a_seed_learns_the_same_whoever_else_learns():
    design = design_for("copy_first")
    few, more = (
        cohorts.train_cohort(
            design, HandmadeConfig(steps=60, seeds=seeds), RunContext(0), has_learned_positions=True
        )
        for seeds in (2, 5)
    )
    for one, other in zip(few.heads, more.heads[:2], strict=True):
        torch.testing.assert_close(one.matrices().Km, other.matrices().Km, atol=1e-6, rtol=0)
    assert few.heads[0].matrices().Km.tolist() != few.heads[1].matrices().Km.tolist()


def test_the_curve_is_the_mean_of_200_steps_and_of_what_is_left_over():
    notes = {50: 1.0, 100: 2.0, 150: 3.0, 200: 6.0, 250: 4.0, 260: 10.0}
    steps, losses = cohorts.blocks(list(notes), [torch.tensor([loss]) for loss in notes.values()])
    assert steps == [200, 260]
    assert losses.flatten().tolist() == [3.0, 5.0]


@pytest.mark.slow
def test_heads_whose_training_breaks_fail_their_claims_and_nothing_else(tmp_path):
    settings = {**TINY, "steps": 200, "learning_rate": 10.0}
    report = attnlab.run("handmade", out=tmp_path / "run", **settings)
    failed = {each.name for each in report.claims if not each.passed}
    assert failed >= {"learned_identity", "learned_unique", "agree_where_it_can_be_known"}
    assert not failed & {"proved_identity", "only_the_product_counts"}
    assert attnlab.open(tmp_path / "run").html()


def test_a_run_folder_holds_the_record_and_all_heads(learned):
    report, cohorts = learned
    record = json.loads((report.folder / "submission.json").read_text())
    assert [each["task"]["rule"] for each in record["designs"]] == list(cohorts)
    assert record["class"] == "SingleHead"
    assert prove(attnlab.load(report.folder), "copy_first", tolerance=1e-3).holds
    for name, task in (("identity", "identity"), ("unique", "unique")):
        assert prove(attnlab.load(report.folder / "models" / name), task, tolerance=1e-3).holds
    for rule, cohort in cohorts.items():
        head = attnlab.load(report.folder / "models" / f"learned_{rule}")
        assert isinstance(head, SingleHead)
        assert head.matrices().Km.tolist() == cohort.heads[0].matrices().Km.tolist()


def test_the_programs_of_the_tasks_say_what_the_tasks_ask(learned):
    oracles = {
        "identity": list,
        "copy_first": lambda word: [word[0]] * len(word),
        "unique": lambda word: [word.count(letter) == 1 for letter in word],
    }
    for rule, output in PROGRAMS.items():
        for length in (1, 2, 3, 4):
            for word in itertools.product("ABC", repeat=length):
                assert interpret(Program(output, "ABC"), word) == oracles[rule](word), (rule, word)
    table = learned[0].content.section("The same as programs")
    assert [row[0] for row in table.rows] == list(oracles)
    assert [row[table.columns.index("failures")] for row in table.rows] == [0, 0, 0]


def test_the_compiled_weights_stand_beside_the_others_with_a_certificate(learned):
    run, _ = learned
    choice = run.content.section("By hand, learned, compiled: where they look").choices[3]
    assert choice.label == "copy_first: CAB"
    assert [each.title for each in choice.maps] == ["by hand", "learned", "compiled, head 0.0"]
    for each in choice.maps:
        assert np.argmax(each.rows, -1).tolist() == [0, 0, 0]
    for rule in PROGRAMS:
        folder = run.folder / "programs" / rule
        assert "DIFFERS" not in check_program.verdict(folder)


def test_the_eight_panels_stand_side_by_side_with_their_numbers_and_colours_of_their_range(learned):
    report, _ = learned
    section = report.content.sections[0]
    assert [choice.label for choice in section.choices][::3] == [
        "identity: CAB", "copy_first: CAB", "unique: CLS CAC",
    ]  # fmt: skip
    for choice in section.choices:
        titles = [each.title.split(":")[0] for each in choice.maps]
        names = ("Km", "Qm", "Vm", "K", "Q", "V", "attention", "output")
        assert titles == [f"{name} {who}" for name in names for who in ("by hand", "learned")]
        for each in choice.maps:
            cells = [cell for row in each.rows for cell in row]
            assert each.low <= min(cells) <= max(cells) <= each.high
            assert each.low == min(cells) or each.low == -each.high or "attention" in each.title
            if "attention" in each.title:
                assert (each.low, each.high) == (0.0, 1.0)
                assert [sum(row) for row in each.rows] == pytest.approx([1.0] * len(each.rows))
    assert section.choices[0].maps[2].title == "Qm by hand: 0 to 14.77"


@pytest.mark.parametrize(
    "settings",
    sampled(
        [
            {"positions": "both", "seeds": "1", "tolerance": "0.4"},
            {"steps": "1", "tolerance": "1e-9"},
            {"positions": "learned"},
            {"steps": "201", "seeds": "1"},
            {"learning_rate": "0"},
        ],
        2,
    ),
    ids=str,
)
def test_every_option_works(settings):
    report = attnlab.run("handmade", settings={"steps": "3", "seeds": "2"} | settings)
    passed = {each.name for each in report.claims if each.passed}
    assert passed >= {name for name in CLAIMS if not name.startswith(("learned", "agree"))}
    assert "<html" in report.html()


def test_settings_that_cannot_be_are_refused():
    wrong = ({"tolerance": 0.0}, {"tolerance": 0.5}, {"seeds": 0}, {"positions": "sinusoidal"})
    for fields in wrong:
        with pytest.raises(WrongUsage, match=next(iter(fields))):
            attnlab.run("handmade", **fields)


@pytest.mark.slow
def test_a_hundred_seeds_learn_unique_from_one_hot_positions():
    report = attnlab.run("handmade", seeds=100)
    assert report.passed
    assert "100 of 100 seeds" in claim(report, "learned_unique").measured
