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


def student_class(order, *, name="Student", scale=True):
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


def read_back(record):
    return json.loads(json.dumps(record, allow_nan=False))


def test_the_values_do_not_depend_on_the_order_in_which_layers_are_made():
    records = [
        submission_record(student_class(order), DESIGNS)
        for order in (("Qm", "Km", "Vm"), ("Vm", "Qm", "Km"))
    ]
    assert records[0]["values"] == records[1]["values"]
    ours = submission_record(attnlab.SingleHead, DESIGNS)
    assert all(check_record(read_back(record)) == [] for record in (*records, ours))


def test_the_record_holds_time_shapes_matrices_values_and_the_source_of_two_methods():
    time = datetime.datetime(2025, 5, 17, 12, tzinfo=datetime.UTC)
    record = submission_record(student_class(("Qm", "Km", "Vm")), DESIGNS, time=time)
    assert record["time"] == "2025-05-17T12:00:00+00:00"
    assert "softmax" in record["source"]["forward"]
    assert "nn.Linear" in record["source"]["__init__"]
    assert [each["shapes"]["Km"] for each in record["designs"]] == [[3, 3], [7, 4], [8, 8]]
    assert record["designs"][1]["Vm"][0] == (1.0, 0.0, 0.0)
    assert len(record["values"]) == 4


def test_a_source_that_python_does_not_know_is_left_empty_and_named():
    space = {"parent": student_class(("Qm", "Km", "Vm"))}
    exec("class Typed(parent):\n    def forward(self, seq): return super().forward(seq)", space)
    record = read_back(submission_record(space["Typed"], DESIGNS))
    assert record["source"]["forward"] is None
    problems = check_record(record)
    assert len(problems) == 1
    assert problems[0].startswith("the source of forward is missing: Python does not know it")


def test_the_source_of_an_inherited_method_is_its_parent_s():
    parent = student_class(("Qm", "Km", "Vm"))

    class Heir(parent):
        pass

    record = submission_record(Heir, DESIGNS)
    assert record["source"] == submission_record(parent, DESIGNS)["source"]
    assert "softmax" in record["source"]["forward"]
    assert check_record(read_back(record)) == []
    assert submission._source(nn.Module, "__init__") is None


def test_a_forward_that_is_a_lambda_is_named():
    parent = student_class(("Qm", "Km", "Vm"))

    class Short(parent):
        forward = lambda self, seq: parent.forward(self, seq)  # noqa: E731, PLW0108

    problems = check_record(read_back(submission_record(Short, DESIGNS)))
    assert len(problems) == 1
    assert problems[0].startswith(
        "the source of forward must be its definition, def forward(…); got"
    )


@pytest.mark.parametrize("has_positions", [True, False])
def test_a_design_written_in_another_way_has_the_gain_of_its_scores(has_positions):
    # 6 · I for keys and queries alike is a gain of 36; with idle positions, still.
    idle = [[0.0] * 3] if has_positions else []
    keys = [[6.0 * (row == column) for column in range(3)] for row in range(3)] + idle
    values = [[1.0 * (row == column) for column in range(3)] for row in range(3)] + idle
    fields = {"Km": keys, "Qm": keys, "Vm": values, "pos": [[1.0]] * 6 if has_positions else None}
    own = Design.from_mapping(identity().to_mapping() | fields | {"gain": 36.0})
    assert check_record(read_back(submission_record(attnlab.SingleHead, [own, *DESIGNS[1:]]))) == []
    wrong = dataclasses.replace(own, gain=35.0)
    assert check_record(
        read_back(submission_record(attnlab.SingleHead, [wrong, *DESIGNS[1:]]))
    ) == ["the gain of identity is stated as 35; its matrices have 36."]


