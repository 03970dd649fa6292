import dataclasses
import hashlib
import itertools
import json

import numpy as np
import pytest
import torch

from attnlab.design import copy_first, identity, prove, unique
from attnlab.design.proof import _Tally
from attnlab.errors import WrongUsage
from attnlab.models.single_head import SingleHead
from attnlab.tasks.vectors import VectorTask


def test_a_gap_of_5_7_is_refuted_with_its_first_counterexample():
    proof = prove(identity(1e-3).with_gap(5.7))
    assert not proof.holds
    # All but the 18 inputs of one letter alone: A, AA, …, CCCCCC.
    assert (proof.inputs, proof.failures) == (1092, 1074)
    assert (proof.counterexample.input, proof.counterexample.place, proof.counterexample.token) == (
        "AB",
        1,
        "A",
    )
    assert proof.counterexample.got[1] == pytest.approx(1 / (1 + np.exp(5.7)), rel=1e-9)
    assert "1,074 of 1,092 fail" in str(proof)
    assert "first failure AB, at A in place 1: expected 1 0 0; got 0.996665 0.00333481 0" in str(
        proof
    )


def test_margin_and_worst_error_are_those_of_the_worst_input():
    design = copy_first(1e-3)
    proof = prove(design)
    weight = 3 / (3 + np.exp(design.gap))
    assert proof.worst_input == "ABBB"
    assert proof.worst_error == pytest.approx(weight, rel=1e-9)
    assert proof.margin == pytest.approx(1e-3 - weight, rel=1e-6)
    assert proof.min_right_weight == pytest.approx(1 - weight, rel=1e-12)


@pytest.mark.parametrize("make", [identity, copy_first, unique])
def test_a_design_and_its_model_get_the_same_proof(make):
    design = make(1e-3)
    assert prove(design).holds
    assert prove(design.model(), design.task, tolerance=1e-3) == prove(design)


def test_the_digest_is_of_what_was_checked_and_can_be_repeated():
    design = copy_first(1e-3)
    asked = {
        "task": {"rule": "copy_first", "letters": 3, "longest": 4},
        "tolerance": 1e-3,
        "arithmetic": "float64",
    }
    content = json.dumps(asked, sort_keys=True).encode()
    for name in ("Km", "Qm", "Vm", "pos"):
        matrix = np.array(getattr(design, name))
        content += (json.dumps(name) + json.dumps(list(matrix.shape))).encode() + matrix.astype(
            "<f8"
        ).tobytes()
    for length in range(1, 5):
        inputs = np.array(
            [np.eye(3)[list(word)] for word in itertools.product(range(3), repeat=length)]
        )
        targets = np.repeat(inputs[:, :1], length, axis=1)
        for array in (inputs, targets):
            content += json.dumps(list(array.shape)).encode() + array.astype("<f8").tobytes()
    assert prove(design).digest == hashlib.sha256(content).hexdigest()
    assert prove(design, tolerance=2e-3).digest != prove(design).digest
    assert prove(design.with_gain(design.gain + 1e-6)).digest != prove(design).digest


def test_one_digest_never_stands_beside_two_verdicts():
    # Between the two worst errors, so that the arithmetic alone decides.
    model = identity(1e-3).model(torch.float32)
    errors = {
        dtype: prove(model, "identity", dtype=dtype).worst_error
        for dtype in (torch.float32, torch.float64)
    }
    tolerance = sum(errors.values()) / 2
    single, double = (
        prove(model, "identity", tolerance=tolerance, dtype=dtype) for dtype in errors
    )
    assert single.holds != double.holds
    assert single.digest != double.digest
    assert not single.is_sure


def test_a_child_that_may_compute_otherwise_is_not_proved():
    class Cheat(SingleHead):
        def forward(self, x, **options):
            return super().forward(x, **options)._replace(output=x)

    cheat = Cheat.from_matrices(*[np.zeros((3, 3))] * 3)
    with pytest.raises(WrongUsage, match=r"or a SingleHead, .*; got a Cheat"):
        prove(cheat, VectorTask("identity", letters=3, longest=3))


def test_proved_is_said_only_where_rounding_cannot_change_the_verdict():
    assert ": proved on all 1,092 inputs" in str(prove(identity()))
    design = identity(1e-3)
    barely = prove(design, tolerance=prove(design).worst_error * (1 + 1e-15))
    assert barely.holds
    assert not barely.is_sure
    assert ": holds on all 1,092 inputs, but rounding may exceed the margin" in str(barely)
    assert "proved" not in str(barely)


def test_a_margin_between_two_components_must_exceed_twice_the_rounding():
    proof = prove(identity().model(), "identity")
    assert not dataclasses.replace(proof, margin=1.5 * proof.rounding).is_sure
    assert dataclasses.replace(proof, margin=2.5 * proof.rounding).is_sure
    assert dataclasses.replace(
        prove(identity()), margin=1.5 * proof.rounding, rounding=proof.rounding
    ).is_sure


