import datetime
import json
import re

import pytest
import torch
from torch import nn

import attnlab
from attnlab.design import check_record, copy_first, identity, submission, submission_record, unique
from attnlab.errors import WrongUsage

DESIGNS = [identity(), copy_first(), unique()]


def student_class(order, *, name="Student", scale=True):
    """Write a student's class, whose constructor makes its layers in some order."""

    class Student(nn.Module):
        def __init__(self, input_dim, qk_dim, v_dim, pos_dim=None, max_seq_len=10):
            super().__init__()
            sizes = {"Qm": qk_dim, "Km": qk_dim, "Vm": v_dim}
            for layer in order:
                setattr(self, layer, nn.Linear(input_dim + (pos_dim or 0), sizes[layer], bias=False))
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
    records = [submission_record(student_class(order), DESIGNS) for order in (("Qm", "Km", "Vm"), ("Vm", "Qm", "Km"))]
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


def test_a_source_that_python_does_not_know_is_left_empty():
    space = {"nn": nn}
    exec("class Typed(nn.Module):\n    def forward(self, seq): return seq", space)
    assert submission._source(space["Typed"], "forward") is None
    assert submission._source(space["Typed"], "__init__") is None


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda r: r["values"][2]["output"][0].__setitem__(0, 9.0), "output of case 2 is .* from the reference"),
        (lambda r: r["values"][1]["output"].pop(), "output of case 1 must have shape"),
        (lambda r: r["values"][1].update(output="x"), "output of case 1 is no matrix"),
        (lambda r: r["values"].pop(), "expected the values of 4 cases"),
        (lambda r: r["values"][0].update(qk_dim=4), "case 0 is not"),
        (lambda r: r["designs"][1]["Qm"][3].__setitem__(0, 1.0), "proof of copy_first says digest is"),
        (lambda r: r["designs"][1]["proof"].update(failures=3), "says failures is 3; checked again it is 0"),
        (lambda r: r["designs"][0].update(shapes={}), "the shapes of identity are not those"),
        (lambda r: r["designs"][0].update(task={"rule": "sort"}), "there is no task 'sort'"),
        (lambda r: r["designs"][0].pop("proof"), "lacks its shapes or its proof"),
        (lambda r: r.update(designs=[]), "at least one design"),
        (lambda r: r.update(source={}), "expected the source of __init__ and forward"),
        (lambda r: r.pop("time"), "the record lacks time"),
        (lambda r: r.clear(), "no record of the form"),
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
    record = read_back(submission_record(attnlab.SingleHead, [identity().with_gap(5.7)]))
    assert check_record(record) == [
        "the design of identity fails: AB, at A in place 1: expected 1 0 0; got 0.996665 0.00333481 0."
    ]


def test_a_class_that_cannot_be_used_is_refused_in_words():
    class Empty(nn.Module):
        def __init__(self, **widths):
            super().__init__()

    class Strange(nn.Module):
        pass

    with pytest.raises(WrongUsage, match="Empty must have a linear layer without bias named Km or key"):
        submission_record(Empty, DESIGNS)
    with pytest.raises(WrongUsage, match="Strange failed with"):
        submission_record(Strange, DESIGNS)
