import dataclasses
import datetime
import functools
import json
import re

import pytest
import torch
from torch import nn

import attnlab
from attnlab.design import (
    Design,
    check_record,
    copy_first,
    identity,
    submission,
    submission_record,
    unique,
)
from attnlab.errors import WrongUsage

DESIGNS = [identity(), copy_first(), unique()]


def student_class(order=("Qm", "Km", "Vm"), *, scale=True):
    """Write a student's class, whose constructor makes its layers in some order."""

    class Student(nn.Module):
        def __init__(self, input_dim, qk_dim, v_dim, pos_dim=None, max_seq_len=10):
            super().__init__()
            sizes = {"Qm": qk_dim, "Km": qk_dim, "Vm": v_dim}
            for layer in order:
                setattr(
                    self, layer, nn.Linear(input_dim + (pos_dim or 0), sizes[layer], bias=False)
                )
            self.pos = None if pos_dim is None else nn.Parameter(torch.randn(max_seq_len, pos_dim))

        def forward(self, seq):
            if self.pos is not None:
                seq = torch.cat((seq, self.pos[: len(seq)]), -1)
            query, key, value = self.Qm(seq), self.Km(seq), self.Vm(seq)
            scores = query @ key.T / (query.shape[-1] ** 0.5 if scale else 1.0)
            return scores.softmax(-1) @ value

    return Student