def test_the_matrices_of_a_coarse_head_are_proved_in_float64():
    coarse = identity(1e-3, longest=3).model(torch.bfloat16)
    proof = prove(coarse, "identity", tolerance=2e-3, dtype=torch.float64)
    assert proof.dtype == "float64"
    assert proof.digest == prove(coarse.double(), "identity", tolerance=2e-3).digest


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize(("make", "tolerance"), [(copy_first, 1e300), (unique, None)])
def test_nan_and_infinity_never_pass(value, make, tolerance):
    Km, Qm, Vm, pos = make().model().matrices()
    Vm[0, 0] = value
    head = SingleHead.from_matrices(Km, Qm, Vm, pos)
    proof = prove(head, make().task, tolerance=tolerance)
    assert not proof.holds
    json.dumps(proof.to_mapping(), allow_nan=False)


def test_one_nan_among_right_answers_is_found(monkeypatch):
    design, whole = copy_first(), SingleHead.forward

    def nearly(self, x, **options):
        answer = whole(self, x, **options)
        abc = torch.eye(3, dtype=x.dtype)
        if x.shape[1] == 3:
            answer.output[(x == abc).all((1, 2)), 1, 2] = torch.nan
        return answer

    monkeypatch.setattr(SingleHead, "forward", nearly)
    proof = prove(design.model(), "copy_first")
    assert (proof.failures, proof.counterexample.input, proof.counterexample.place) == (1, "ABC", 2)
    assert np.isnan(proof.margin)
    assert proof.worst_input == "ABC"


def test_the_sign_alone_counts_where_no_tolerance_is_given_and_zero_has_none():
    weak = unique(1e-3).with_gap(4.0)
    assert prove(weak.model(), "unique").holds
    assert not prove(weak.model(), "unique", tolerance=1e-3).holds
    Km, Qm, Vm, pos = unique().model().matrices()
    proof = prove(SingleHead.from_matrices(Km, Qm, 0 * Vm, pos), "unique")
    assert (proof.failures, proof.min_output_size, proof.margin) == (120, 0.0, 0.0)


def test_rounding_stays_below_its_bound():
    for design in (
        identity(),
        copy_first(),
        unique(),
        unique(1e-9),
        identity(0.3, letters=4, longest=4),
    ):
        task = design.task
        double, single = design.model(), design.model(torch.float32)
        # The design's own matrices rounded to float32 are what the float32 model holds: compare
        # from there.
        double = SingleHead.from_matrices(*single.matrices())
        bound = prove(single, task, tolerance=1.0).rounding
        for ids in task.inputs_by_length():
            with torch.no_grad():
                apart = (
                    double(task.vectors(ids, torch.float64)).output
                    - single(task.vectors(ids)).output.double()
                )
            assert float(apart.abs().max()) <= bound


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: prove(identity().model()), "choose the task to prove"),
        (lambda: prove(identity().model(), "idntity"), "did you mean 'identity'"),
        (lambda: prove(identity(), tolerance=-1), "a tolerance must be a number of at least 0"),
        (lambda: prove(identity(), tolerance=float("nan")), "a tolerance must be a number"),
        (lambda: prove(3, "identity"), r"such as attnlab\.design\.identity\(\), .*; got an int"),
        (lambda: prove(lambda x: x, "identity"), "which SingleHead.from_matrices makes of"),
        (lambda: prove(torch.nn.Linear(3, 3), "identity"), "got a Linear"),
        (lambda: prove(identity(), "unique"), "these matrices take 3 and give 3"),
        (lambda: prove(copy_first(longest=2), "copy_first"), "this head has 2 positions"),
        (lambda: prove(identity(), dtype=torch.int32), "got torch.int32"),
        (lambda: prove(identity(), dtype=torch.bfloat16), "got torch.bfloat16"),
        (lambda: prove(identity(), dtype="float32"), "got 'float32'"),
        (lambda: prove(identity().model(torch.bfloat16), "identity"), "in bfloat16. Cast it"),
        (lambda: prove(identity().model().to("meta"), "identity"), "on the device meta"),
        (lambda: prove(identity(), ["identity"]), r"or unique; got \['identity'\]"),
        (lambda: prove(identity(), tolerance=True), "got True"),
        (lambda: prove(identity(), tolerance=10**400), "a tolerance must be a number"),
        (lambda: prove(SingleHead, "identity"), "got the class SingleHead"),
        (lambda: prove(copy_first(), "identity"), "6 tokens; this head has 4 positions"),
    ],
)
def test_what_cannot_be_is_refused_in_words(call, message):
    with pytest.raises(WrongUsage, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_a_head_is_proved_at_another_task_and_at_longer_inputs_than_it_was_designed_for():
    assert prove(identity(), "copy_first", tolerance=1).inputs == 120
    assert prove(identity(longest=2), "identity").inputs == 1092


@pytest.mark.parametrize("make", [identity, copy_first, unique])
def test_the_worst_of_all_inputs_counts_in_whatever_order_they_come(make):
    """What is kept of all inputs is never only what the last of them left."""
    design = make()
    task, subject = design.task, design.with_gain(design.gain / 8).model(torch.float64)
    matrices = subject.matrices()
    parts = list(task.inputs_by_length())
    found = []
    for order in (parts, parts[::-1]):
        tally = _Tally(task, design.tolerance, matrices)
        for ids in order:
            tally.add(ids, subject)
        found.append(tally.proof(torch.float64, ""))
    one, other = found
    for name in ("failures", "margin", "worst_error", "min_right_weight", "min_output_size"):
        assert getattr(one, name) == getattr(other, name), name
    assert one.rounding == other.rounding
