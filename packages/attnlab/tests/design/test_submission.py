import datetime
import functools
import json
import re

import pytest
import torch
from torch import nn

import attnlab
from attnlab.design import copy_first, identity, submission, submission_record, unique
from attnlab.errors import WrongUsage

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
            seq = torch.cat((seq, self.pos[: len(seq)]), -1)
        query, key, value = self.Qm(seq), self.Km(seq), self.Vm(seq)
        return (query @ key.T / query.shape[-1] ** 0.5).softmax(-1) @ value


@pytest.fixture(scope="module", autouse=True)
def _proofs_once():
    """Prove each design once, however often it is submitted."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(submission, "prove", functools.cache(submission.prove))
        yield


def submitted(model_class):
    """A record as it is read back from its file."""
    return json.loads(json.dumps(submission_record(model_class, DESIGNS), allow_nan=False))


def test_the_record_holds_time_matrices_proofs_and_the_source_of_two_methods():
    time = datetime.datetime(2025, 5, 17, 12, tzinfo=datetime.UTC)
    record = submission_record(Student, DESIGNS, time=time)
    assert record["time"] == "2025-05-17T12:00:00+00:00"
    assert "softmax" in record["source"]["forward"]
    assert "nn.Linear" in record["source"]["__init__"]
    assert record["designs"][1]["Vm"][0] == (1.0, 0.0, 0.0)
    assert [each["proof"]["holds"] for each in record["designs"]] == [True] * 3


def test_a_source_that_python_does_not_know_is_left_empty():
    space = {"parent": Student}
    exec("class Typed(parent):\n    def forward(self, seq): return super().forward(seq)", space)
    assert submitted(space["Typed"])["source"]["forward"] is None


def test_the_source_of_an_inherited_method_is_its_parent_s():
    class Heir(Student):
        pass

    assert submitted(Heir)["source"] == submitted(Student)["source"]
    assert submission._source(nn.Module, "__init__") is None


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: submission_record(3, DESIGNS), "got 3"),
        (lambda: submission_record(identity().model(), DESIGNS), "not a model made of it; got"),
        (lambda: submission_record(lambda **widths: None, DESIGNS), "got <function"),
        (lambda: submission_record(dict, DESIGNS), "expected a class of torch modules.*; got"),
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
