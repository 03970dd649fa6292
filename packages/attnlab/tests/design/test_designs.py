import json
import math

import pytest
import torch

from attnlab.design import copy_first, design_for, identity, prove, unique
from attnlab.design.designs import needed_gap
from attnlab.errors import WrongUsage

DESIGNS = (identity, copy_first, unique)


@pytest.mark.parametrize("make", DESIGNS)
@pytest.mark.parametrize("tolerance", [1e-12, 1e-3, 0.4])
@pytest.mark.parametrize("longest", [2, 4])
def test_the_computed_gain_never_fails_and_one_percent_less_fails(make, tolerance, longest):
    design = make(tolerance, longest=longest)
    assert prove(design).holds
    assert prove(design).is_sure
    assert not prove(design.with_gain(0.99 * design.gain)).holds


@pytest.mark.parametrize("make", DESIGNS)
def test_the_usual_designs_hold_on_every_input_in_float32_too(make):
    design = make()
    for dtype in (torch.float64, torch.float32):
        proof = prove(design, dtype=dtype)
        assert proof.holds
        assert proof.is_sure
        assert proof.inputs == (1092 if make is identity else 120)
        assert proof.min_right_weight >= 1 - 1e-3


@pytest.mark.parametrize(("letters", "longest"), [(2, 5), (4, 3), (5, 4)])
@pytest.mark.parametrize("make", DESIGNS)
def test_other_alphabets_and_lengths_are_designed_as_well(make, letters, longest):
    assert prove(make(1e-4, letters=letters, longest=longest)).holds


def test_the_gap_of_identity_is_the_formula():
    # ABBBBB: e^g against 5, the weight on wrong keys 5 / (5 + e^g) = 1/1000, so e^g = 4995.
    assert needed_gap(identity(1e-3).task, 1e-3) == pytest.approx(math.log(4995), abs=1e-12)
    assert identity(1e-3).gap == pytest.approx(1.001 * math.log(4995), abs=1e-6)
    assert identity(1e-3).gain == pytest.approx(identity(1e-3).gap * math.sqrt(3))


def test_the_gap_of_unique_solves_its_equation():
    u = math.exp(needed_gap(unique(1e-3).task, 1e-3) / 2)
    assert 2 * (3 + u**-2) / (u + 3 + u**-2) == pytest.approx(1e-3, rel=1e-9)


def test_unique_scores_are_likes_minus_twice_itself_plus_half_cls():
    design = unique(1e-3)
    ids = design.task.parse("CAC").unsqueeze(0)
    scores = design.model()(design.task.vectors(ids, torch.float64)).scores[0, 0, 1:] / design.gap
    wanted = [[0.5, -1, 0, 1], [0.5, 0, -1, 0], [0.5, 1, 0, -1]]
    torch.testing.assert_close(scores.detach(), torch.tensor(wanted, dtype=torch.float64))


@pytest.mark.parametrize("make", DESIGNS)
def test_a_design_goes_into_json_and_gives_both_models(make):
    design = make()
    assert json.loads(json.dumps(design.to_mapping()))["Km"] == list(map(list, design.Km))
    ids = design.task.parse("AB")
    vectors = design.task.vectors(ids, torch.float64)
    with torch.no_grad():
        found = design.model()(vectors.unsqueeze(0)).output[0].numpy()
    assert abs(found - design.reference()(vectors.numpy())).max() <= 1e-12


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: identity(0), "from 1e-12 to 0.4.* got 0"),
        (lambda: identity(0.5), "got 0.5"),
        (lambda: identity(float("nan")), "got nan"),
        (lambda: identity("0.1"), "got '0.1'"),
        (lambda: unique(longest=1), "longest must be an integer of at least 2"),
        (lambda: design_for("uniqe"), "did you mean 'unique'"),
        (lambda: identity().with_gain(float("inf")), "a gain is a finite number"),
        (lambda: identity().with_gain(True), "a gain is a finite number; got True"),
    ],
)
def test_what_cannot_be_is_refused_in_words(call, message):
    with pytest.raises(WrongUsage, match=message):
        call()
