"""The record of `handmade` answers exercises of the course."""

import json

import numpy as np
import pytest
import torch
from torch import nn

from attnlab.design import copy_first, identity, submission_record, unique
from attnlab.errors import WrongUsage
from attnlab.models.single_head import SingleHead
from attnlab_course.catalog import find_exercise
from attnlab_course.grading.record import FORM, answers_of_record
from attnlab_course.judge import check_here

from .classroom import outcome_of_weights as outcome_of
from .classroom import questions_of

DESIGNS = [identity(), copy_first(), unique()]


class Student(nn.Module):
    """A student's own class."""

    def __init__(self, input_dim, qk_dim, v_dim, pos_dim=None, max_seq_len=10):
        super().__init__()
        width = input_dim + (pos_dim or 0)
        self.Qm = nn.Linear(width, qk_dim, bias=False)
        self.Km = nn.Linear(width, qk_dim, bias=False)
        self.Vm = nn.Linear(width, v_dim, bias=False)
        self.pos = None if pos_dim is None else nn.Parameter(torch.randn(max_seq_len, pos_dim))

    def forward(self, seq):
        if self.pos is not None:
            if len(seq) > len(self.pos):
                raise ValueError("too long")
            seq = torch.cat((seq, self.pos[: len(seq)]), -1)
        query, key, value = self.Qm(seq), self.Km(seq), self.Vm(seq)
        return (query @ key.T / query.shape[-1] ** 0.5).softmax(-1) @ value


def made(**changes):
    record = json.loads(json.dumps(submission_record(Student, DESIGNS)))
    return record | changes


def test_the_designs_of_a_record_are_right_answers():
    answers = answers_of_record(made())
    for name in ("identity", "copy_first", "unique"):
        matrices = answers[name]["weights"]
        assert outcome_of(name, matrices).points == find_exercise(name).points, name
        assert [each.dtype for each in matrices] == [np.float64] * len(matrices)
    assert len(answers["identity"]["weights"]) == 3
    assert len(answers["unique"]["weights"]) == 4


def test_the_source_of_a_record_is_a_right_answer():
    source = answers_of_record(made())["torch_transformer"]["source"]
    outcome = check_here(questions_of("torch_transformer"), source)
    assert outcome.points == find_exercise("torch_transformer").points


def test_a_record_without_source_or_of_the_class_of_attnlab_answers_the_designs_alone():
    own = json.loads(json.dumps(submission_record(SingleHead, DESIGNS)))
    halves = [made(source={"__init__": text, "forward": None}) for text in (None, 3)]
    for record in (own, *halves):
        assert sorted(answers_of_record(record)) == ["copy_first", "identity", "unique"]


def test_a_design_that_fails_is_an_answer_and_is_told_its_mistake():
    record = json.loads(json.dumps(submission_record(Student, [identity().with_gap(5.7)])))
    matrices = answers_of_record(record)["identity"]["weights"]
    assert outcome_of("identity", matrices).mistake.name == "gain too low"


def edited(change):
    record = made()
    change(record)
    return record


INIT = "def __init__(self, **widths): pass"


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (None, "expected a record of the form"),
        ([1], "expected a record of the form"),
        ({"form": "attnlab submission 0"}, "expected a record of the form"),
        ({"form": FORM}, "the record lacks class, source, designs"),
        (lambda: made(designs={}), "designs must be a list"),
        (lambda: made(designs=[1]), "one of the rules identity, copy_first, unique; got None"),
        (lambda: made(designs=[{"task": {"rule": ["identity"]}}]), "one of the rules"),
        (lambda: made(designs=[{"task": {"rule": "sort"}}]), "got 'sort'"),
        (lambda: edited(lambda r: r["designs"].append(r["designs"][0])), "two designs for ident"),
        (lambda: edited(lambda r: r["designs"][0].pop("Km")), "Km of identity must be a matrix"),
        (lambda: edited(lambda r: r["designs"][1].update(pos=3)), "pos of copy_first must be a"),
        (lambda: edited(lambda r: r["designs"][2].update(Vm=[[1], [1, 2]])), "Vm of unique must"),
        (lambda: made(**{"class": "a b"}), "class must be the name of a class; got 'a b'"),
        (lambda: made(source={"forward": "x"}), "source must hold __init__ and forward"),
        (
            lambda: made(source={"__init__": INIT, "forward": "import os"}),
            "the source of forward must be its definition, def forward",
        ),
        (
            lambda: made(source={"__init__": INIT + "\n\nx = 1", "forward": "def forward(s): 1"}),
            "the source of __init__ must be its definition",
        ),
        (lambda: made(source={"__init__": 3, "forward": "x"}), "__init__ must be text; got 3"),
    ],
)
def test_what_is_no_record_is_refused_in_words(record, message):
    record = record() if callable(record) else record
    with pytest.raises(WrongUsage, match=message):
        answers_of_record(record)