@pytest.fixture(scope="module", autouse=True)
def _proofs_once():
    """Prove each design once, however often it is submitted and checked."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(submission, "prove", functools.cache(submission.prove))
        yield


def submitted(model_class=attnlab.SingleHead, designs=DESIGNS):
    """A record as it is read back from its file."""
    return json.loads(json.dumps(submission_record(model_class, designs), allow_nan=False))


def test_the_values_do_not_depend_on_the_order_in_which_layers_are_made():
    orders = (("Qm", "Km", "Vm"), ("Vm", "Qm", "Km"))
    records = [submitted(student_class(order)) for order in orders]
    assert records[0]["values"] == records[1]["values"]
    assert [check_record(record) for record in (*records, submitted())] == [[]] * 3


def test_the_record_holds_time_shapes_matrices_values_and_the_source_of_two_methods():
    time = datetime.datetime(2025, 5, 17, 12, tzinfo=datetime.UTC)
    record = submission_record(student_class(), DESIGNS, time=time)
    assert record["time"] == "2025-05-17T12:00:00+00:00"
    assert "softmax" in record["source"]["forward"]
    assert "nn.Linear" in record["source"]["__init__"]
    assert [each["shapes"]["Km"] for each in record["designs"]] == [[3, 3], [7, 4], [8, 8]]
    assert record["designs"][1]["Vm"][0] == (1.0, 0.0, 0.0)
    assert len(record["values"]) == 4


def test_a_source_that_python_does_not_know_is_left_empty_and_named():
    space = {"parent": student_class()}
    exec("class Typed(parent):\n    def forward(self, seq): return super().forward(seq)", space)
    record = submitted(space["Typed"])
    assert record["source"]["forward"] is None
    (problem,) = check_record(record)
    assert problem.startswith("the source of forward is missing")


def test_the_source_of_an_inherited_method_is_its_parent_s():
    parent = student_class()

    class Heir(parent):
        pass

    record = submitted(Heir)
    assert record["source"] == submitted(parent)["source"]
    assert "softmax" in record["source"]["forward"]
    assert check_record(record) == []
    assert submission._source(nn.Module, "__init__") is None


def test_a_forward_that_is_a_lambda_is_named():
    parent = student_class()

    class Short(parent):
        forward = lambda self, seq: parent.forward(self, seq)  # noqa: E731, PLW0108

    (problem,) = check_record(submitted(Short))
    assert problem.startswith("the source of forward must be its definition, def forward(…); got")


@pytest.mark.parametrize("has_positions", [True, False])
def test_a_design_written_in_another_way_has_the_gain_of_its_scores(has_positions):
    # 6 · I for keys and queries alike is a gain of 36; with idle positions, still.
    idle = [[0.0] * 3] if has_positions else []
    keys = [[6.0 * (row == column) for column in range(3)] for row in range(3)] + idle
    values = [[1.0 * (row == column) for column in range(3)] for row in range(3)] + idle
    fields = {"Km": keys, "Qm": keys, "Vm": values, "pos": [[1.0]] * 6 if has_positions else None}
    own = Design.from_mapping(identity().to_mapping() | fields | {"gain": 36.0})
    assert check_record(submitted(designs=[own, *DESIGNS[1:]])) == []
    wrong = dataclasses.replace(own, gain=35.0)
    (problem,) = check_record(submitted(designs=[wrong, *DESIGNS[1:]]))
    assert "is stated as 35; its matrices have 36" in problem


def test_numbers_that_differ_by_rounding_alone_are_confirmed():
    record = submitted()
    proof = record["designs"][2]["proof"]
    for name in ("margin", "worst_error"):
        proof[name] += 0.5 * proof["rounding"]
    assert check_record(record) == []
    proof["margin"] += 3 * proof["rounding"] + 1e-9
    assert "says margin is" in check_record(record)[0]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda r: r["values"][2]["output"][0].__setitem__(0, 9.0), "case 2 says output is"),
        (lambda r: r["values"][1]["output"].pop(), "case 1 says output is .*; checked again it is"),
        (lambda r: r["values"][1].update(output="x"), "case 1 says output is 'x'"),
        (lambda r: r["values"].pop(), "expected the values of 4 cases"),
        (lambda r: r["values"][0].update(qk_dim=4), "case 0 says qk_dim is 4"),
        (lambda r: r["designs"][1]["Qm"][3].__setitem__(0, 1.0), "proof of copy_first says digest"),
        (lambda r: r["designs"][1]["proof"].update(failures=3), "says failures is 3"),
        (lambda r: r["designs"][0].update(shapes={}), "the shapes of identity must"),
        (lambda r: r["designs"][0].update(task={"rule": "sort"}), "there is no task 'sort'"),
        (lambda r: r["designs"][0].pop("proof"), "the proof of identity must"),
        (lambda r: r.update(designs=[]), "expected one design for each task"),
        (lambda r: r.update(source={}), "expected the source of __init__ and forward"),
        (lambda r: r["designs"][0].update(gain=1.0), "is stated as 1; its matrices have 14.7652"),
        (lambda r: r["designs"][0].update(gain=float("nan")), "a gain is a finite number; got nan"),
        (lambda r: r["designs"][0].update(tolerance=0.9), "a tolerance is a number"),
        (lambda r: r["designs"][0].update(Km=[[10**400] * 3] * 3), "this is not a design"),
        (lambda r: r["designs"][0]["proof"].update(margin=99), "says margin is 99"),
        (lambda r: r["designs"][0]["proof"].update(margin=10**400), "checked again it is 8.47"),
        (lambda r: r["designs"][0]["proof"].update(worst_error=0), "says worst_error is 0"),
        (lambda r: r["designs"][0]["proof"].update(rounding=0.5), "says rounding is 0.5"),
        (lambda r: r["designs"][2]["proof"].update(min_output_size=True), "min_output_size is"),
        (lambda r: r["designs"][0]["proof"].update(inputs=5), "says inputs is 5"),
        (lambda r: r["designs"][0]["proof"].update(holds=1), "says holds is 1"),
        (lambda r: r["designs"][0]["proof"].update(dtype="float32"), "says dtype is"),
        (lambda r: r["designs"][0]["proof"].pop("margin"), "the proof of identity must"),
        (lambda r: r["designs"][0].update(proof=3), "the proof of identity must"),
        (lambda r: r["designs"].pop(), "expected one design for unique; got 0"),
        (lambda r: r["designs"].append(r["designs"][1]), "for copy_first; got 2"),
        (lambda r: r["values"][0].update(output=[[10**400] * 3]), "case 0 says output is"),
        (lambda r: r.update(time=None), "the time must be ISO 8601, such as 2025.*; got None"),
        (lambda r: r.update(time="yesterday"), "the time must be ISO 8601.*; got 'yesterday'"),
        (lambda r: r.update({"class": 7}), "class must be the name of a class; got 7"),
        (lambda r: r["source"].update(__init__=None), "the source of __init__ is missing"),
        (lambda r: r["source"].update(forward="pass"), r"def forward\(…\); got 'pass'"),
        (lambda r: r["source"].update(forward=r["source"]["__init__"]), "must be its definition"),
        (lambda r: r["source"].update(forward=["x"]), "source of forward must be its definition"),
        (lambda r: r.pop("time"), "the record lacks time"),
        (lambda r: r.clear(), "not a record of the form"),
    ],
)
def test_every_damage_is_named(damage, message):
    record = submitted()
    damage(record)
    (problem,) = check_record(record)
    assert re.search(message, problem), problem


def test_a_student_who_forgets_the_scale_is_found():
    record = submitted(student_class(scale=False))
    assert len(check_record(record)) >= 2


def test_a_design_that_fails_is_named_with_its_counterexample():
    (problem,) = check_record(submitted(designs=[identity().with_gap(5.7), *DESIGNS[1:]]))
    assert problem.startswith("the design of identity fails: AB, at A in place 1: expected 1 0 0")


def test_a_class_that_cannot_be_used_is_refused_in_words():
    class Empty(nn.Module):
        def __init__(self, **widths):
            super().__init__()

    class Strange(nn.Module):
        pass

    with pytest.raises(WrongUsage, match=r"Empty must have a linear layer .* named Km or key"):
        submission_record(Empty, DESIGNS)
    with pytest.raises(WrongUsage, match="Strange failed with"):
        submission_record(Strange, DESIGNS)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: submission_record(3, DESIGNS), "got a value of type int"),
        (
            lambda: submission_record(functools.partial(attnlab.SingleHead), DESIGNS),
            "not a model made of it; got a value of type partial",
        ),
        (lambda: submission_record(identity().model(), DESIGNS), "got a value of type SingleHead"),
        (lambda: submission_record(lambda **widths: None, DESIGNS), "got a value of type function"),
        (lambda: submission_record(dict, DESIGNS), "expected a class of torch modules.*; got dict"),
        (lambda: submission_record(attnlab.SingleHead, None), "list of designs.*; got None"),
        (lambda: submission_record(attnlab.SingleHead, ["identity"]), r"got \['identity'\]"),
        (lambda: submission_record(attnlab.SingleHead, DESIGNS, time="now"), "got 'now'"),
    ],
)
def test_what_is_no_class_or_no_design_is_refused_in_one_line(call, message):
    with pytest.raises(WrongUsage) as caught:
        call()
    assert "\n" not in str(caught.value)
    assert re.search(message, str(caught.value)), caught.value
