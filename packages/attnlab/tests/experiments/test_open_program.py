"""`open_program`: its controls are controls, and its claims fail where they should."""

import math
from dataclasses import replace

import pytest
import torch

import attnlab
from attnlab.errors import WrongUsage
from attnlab.experiments.open_program import cohorts, report, targets
from attnlab.experiments.open_program.cohorts import ModelCohort
from attnlab.experiments.open_program.config import OpenProgramConfig
from attnlab.programs import interpret
from attnlab.programs.interpreter import ProgramValues, every_input

TINY = {"only": "sort", "length": 4, "seeds": 2, "steps": 50, "batch": 8, "evaluate_every": 50}
LENGTH = 4


@pytest.fixture(scope="module", params=targets.SOURCES)
def target(request):
    return targets.target_of(request.param, LENGTH)


def shape(part):
    """How many heads, hidden units in each layer, and values a part has."""
    layers = part.model.layers
    units = [int(each.feed_forward.outer.weight.any(0).sum()) for each in layers]
    return len(part.heads), units, len(part.values)


def tells(decoy, part, program):
    """On how many positions of all inputs the decoy, with letter and place, tells the part."""
    known, told = {}, []
    for ids in every_input(program, LENGTH):
        meaning = ProgramValues(program, ids)
        rows = [meaning.of(each).row for each in (decoy, part)]
        for number, letters in enumerate(ids.tolist()):
            for place, key in enumerate(zip(rows[0](number), letters, strict=True)):
                told.append((place, *key))
                known.setdefault((place, *key), set()).add(rows[1](number)[place])
    return sum(len(known[key]) == 1 for key in told) / len(told)


def test_a_decoy_has_the_shape_of_the_part_and_does_not_tell_it(target):
    source = targets.SOURCES[target.name]
    assert shape(target.decoy) == shape(target.part)
    assert tells(source.decoy, source.part, source.program("abc")) < 0.5


def test_a_control_that_is_not_a_control_is_noticed(target):
    source = targets.SOURCES[target.name]
    assert tells(source.part, source.part, source.program("abc")) == 1
    other = targets.SOURCES["induction" if target.name != "induction" else "sort"]
    part = targets.target_of(next(n for n, s in targets.SOURCES.items() if s is other), LENGTH).part
    assert shape(part) != shape(target.part)


def test_the_domain_is_every_input_with_what_the_program_says(target):
    domain, program = target.domain, target.source.program("abc")
    assert len(domain.ids) == 3 + 9 + 27 + 81
    for ids, real, answers, counted in list(zip(*vars(domain).values(), strict=True))[::7]:
        assert ids[0] == 3
        letters = "".join("abc"[code] for code in ids[real][1:])
        said = [target.whole.values[code] for code in answers[counted]]
        assert said == interpret(program, letters)


def test_all_kinds_of_one_seed_begin_with_the_same_rest(target):
    scratch, _ = cohorts.initial(target, "scratch", 0, 1)
    drawn = dict(scratch.named_parameters())
    for arm in ("frozen", "trainable", "decoy"):
        model, opened = cohorts.initial(target, arm, 0, 1)
        for name, parameter in model.named_parameters():
            free = ~opened.held[name]
            assert torch.equal(parameter[free], drawn[name][free])


def test_as_many_learned_heads_are_taken_from_the_same_layers(target):
    _, opened = cohorts.initial(target, "frozen", 0, 0)
    for heads in cohorts.as_many(opened):
        assert len(heads) == len(opened.heads)
        assert not set(heads) & set(opened.heads)
        assert {name[0] for name in heads} == {name[0] for name in opened.heads}


def cohort(steps, part=(), learned=()):
    return ModelCohort("frozen", [None] * len(steps), steps, part, learned, 0)


def test_a_race_is_decided_seed_by_seed_and_a_tie_counts_for_neither():
    one, other = cohort([10] * 8 + [50]), cohort([20] * 7 + [math.inf, 50])
    found = report.race(one, other)
    assert (found.sooner, found.later, found.passed) == (8, 0, True)
    assert report.race(other, one).passed is False
    assert report.race(one, one).passed is None


def test_heads_that_are_not_needed_are_not_called_used():
    needed = cohort([1] * 3, part=[0.1, 0.2, 0.1], learned=[0.9, 0.8, 0.9])
    assert report.need(needed).low > 0
    ignored = cohort([1] * 3, part=[0.9, 0.8, 0.9], learned=[0.1, 0.2, 0.1])
    assert report.need(ignored).high < 0


def test_steps_that_were_not_reached_are_named():
    assert report.steps_text(cohort([100.0] * 10 + [math.inf] * 10)) == (
        "not reached (100 to not reached)"
    )
    assert report.steps_text(cohort([25.0, 75.0])) == "50 (? to ?)"


def test_a_run_makes_its_claims_and_nothing_frozen_moves():
    small = attnlab.run("open_program", layout="sequential", **TINY)
    names = [claim.name for claim in small.claims]
    assert names[0] == "frozen_stays"
    assert small.claims[0].passed
    assert len(small.content.section("sort: kinds of models").rows) == 4
    assert len(names) == 5


def test_what_moves_although_it_is_frozen_fails_its_claim(monkeypatch):
    usual = OpenProgramConfig.train_config
    monkeypatch.setattr(
        OpenProgramConfig, "train_config", lambda self: replace(usual(self), weight_decay=0.1)
    )
    moved = attnlab.run("open_program", layout="sequential", **TINY).claims[0]
    assert (moved.name, moved.passed) == ("frozen_stays", False)


def test_an_unknown_program_is_refused():
    with pytest.raises(WrongUsage, match="only"):
        attnlab.run("open_program", only="sorting")