def test_numbers_that_differ_by_rounding_alone_are_confirmed():
    record = read_back(submission_record(attnlab.SingleHead, DESIGNS))
    proof = record["designs"][2]["proof"]
    for name in ("margin", "worst_error"):
        proof[name] += 0.5 * proof["rounding"]
    assert check_record(record) == []
    proof["margin"] += 3 * proof["rounding"] + 1e-9
    assert "says margin is" in check_record(record)[0]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (
            lambda r: r["values"][2]["output"][0].__setitem__(0, 9.0),
            "case 2 says output is .*; checked again it is",
        ),
        (lambda r: r["values"][1]["output"].pop(), "case 1 says output is .*; checked again it is"),
        (
            lambda r: r["values"][1].update(output="x"),
            "case 1 says output is 'x'; checked again it is",
        ),
        (lambda r: r["values"].pop(), "expected the values of 4 cases"),
        (
            lambda r: r["values"][0].update(qk_dim=4),
            "case 0 says qk_dim is 4; checked again it is 3",
        ),
        (
            lambda r: r["designs"][1]["Qm"][3].__setitem__(0, 1.0),
            "proof of copy_first says digest is",
        ),
        (
            lambda r: r["designs"][1]["proof"].update(failures=3),
            "says failures is 3; checked again it is 0",
        ),
        (
            lambda r: r["designs"][0].update(shapes={}),
            "the shapes of identity must have exactly the keys",
        ),
        (lambda r: r["designs"][0].update(task={"rule": "sort"}), "there is no task 'sort'"),
        (
            lambda r: r["designs"][0].pop("proof"),
            "the proof of identity must have exactly the keys",
        ),
        (lambda r: r.update(designs=[]), "expected one design for each task"),
        (lambda r: r.update(source={}), "expected the source of __init__ and forward"),
        (
            lambda r: r["designs"][0].update(gain=1.0),
            "gain of identity is stated as 1; its matrices have 14.7652",
        ),
        (lambda r: r["designs"][0].update(gain=float("nan")), "a gain is a finite number; got nan"),
        (
            lambda r: r["designs"][0].update(tolerance=0.9),
            "a tolerance is a number from 1e-12 to 0.4",
        ),
        (
            lambda r: r["designs"][0].update(Km=[[10**400] * 3] * 3),
            "this is not a design: int too large",
        ),
        (
            lambda r: r["designs"][0]["proof"].update(margin=99),
            "says margin is 99; checked again it is 8.47",
        ),
        (
            lambda r: r["designs"][0]["proof"].update(margin=10**400),
            "says margin is 1000.*; checked again it is 8.47",
        ),
        (
            lambda r: r["designs"][0]["proof"].update(worst_error=0),
            "says worst_error is 0; checked again",
        ),
        (
            lambda r: r["designs"][0]["proof"].update(rounding=0.5),
            "says rounding is 0.5; checked again",
        ),
        (
            lambda r: r["designs"][2]["proof"].update(min_output_size=True),
            "says min_output_size is True; checked again",
        ),
        (
            lambda r: r["designs"][0]["proof"].update(inputs=5),
            "says inputs is 5; checked again it is 1092",
        ),
        (
            lambda r: r["designs"][0]["proof"].update(holds=1),
            "says holds is 1; checked again it is True",
        ),
        (
            lambda r: r["designs"][0]["proof"].update(dtype="float32"),
            "says dtype is 'float32'; checked again",
        ),
        (
            lambda r: r["designs"][0]["proof"].pop("margin"),
            "the proof of identity must have exactly the keys",
        ),
        (
            lambda r: r["designs"][0].update(proof=3),
            "the proof of identity must have exactly the keys",
        ),
        (lambda r: r["designs"].pop(), "expected one design for unique; got 0"),
        (
            lambda r: r["designs"].append(r["designs"][1]),
            "expected one design for copy_first; got 2",
        ),
        (
            lambda r: r["values"][0].update(output=[[10**400] * 3]),
            "case 0 says output is .*; checked again it is",
        ),
        (lambda r: r.update(time=None), "the time must be ISO 8601, such as 2025.*; got None"),
        (lambda r: r.update(time="yesterday"), "the time must be ISO 8601.*; got 'yesterday'"),
        (lambda r: r.update({"class": 7}), "class must be the name of a class; got 7"),
        (lambda r: r["source"].update(__init__=None), "the source of __init__ is missing"),
        (
            lambda r: r["source"].update(forward="pass"),
            r"must be its definition, def forward\(…\); got 'pass'",
        ),
        (
            lambda r: r["source"].update(forward=r["source"]["__init__"]),
            "source of forward must be its definition",
        ),
        (lambda r: r["source"].update(forward=["x"]), "source of forward must be its definition"),
        (lambda r: r.pop("time"), "the record lacks time"),
        (lambda r: r.clear(), "not a record of the form"),
    ],
)
def test_every_damage_is_named(damage, message):
    record = read_back(submission_record(attnlab.SingleHead, DESIGNS))
    damage(record)
    problems = check_record(record)
    assert len(problems) == 1
    assert re.search(message, problems[0]), problems[0]


def test_a_student_who_forgets_the_scale_is_found():
    record = read_back(submission_record(student_class(("Qm", "Km", "Vm"), scale=False), DESIGNS))
    assert len(check_record(record)) >= 2


def test_a_design_that_fails_is_named_with_its_counterexample():
    record = read_back(
        submission_record(attnlab.SingleHead, [identity().with_gap(5.7), *DESIGNS[1:]])
    )
    assert check_record(record) == [
        "the design of identity fails: AB, at A in place 1: expected 1 0 0; got 0.996665 "
        "0.00333481 0."
    ]


def test_a_class_that_cannot_be_used_is_refused_in_words():
    class Empty(nn.Module):
        def __init__(self, **widths):
            super().__init__()

    class Strange(nn.Module):
        pass

    with pytest.raises(
        WrongUsage, match="Empty must have a linear layer without bias named Km or key"
    ):
        submission_record(Empty, DESIGNS)
    with pytest.raises(WrongUsage, match="Strange failed with"):
        submission_record(Strange, DESIGNS)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: submission_record(3, DESIGNS),
            "expected a class of torch modules.*; got a value of type int",
        ),
        (
            lambda: submission_record(functools.partial(attnlab.SingleHead), DESIGNS),
            "not a model made of it; got a value of type partial",
        ),
        (
            lambda: submission_record(identity().model(), DESIGNS),
            "not a model made of it; got a value of type SingleHead",
        ),
        (lambda: submission_record(lambda **widths: None, DESIGNS), "got a value of type function"),
        (lambda: submission_record(dict, DESIGNS), "expected a class of torch modules.*; got dict"),
        (
            lambda: submission_record(attnlab.SingleHead, None),
            "expected a list of designs.*; got None",
        ),
        (
            lambda: submission_record(attnlab.SingleHead, ["identity"]),
            r"expected a list of designs.*; got \['identity'\]",
        ),
        (
            lambda: submission_record(attnlab.SingleHead, DESIGNS, time="now"),
            "time is a datetime.*; got 'now'",
        ),
    ],
)
def test_what_is_no_class_or_no_design_is_refused_in_one_line(call, message):
    with pytest.raises(WrongUsage) as caught:
        call()
    assert "\n" not in str(caught.value)
    assert re.search(message, str(caught.value)), caught.value
